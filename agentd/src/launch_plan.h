/* The launch plan: what docs/reference/launch-plan.md describes, decoded. */
#ifndef AGENTD_LAUNCH_PLAN_H
#define AGENTD_LAUNCH_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum id_mode {
    IDS_RANGE,  /* host root: a uid range of its own, layers idmapped */
    IDS_SUBUID, /* a user with subuids: maps written by newuidmap and newgidmap */
    IDS_SINGLE, /* a user without: one id */
};

struct id_map {
    char *text; /* lines of "inside outside count", as the kernel takes them */
};

struct plan_source {
    char *path;
    bool is_file;
    bool writable;
    bool is_image; /* a file that holds an ext4 file system, which is what is meant */
    bool is_volume; /* its directory is made if it is not there: `path`, or `data` in the image */
    int64_t owner;  /* volume: who then owns it, as the outer namespace counts */
    bool is_project; /* its owner is the sandbox's user: idmapped by project_uids and project_gids */
};

enum op_kind {
    OP_OVERLAY,
    OP_TMPFS,
    OP_TREE,
    OP_BIND,
    OP_PROC,
    OP_DEV,
    OP_MASK,
    OP_READONLY,
    OP_DATA,
    OP_WRITE,
    OP_DIR,
    OP_CGROUP,
    OP_STAGE,
    OP_NOSUID,
};

struct plan_op {
    enum op_kind kind;
    char *target;
    char *lowers;   /* overlay: "0:3:1"; tree: the same, or NULL: source `index` alone */
    char *type;     /* cgroup: "cgroup2" or "cgroup" */
    char *options;  /* cgroup: the controllers of a v1 hierarchy */
    uint64_t index; /* overlay: number of its upper; tree, bind: source */
    uint64_t size;
    uint64_t inodes;
    uint64_t mode;
    bool noexec;
    bool optional; /* dir: what can't be made is left */
    bool alike; /* overlay: owner and mode are the topmost lower's */
    const unsigned char *content;
    size_t content_size;
};

struct plan {
    enum id_mode ids;
    struct id_map outer_uids, outer_gids, inner_uids, inner_gids;
    struct id_map project_uids, project_gids; /* NULL: as the outer ones */
    char *newuidmap, *newgidmap;
    char *staging;
    char **cgroups;
    size_t cgroup_count;
    struct plan_source *sources;
    size_t source_count;
    int64_t upper_source; /* -1: a tmpfs of upper_size bytes */
    uint64_t upper_size, upper_inodes;
    int64_t upper_owner; /* id in the outer namespace that must own the upper; -1: leave it */
    struct plan_op *ops;
    size_t op_count;
    struct plan_op *late; /* in the container that a runtime has made: data, mask, readonly, nosuid */
    size_t late_count;
    char *hostname;
    bool nested_userns;
    bool network; /* a way out to the gateway; without, loopback is all there is */
    int64_t devpts_gid;
    uint64_t agent_source;
    uint64_t agent_uid;
    uint64_t agent_caps;
    const unsigned char *boot;
    size_t boot_size;
    char **engine; /* command of an OCI runtime, ended by NULL; its paths are staged ones */
    size_t engine_count;
    char *engine_log;      /* where that command writes what went wrong */
    int64_t engine_source; /* the directory the runtime keeps its own state in */
    bool engine_listens;   /* agentd makes its socket itself, below engine_source */
    bool engine_without_groups; /* the runtime sees no control groups */
};

/* Reads and decodes the plan from `fd`; ends the process by launch_fail("plan") if it is not one. */
void plan_read(int fd, struct plan *plan);

#endif
