/* See layer_filter.h. The root file system is the first wall around an archive; should this program
 * itself have a fault that an archive can use, the calls that would lead on from there are not there:
 * no signals, no sockets, no tracing, no mounts, no handles, no programs. */
#define _GNU_SOURCE
#include "layer_filter.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include "sys.h"
#include "util.h"

#if defined(__x86_64__)
#define ARCHITECTURE 0xC000003Eu
#elif defined(__aarch64__)
#define ARCHITECTURE 0xC00000B7u
#else
#error "no audit number for this architecture"
#endif

/* linux/bpf_common.h, linux/seccomp.h: ABI. */
enum { LOAD = 0x20, JUMP_EQUAL = 0x15, RETURN = 0x06 };
enum { OFFSET_NUMBER = 0, OFFSET_ARCHITECTURE = 4 };
#define ALLOW 0x7fff0000u
#define FAIL (0x00050000u | EPERM)
#define KILL_PROCESS 0x80000000u

struct instruction {
    uint16_t code;
    uint8_t if_true, if_false;
    uint32_t value;
};

/* What libcs make of the calls that we use, each in its own way. */
static const int allowed[] = {
    SYS_read, SYS_readv, SYS_write, SYS_writev, SYS_lseek, SYS_openat, SYS_close, SYS_fcntl, SYS_dup3,
    SYS_fstat, SYS_newfstatat, SYS_statx, SYS_getdents64, SYS_readlinkat, SYS_mkdirat, SYS_mknodat,
    SYS_symlinkat, SYS_linkat, SYS_unlinkat, SYS_fchown, SYS_fchownat, SYS_fchmod, SYS_ftruncate,
    SYS_utimensat, SYS_fsetxattr, SYS_fgetxattr, SYS_flistxattr, SYS_syncfs, SYS_brk, SYS_mmap,
    SYS_munmap, SYS_mremap, SYS_madvise, SYS_mprotect, SYS_exit, SYS_exit_group, SYS_rt_sigreturn,
    SYS_restart_syscall,
#ifdef SYS_open
    SYS_open, SYS_stat, SYS_lstat,
#endif
};

bool layer_filter_install(void) {
    struct instruction program[4 + 2 * COUNT_OF(allowed) + 1];
    size_t n = 0;

    program[n++] = (struct instruction){LOAD, 0, 0, OFFSET_ARCHITECTURE};
    program[n++] = (struct instruction){JUMP_EQUAL, 1, 0, ARCHITECTURE};
    program[n++] = (struct instruction){RETURN, 0, 0, KILL_PROCESS};
    program[n++] = (struct instruction){LOAD, 0, 0, OFFSET_NUMBER};
    for (size_t i = 0; i < COUNT_OF(allowed); i++) {
        program[n++] = (struct instruction){JUMP_EQUAL, 0, 1, (uint32_t)allowed[i]};
        program[n++] = (struct instruction){RETURN, 0, 0, ALLOW};
    }
    program[n++] = (struct instruction){RETURN, 0, 0, FAIL};
    struct sys_sock_fprog filter = {.len = (unsigned short)n, .filter = program};
    return syscall(SYS_seccomp, SYS_SECCOMP_SET_MODE_FILTER, 0, &filter) == 0;
}
