/* `agentd probe`: what can really be reached from where this program runs, tried.
 *
 *   agentd probe [--abstract NAME] [--tcp PORT] [--setuid FILE]    one line of JSON for every try
 *   agentd probe --list                                            their names
 *
 * With --setuid it first makes its own file, FILE, set-user-id, for the next user to run it.
 * The host side puts this binary into a sandbox, runs it as a user of it and judges what it says
 * (kernel/probe). Here nothing is judged: a line is {"try": NAME, "answer": WORD, "values": [TEXT…]}.
 * WORD is "ok", "none" (there is nothing), "errno N", "signal N" or "timeout".
 *
 * What must hold: a try changes nothing even if the door is open. It opens, connects, asks, or does
 * something to its own process, which is gone a moment later; where a call would act, its arguments
 * are such that the kernel looks at the right first and at the nonsense afterwards. No try waits for
 * anything but the kernel, and no more than one process is alive beside the first. */
#ifndef AGENTD_PROBE_H
#define AGENTD_PROBE_H

#include <stddef.h>
#include <stdint.h>

#define PROBE_VALUES_MAX 49152u

/* What came of a try. In memory shared with the process that makes it, so that whatever it found
 * before it crashed or was killed is an answer, too. */
struct probe_answer {
    char word[24];
    uint32_t used;
    char values[PROBE_VALUES_MAX]; /* texts with a NUL behind each */
};

struct probe_try {
    const char *name;
    void (*run)(struct probe_answer *answer, const struct probe_try *self);
    const char *path;
    long number; /* of a system call, a family, a flag */
    long args[6];
};

/* What the host side has laid out for us to find. */
struct probe_bait {
    const char *abstract; /* an abstract unix socket outside */
    int tcp_port;         /* of a listener on 127.0.0.1 outside */
};
extern struct probe_bait probe_bait;

/* The descriptors that were open at the start, before we opened any. */
#define PROBE_FDS_MAX 64
extern int probe_fds[PROBE_FDS_MAX];
extern size_t probe_fd_count;

int probe_main(int argc, char **argv);

/* "ok" for a result that is not negative, else "errno N". */
void answer_result(struct probe_answer *answer, long result);
void answer_word(struct probe_answer *answer, const char *word);
/* "ok" if there is a value, else "none". */
void answer_values(struct probe_answer *answer);
void answer_add(struct probe_answer *answer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Up to SIZE - 1 bytes of a file, as a text; -1 and errno. */
long probe_read(const char *path, char *text, size_t size);

/* Tries that need only a path. */
void try_read(struct probe_answer *answer, const struct probe_try *self);
void try_open(struct probe_answer *answer, const struct probe_try *self);
void try_open_write(struct probe_answer *answer, const struct probe_try *self);

extern const struct probe_try probe_self[], probe_calls[], probe_files[], probe_sockets[],
    probe_agent[], probe_limits[];

#endif
