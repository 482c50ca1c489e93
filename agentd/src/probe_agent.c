/* PID 1, the guest agent: its memory, its descriptors, its files in /proc, its place in the queue. */
#define _GNU_SOURCE
#include "probe.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

#include "sys.h"

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#define PTRACE_SEIZE_NUMBER 0x4206

/* Taken without stopping it, and let go of when this process ends. */
static void try_seize(struct probe_answer *answer, const struct probe_try *self) {
    (void)self;
    answer_result(answer, syscall(SYS_ptrace, PTRACE_SEIZE_NUMBER, 1, 0, 0));
}

/* At an address where nothing ever is: who may look is told so by EFAULT. */
static void try_memory(struct probe_answer *answer, const struct probe_try *self) {
    char byte = 0;
    struct iovec here = {&byte, 1}, there = {(void *)8, 1};

    answer_result(answer, syscall(self->number, 1, &here, 1, &there, 1, 0));
}

static void try_steal(struct probe_answer *answer, const struct probe_try *self) {
    long agent = syscall(SYS_pidfd_open, 1, 0);

    (void)self;
    if (agent < 0)
        return answer_result(answer, agent);
    for (int fd = 0; fd < 8; fd++) {
        if (syscall(SYS_pidfd_getfd, agent, fd, 0) >= 0) {
            answer_word(answer, "ok");
            return;
        }
        if (errno != EBADF)
            break;
    }
    answer_result(answer, -1);
}

static void try_kcmp(struct probe_answer *answer, const struct probe_try *self) {
    (void)self;
    answer_result(answer, syscall(SYS_kcmp, 1, 1, 2, 0, 0));
}

/* Signal 0: may we at all? */
static void try_signal(struct probe_answer *answer, const struct probe_try *self) {
    (void)self;
    answer_result(answer, kill(1, 0));
}

static void try_limits(struct probe_answer *answer, const struct probe_try *self) {
    uint64_t limit[2];

    (void)self;
    answer_result(answer, syscall(SYS_prlimit64, 1, RLIMIT_NOFILE, NULL, limit));
}

/* No CPU at all, which nobody can be bound to: EINVAL is for who may. */
static void try_affinity(struct probe_answer *answer, const struct probe_try *self) {
    cpu_set_t none;

    (void)self;
    CPU_ZERO(&none);
    answer_result(answer, sched_setaffinity(1, sizeof none, &none));
}

/* The priority that it has: the kernel then changes nothing. */
static void try_priority(struct probe_answer *answer, const struct probe_try *self) {
    int priority;

    (void)self;
    errno = 0;
    priority = getpriority(PRIO_PROCESS, 1);
    if (errno)
        return answer_result(answer, -1);
    answer_result(answer, setpriority(PRIO_PROCESS, 1, priority));
}

/* All of it: the words behind the first would tell how it was started. */
static void try_command_line(struct probe_answer *answer, const struct probe_try *self) {
    char text[4096];
    long n = probe_read(self->path, text, sizeof text);

    if (n < 0)
        return answer_result(answer, n);
    for (long i = 0; i + 1 < n; i++)
        if (!text[i])
            text[i] = ' ';
    answer_add(answer, "%s", text);
    answer_values(answer);
}

static void try_link(struct probe_answer *answer, const struct probe_try *self) {
    char link[512];
    ssize_t n = readlink(self->path, link, sizeof link - 1);

    if (n >= 0) {
        link[n] = 0;
        answer_add(answer, "%s", link);
    }
    answer_result(answer, n);
}

/* The numbers of its descriptors or, with `number`, what they are. */
static void try_descriptors(struct probe_answer *answer, const struct probe_try *self) {
    DIR *dir = opendir(self->path);
    struct dirent *entry;
    int last = 0;

    if (!dir)
        return answer_result(answer, -1);
    while ((entry = readdir(dir))) {
        char link[256];
        ssize_t n = 0;

        if (entry->d_name[0] == '.')
            continue;
        if (self->number)
            n = readlinkat(dirfd(dir), entry->d_name, link, sizeof link - 1);
        if (n < 0) {
            last = errno;
            continue;
        }
        link[n] = 0;
        answer_add(answer, "%s%s%s", entry->d_name, n ? " " : "", link);
    }
    answer_values(answer);
    if (!answer->used && last) {
        errno = last;
        answer_result(answer, -1);
    }
}

const struct probe_try probe_agent[] = {
    {"agent.ptrace", try_seize, NULL, 0, {0}},
    {"agent.read_memory", try_memory, NULL, SYS_process_vm_readv, {0}},
    {"agent.write_memory", try_memory, NULL, SYS_process_vm_writev, {0}},
    {"agent.take_descriptor", try_steal, NULL, 0, {0}},
    {"agent.compare", try_kcmp, NULL, 0, {0}},
    {"agent.signal", try_signal, NULL, 0, {0}},
    {"agent.limits", try_limits, NULL, 0, {0}},
    {"agent.affinity", try_affinity, NULL, 0, {0}},
    {"agent.priority", try_priority, NULL, 0, {0}},
    {"agent.command_line", try_command_line, "/proc/1/cmdline", 0, {0}},
    {"agent.environment", try_read, "/proc/1/environ", 0, {0}},
    {"agent.memory_file", try_open, "/proc/1/mem", 0, {0}},
    {"agent.maps", try_read, "/proc/1/maps", 0, {0}},
    {"agent.stack", try_read, "/proc/1/stack", 0, {0}},
    {"agent.program", try_link, "/proc/1/exe", 0, {0}},
    {"agent.root", try_link, "/proc/1/root", 0, {0}},
    {"agent.descriptors", try_descriptors, "/proc/1/fd", 0, {0}},
    {"agent.descriptor_links", try_descriptors, "/proc/1/fd", 1, {0}},
    {"agent.oom_score", try_open_write, "/proc/1/oom_score_adj", 0, {0}},
    {"agent.oom_score_of_thread", try_open_write, "/proc/1/task/1/oom_score_adj", 0, {0}},
    {"agent.name", try_open_write, "/proc/1/comm", 0, {0}},
    {0},
};
