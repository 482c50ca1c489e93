/* Kernel interfaces the launcher uses that a libc's headers may lack. Numbers and layouts are ABI. */
#ifndef AGENTD_LAUNCH_SYS_H
#define AGENTD_LAUNCH_SYS_H

#include <fcntl.h>
#include <stdint.h>
#include <sys/syscall.h>

/* The same on every architecture: these calls came after the tables were unified. */
#ifndef SYS_open_tree
#define SYS_open_tree 428
#endif
#ifndef SYS_move_mount
#define SYS_move_mount 429
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif

#ifndef OPEN_TREE_CLONE
#define OPEN_TREE_CLONE 1
#endif
#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif
#ifndef AT_EMPTY_PATH
#define AT_EMPTY_PATH 0x1000
#endif
#ifndef MOVE_MOUNT_F_EMPTY_PATH
#define MOVE_MOUNT_F_EMPTY_PATH 0x4
#endif
#ifndef MOVE_MOUNT_T_EMPTY_PATH
#define MOVE_MOUNT_T_EMPTY_PATH 0x40
#endif
#ifndef MOUNT_ATTR_RDONLY
#define MOUNT_ATTR_RDONLY 0x1
#define MOUNT_ATTR_NOSUID 0x2
#define MOUNT_ATTR_NODEV 0x4
#define MOUNT_ATTR_NOEXEC 0x8
#endif
#ifndef MOUNT_ATTR_IDMAP
#define MOUNT_ATTR_IDMAP 0x100000
#endif
#ifndef RESOLVE_NO_MAGICLINKS
#define RESOLVE_NO_MAGICLINKS 0x02
#define RESOLVE_NO_SYMLINKS 0x04
#define RESOLVE_BENEATH 0x08
#endif

struct mount_attributes {
    uint64_t attr_set, attr_clr, propagation, userns_fd;
};

struct open_how_args {
    uint64_t flags, mode, resolve;
};

#define CAPABILITY_VERSION_3 0x20080522

struct cap_header {
    uint32_t version;
    int pid;
};

struct cap_data {
    uint32_t effective, permitted, inheritable;
};

#endif
