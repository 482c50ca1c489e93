/* The boot configuration: what docs/reference/guest-protocol.md says of descriptor 4. */
#ifndef AGENTD_BOOT_H
#define AGENTD_BOOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOKEN_SIZE 32

struct boot {
    const uint8_t *token; /* in memory that children do not get */
    bool ephemeral;
    uint64_t connect_ms;
    char *cwd;
    char *listen; /* NULL: descriptor 3 is the listening socket */
    char *user; /* NULL: uid 0, or the single one */
    uint64_t caps;
    uint8_t *seccomp;
    size_t seccomp_count; /* instructions */
    int64_t single_uid;   /* -1: there is a range */
    bool has_oom_score_adj;
    int64_t oom_score_adj;
    uint64_t nofile; /* 0: as agentd's own */
    uint64_t nproc;
    uint64_t spool_max;
    uint64_t umask;
};

extern struct boot boot;

/* Reads the configuration from `fd` to its end and closes it. Ends the process when there is none. */
void boot_read(int fd);

#endif
