/* Kernel constants that some C library lacks.
 *
 * musl-gcc has no <linux/...> headers on its include path, so nothing in agentd includes them;
 * what is needed of them stands here. The numbers are the kernel's ABI and never change. */
#ifndef AGENTD_SYS_H
#define AGENTD_SYS_H

#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif

#ifndef MADV_DONTFORK
#define MADV_DONTFORK 10
#endif

#ifndef PR_SET_NO_NEW_PRIVS
#define PR_SET_NO_NEW_PRIVS 38
#endif
#ifndef PR_CAP_AMBIENT
#define PR_CAP_AMBIENT 47
#endif
#ifndef PR_CAP_AMBIENT_CLEAR_ALL
#define PR_CAP_AMBIENT_CLEAR_ALL 4
#endif
#ifndef PR_SET_CHILD_SUBREAPER
#define PR_SET_CHILD_SUBREAPER 36
#endif

#ifndef TIOCGPTPEER
#define TIOCGPTPEER 0x5441
#endif

#ifndef __WALL
#define __WALL 0x40000000
#endif

/* keyctl(2) */
#define SYS_KEYCTL_JOIN_SESSION_KEYRING 1

/* seccomp(2) */
#define SYS_SECCOMP_SET_MODE_FILTER 1

/* struct sock_filter is 8 bytes: u16 code, u8 jt, u8 jf, u32 k. */
#define SYS_SOCK_FILTER_SIZE 8
#define SYS_BPF_MAXINSNS 4096

struct sys_sock_fprog {
    unsigned short len;
    const void *filter;
};

/* capset(2), version 3: two 32-bit halves. */
#define SYS_CAPABILITY_VERSION_3 0x20080522

struct sys_cap_header {
    uint32_t version;
    int pid;
};

struct sys_cap_data {
    uint32_t effective;
    uint32_t permitted;
    uint32_t inheritable;
};

#define SYS_CAP_KILL 5
#define SYS_CAP_SETGID 6
#define SYS_CAP_SETUID 7
#define SYS_CAP_SETPCAP 8
#define SYS_CAP_LEASE 28
#define SYS_CAP_LAST 63
#define SYS_CAP_BIT(cap) (UINT64_C(1) << (cap))

#endif
