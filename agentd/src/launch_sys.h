/* Kernel interfaces the launcher uses that a libc's headers may lack. Numbers and layouts are ABI. */
#ifndef AGENTD_LAUNCH_SYS_H
#define AGENTD_LAUNCH_SYS_H

#include <fcntl.h>
#include <stdint.h>
#include <sys/mount.h> /* before what it may define, too: glibc does, as enumerations */
#include <sys/syscall.h>

/* The same on every architecture: these calls came after the tables were unified. */
#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif
#ifndef SYS_open_tree
#define SYS_open_tree 428
#endif
#ifndef SYS_move_mount
#define SYS_move_mount 429
#endif
#ifndef SYS_fsopen
#define SYS_fsopen 430
#define SYS_fsconfig 431
#define SYS_fsmount 432
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

#ifndef FSOPEN_CLOEXEC
#define FSOPEN_CLOEXEC 1
#define FSMOUNT_CLOEXEC 1
#define FSCONFIG_SET_FLAG 0
#define FSCONFIG_SET_STRING 1
#define FSCONFIG_CMD_CREATE 6
#endif

/* linux/loop.h, of which libcs without the kernel's headers have nothing. */
#ifndef LOOP_CONFIGURE
#define LOOP_CTL_GET_FREE 0x4C82
#define LOOP_CONFIGURE 0x4C0A
#define LO_FLAGS_AUTOCLEAR 4
#endif
#ifndef LOOP_GET_STATUS64
#define LOOP_GET_STATUS64 0x4C05
#endif

struct loop_information {
    uint64_t device, inode, rdevice, offset, size_limit;
    uint32_t number, encrypt_type, encrypt_key_size, flags;
    uint8_t file_name[64], crypt_name[64], encrypt_key[32];
    uint64_t init[2];
};

struct loop_configuration {
    uint32_t fd, block_size;
    struct loop_information info;
    uint64_t reserved[8];
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
