/* From a fork of agentd to the program of an exec request. */
#ifndef AGENTD_SPAWN_H
#define AGENTD_SPAWN_H

#include <stdbool.h>
#include <stdint.h>

#include "user.h"

/* Where a start failed; the names are the protocol's. */
enum stage {
    STAGE_USER,
    STAGE_CWD,
    STAGE_PTY,
    STAGE_LIMITS,
    STAGE_FORK,
    STAGE_CONFINE,
    STAGE_EXEC,
};
const char *stage_name(enum stage stage);

struct spawn {
    char **argv; /* argv[-1] exists: the place of /bin/sh for a script without #! */
    char **envp;
    const char *cwd;
    struct user_ids user;
    bool pty;
    uint64_t nofile; /* 0: the boot configuration's */
    int in, out, err;
};

/* What comes through the pipe when the program could not be started. */
struct spawn_failure {
    int err;
    int stage;
};

/* The steps by which a child stops being agentd and becomes USER; file workers take them too. Each
 * returns 0 or an errno. After the second only what the sandbox's filter allows is possible. */
int spawn_drop_rights(const struct user_ids *user, uint64_t nofile, enum stage *stage);
int spawn_filter(void);

/* Runs in the child. Stdio is in place; ERROR_FD (close-on-exec) is the only other descriptor. */
__attribute__((noreturn)) void spawn_become(const struct spawn *spawn, int error_fd);

#endif
