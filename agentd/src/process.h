/* The processes agentd runs: their records and lives. */
#ifndef AGENTD_PROCESS_H
#define AGENTD_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "flow.h"
#include "loop.h"
#include "request.h"
#include "spawn.h"
#include "supervisor.h"
#include "tree.h"

#define PROCESSES_MAX 4096

enum process_state {
    PROCESS_STARTING, /* the supervisor has not said yet */
    PROCESS_RUNNING,
    PROCESS_DRAINING, /* it has exited; its output is being read to the end */
    PROCESS_ENDED,    /* the result is final; an END is due to whoever attaches */
};

enum outcome { OUTCOME_EXITED, OUTCOME_SIGNALED, OUTCOME_TIMEOUT, OUTCOME_NOT_STARTED };

/* A process has a *record* (its id is taken, it can be listed and attached to) until it is
 * forgotten; what is left of it then lives until its supervisor has seen the last of its tree. */
struct process {
    char id[PROCESS_ID_LEN + 1];
    uint64_t serial;
    bool recorded;
    bool job;
    bool pty;
    enum process_state state;
    pid_t pid;
    pid_t supervisor; /* 0: gone */
    struct stream *stream;
    struct sink in;
    struct source out;
    struct source err;
    uint64_t out_mark, err_mark; /* offsets to which output has to be read in any case */
    int64_t drain_until;
    int64_t kill_until; /* an END waits so long for the tree's death */
    uint64_t lost_ms;
    struct timer timeout;
    struct timer drain;
    struct timer lost;
    struct tree_kill kill;
    bool timed_out;
    uint64_t early_signals; /* asked for before there was a process */
    enum outcome outcome;
    int code; /* exit status or signal */
    int start_err;
    enum stage start_stage;
    struct usage usage;
    unsigned full; /* file systems that had no room when it ended: see usage.h */
    struct process *next_by_id;
    struct process *next_by_supervisor;
};

void process_init(void);

struct process *process_find(const char *id);
size_t process_count(void);
/* Calls FN for every record. */
void process_each(void (*fn)(struct process *p, void *context), void *context);

/* Starts what SPAWN says for the new record P (its id, flags and flows are set; on success it is
 * in the table). Its descriptors stay the caller's. 0 or an errno. */
int process_start(struct process *p, const struct spawn *spawn, uint64_t timeout_ms);

/* One stream at a time hears of a process. */
void process_attach(struct process *p, struct stream *stream, uint64_t out, uint64_t err,
                    uint64_t window);
void process_detach(struct process *p);

/* To its process group. */
void process_signal(struct process *p, int sig);
void process_kill(struct process *p);
/* The record goes; a tree that still runs does not. */
void process_forget(struct process *p);
/* Sends an END that has become due, frees what is over. P may be gone afterwards. */
void process_check(struct process *p);

/* Adds the END fields (of a finished process) to MAP. */
void process_describe_end(const struct process *p, struct mp_map *map);

/* Something still runs, or has output that is being read to its end. */
bool process_any_left(void);

#endif
