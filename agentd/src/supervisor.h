/* The process between agentd and a process it runs. */
#ifndef AGENTD_SUPERVISOR_H
#define AGENTD_SUPERVISOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "spawn.h"

/* Of a process and all of its tree that has ended before it or with it, and was waited for. */
struct usage {
    bool known;
    uint64_t cpu_us;
    uint64_t max_rss_kb;
    uint64_t written_kb; /* to disks, as far as the kernel charged it to the tree */
};

enum report_kind { REPORT_STARTED = 1, REPORT_NOT_STARTED, REPORT_EXITED };

/* What a supervisor says, in one write; all of them write to one pipe. */
struct report {
    uint64_t serial; /* of the process, chosen by agentd */
    int32_t supervisor;
    uint32_t kind;
    int32_t pid;    /* started */
    int32_t err;    /* not started */
    int32_t stage;  /* not started */
    int32_t status; /* exited: as of wait */
    struct usage usage;
};

/* Forks it; its pid, or -1 and errno. */
pid_t supervisor_start(const struct spawn *spawn, uint64_t serial, int report_fd);

#endif
