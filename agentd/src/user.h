/* Who a process runs as: "name", "uid", "name:group" or "uid:gid".
 *
 * Names come from the sandbox's /etc/passwd and /etc/group, files that a guest may have written:
 * they are read as regular files only, to a limit, and never through the C library's name
 * services, which would load and run the guest's code. */
#ifndef AGENTD_USER_H
#define AGENTD_USER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define USER_GROUPS_MAX 64

struct user_ids {
    uid_t uid;
    gid_t gid;
    gid_t groups[USER_GROUPS_MAX];
    size_t group_count;
};

/* SINGLE is the only uid and gid there is, or -1. Returns 0 or an errno: ENOENT for a name that is
 * not there, EINVAL for one that cannot be, EPERM for ids that do not exist in the sandbox. */
int user_resolve(const char *spec, int64_t single, struct user_ids *out);

/* The same from two files, for tests. */
int user_resolve_in(const char *passwd, const char *group, const char *spec, int64_t single,
                    struct user_ids *out);

#endif
