/* System calls that would change the machine or the sandbox's own walls.
 *
 * "ok" or an error about the arguments means that the call got past the filter and past the rights.
 * Each has arguments the kernel refuses after it has looked at the rights, or such as act on this
 * process alone: a namespace that ends with it, a descriptor that is closed with it. */
#define _GNU_SOURCE
#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/timex.h>
#include <termios.h>
#include <unistd.h>

#include "launch_sys.h"
#include "sys.h"

/* Calls that this architecture has not: the number of none. */
#ifndef SYS_iopl
#define SYS_iopl (-1)
#endif
#ifndef SYS_ioperm
#define SYS_ioperm (-1)
#endif
#ifndef SYS_modify_ldt
#define SYS_modify_ldt (-1)
#endif
#ifndef SYS_ustat
#define SYS_ustat (-1)
#endif
#ifndef SYS_sysfs
#define SYS_sysfs (-1)
#endif
#ifndef SYS_nfsservctl
#define SYS_nfsservctl (-1)
#endif
#ifndef SYS_lookup_dcookie
#define SYS_lookup_dcookie (-1)
#endif
#ifndef SYS_kexec_file_load
#define SYS_kexec_file_load (-1)
#endif
/* Younger than some libc; the same number everywhere. */
#ifndef SYS_io_uring_setup
#define SYS_io_uring_setup 425
#endif
#ifndef SYS_fspick
#define SYS_fspick 433
#endif
#ifndef SYS_clone3
#define SYS_clone3 435
#endif
#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif
#ifndef SYS_quotactl_fd
#define SYS_quotactl_fd 443
#endif
#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
#endif
#ifndef SYS_statmount
#define SYS_statmount 457
#endif
#ifndef SYS_listmount
#define SYS_listmount 458
#endif
#ifndef SYS_lsm_list_modules
#define SYS_lsm_list_modules 461
#endif
#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif
#ifndef CLONE_NEWCGROUP
#define CLONE_NEWCGROUP 0x02000000
#endif

#define NOWHERE "/nonexistent/agentkernel-probe"
#define AT(thing) ((long)(thing))
#define NO_REBOOT_MAGIC 0x12345678

static uint64_t zeros[64];
static uint64_t scratch[64];
/* A performance counter that counts nothing: software, dummy, of user space only. */
static uint64_t dummy_event[8] = {1 | UINT64_C(64) << 32, 9, 0, 0, 0, 0x60};
/* An array of one word, for bpf(BPF_MAP_CREATE): type, key size, value size, entries. */
static uint32_t small_map[18] = {2, 4, 4, 1};
/* A tick that no clock takes; who may not set clocks is told so before. */
static struct timex no_tick = {.modes = 0x4000};
static struct timex no_tick_either = {.modes = 0x4000};

static void try_call(struct probe_answer *answer, const struct probe_try *self) {
    const long *a = self->args;

    answer_result(answer, syscall(self->number, a[0], a[1], a[2], a[3], a[4], a[5]));
}

static void try_unshare(struct probe_answer *answer, const struct probe_try *self) {
    answer_result(answer, syscall(SYS_unshare, self->number));
}

/* The same wish by another door: a child that would begin in a new namespace. */
static void try_clone(struct probe_answer *answer, const struct probe_try *self) {
    long child = syscall(SYS_clone, self->number | SIGCHLD, 0, 0, 0, 0);

    if (child == 0)
        _exit(0);
    answer_result(answer, child);
}

/* Into the namespace we are in: whoever may do that may join namespaces. */
static void try_setns(struct probe_answer *answer, const struct probe_try *self) {
    int fd = open("/proc/self/ns/uts", O_RDONLY | O_CLOEXEC);

    answer_result(answer, fd < 0 ? fd : syscall(SYS_setns, fd, self->number));
}

static void try_file_handle(struct probe_answer *answer, const struct probe_try *self) {
    struct {
        uint32_t size;
        int type;
        unsigned char bytes[8];
    } handle = {.size = 8, .type = 1};
    int root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    (void)self;
    answer_result(answer, root < 0 ? root : syscall(SYS_open_by_handle_at, root, &handle, O_RDONLY));
}

/* Without a terminal of its own a process hangs up none. */
static void try_vhangup(struct probe_answer *answer, const struct probe_try *self) {
    (void)self;
    if (setsid() < 0)
        return answer_word(answer, "timeout");
    answer_result(answer, syscall(SYS_vhangup));
}

/* On a pseudo-terminal that only this process has. */
static void try_terminal(struct probe_answer *answer, const struct probe_try *self) {
    int ours = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC), theirs = -1;
    int discipline = 0;
    char letter = 'x';

    if (ours < 0 || grantpt(ours) < 0 || unlockpt(ours) < 0)
        return answer_word(answer, "none");
    setsid();
    theirs = ioctl(ours, TIOCGPTPEER, O_RDWR);
    if (theirs < 0)
        return answer_word(answer, "none");
    (void)ioctl(theirs, TIOCSCTTY, 0);
    if (self->number == TIOCSTI)
        answer_result(answer, ioctl(theirs, TIOCSTI, &letter));
    else
        answer_result(answer, ioctl(theirs, (unsigned long)self->number, &discipline));
}

/* getpid() by the door of 32-bit programs. */
static void try_other_abi(struct probe_answer *answer, const struct probe_try *self) {
    (void)self;
#if defined(__x86_64__)
    long result = 20;

    __asm__ volatile("int $0x80" : "+a"(result) : : "memory", "r8", "r9", "r10", "r11");
    errno = result < 0 ? (int)-result : 0;
    answer_result(answer, result);
#else
    answer_word(answer, "none");
#endif
}

static void try_x32(struct probe_answer *answer, const struct probe_try *self) {
    (void)self;
#if defined(__x86_64__)
    answer_result(answer, syscall(0x40000000L + SYS_getpid));
#else
    answer_word(answer, "none");
#endif
}

#define CALL(name, number, ...)                                                                   \
    { name, try_call, NULL, number, { __VA_ARGS__ } }

const struct probe_try probe_calls[] = {
    /* No type of file system: refused after the right to mount was looked at. */
    CALL("call.mount", SYS_mount, AT("none"), AT("/"), 0, 0, 0),
    /* No mount point, and flags that exclude each other. */
    CALL("call.umount2", SYS_umount2, AT("/proc/self/comm"), MNT_EXPIRE | MNT_FORCE),
    CALL("call.pivot_root", SYS_pivot_root, AT(NOWHERE), AT(NOWHERE)),
    CALL("call.chroot", SYS_chroot, AT("/")),
    CALL("call.fsopen", SYS_fsopen, 0, 0),
    CALL("call.fspick", SYS_fspick, -1, AT(NOWHERE), 0),
    CALL("call.open_tree", SYS_open_tree, AT_FDCWD, AT("/"), OPEN_TREE_CLONE),
    CALL("call.move_mount", SYS_move_mount, -1, AT(NOWHERE), -1, AT(NOWHERE), 0),
    CALL("call.mount_setattr", SYS_mount_setattr, -1, AT(NOWHERE), 0, AT(zeros), 32),
    CALL("call.listmount", SYS_listmount, AT(zeros), AT(scratch), 1, 0),
    CALL("call.statmount", SYS_statmount, AT(zeros), AT(scratch), sizeof scratch, 0),
    {"call.setns", try_setns, NULL, CLONE_NEWUTS, {0}},
    {"call.unshare_user", try_unshare, NULL, CLONE_NEWUSER, {0}},
    {"call.unshare_mnt", try_unshare, NULL, CLONE_NEWNS, {0}},
    {"call.unshare_pid", try_unshare, NULL, CLONE_NEWPID, {0}},
    {"call.unshare_net", try_unshare, NULL, CLONE_NEWNET, {0}},
    {"call.unshare_ipc", try_unshare, NULL, CLONE_NEWIPC, {0}},
    {"call.unshare_uts", try_unshare, NULL, CLONE_NEWUTS, {0}},
    {"call.unshare_cgroup", try_unshare, NULL, CLONE_NEWCGROUP, {0}},
    {"call.unshare_time", try_unshare, NULL, CLONE_NEWTIME, {0}},
    {"call.clone_user", try_clone, NULL, CLONE_NEWUSER, {0}},
    CALL("call.clone3", SYS_clone3, 0, 0),
    CALL("call.bpf", SYS_bpf, 0, AT(small_map), sizeof small_map),
    CALL("call.perf_event_open", SYS_perf_event_open, AT(dummy_event), 0, -1, -1, 0),
    CALL("call.userfaultfd", SYS_userfaultfd, O_CLOEXEC | 1),
    CALL("call.io_uring_setup", SYS_io_uring_setup, 1, AT(zeros)),
    CALL("call.keyctl", SYS_keyctl, 0, -3, 0),
    CALL("call.add_key", SYS_add_key, 0, 0, 0, 0, 0),
    CALL("call.request_key", SYS_request_key, 0, 0, 0, 0),
    /* Flags that do not exist, so that not even an image that is loaded is unloaded. */
    CALL("call.kexec_load", SYS_kexec_load, 0, 1 << 20, 0, 0xff00),
    CALL("call.kexec_file_load", SYS_kexec_file_load, -1, -1, 0, 0, 0xff00),
    CALL("call.init_module", SYS_init_module, 0, 0, 0),
    CALL("call.finit_module", SYS_finit_module, -1, 0, 0),
    CALL("call.delete_module", SYS_delete_module, 0, 0),
    CALL("call.reboot", SYS_reboot, NO_REBOOT_MAGIC, NO_REBOOT_MAGIC, 0, 0),
    CALL("call.swapon", SYS_swapon, AT(NOWHERE), 0),
    CALL("call.swapoff", SYS_swapoff, AT(NOWHERE)),
    CALL("call.acct", SYS_acct, AT(NOWHERE)),
    CALL("call.quotactl", SYS_quotactl, 0x80000400, 0, 0, 0),
    CALL("call.quotactl_fd", SYS_quotactl_fd, -1, 0x80000400, 0, 0),
    /* Neither a time nor a zone: nothing is set. */
    CALL("call.settimeofday", SYS_settimeofday, 0, 0),
    CALL("call.clock_settime", SYS_clock_settime, 0, 0),
    CALL("call.adjtimex", SYS_adjtimex, AT(&no_tick)),
    CALL("call.clock_adjtime", SYS_clock_adjtime, 0, AT(&no_tick_either)),
    CALL("call.sethostname", SYS_sethostname, AT(""), -1),
    CALL("call.setdomainname", SYS_setdomainname, AT(""), -1),
    CALL("call.iopl", SYS_iopl, 3),
    CALL("call.ioperm", SYS_ioperm, 0x80, 1, 1),
    CALL("call.modify_ldt", SYS_modify_ldt, 0, AT(scratch), sizeof scratch),
    CALL("call.syslog", SYS_syslog, 10, 0, 0),
    CALL("call.fanotify_init", SYS_fanotify_init, 0x200 | 1, O_RDONLY),
    CALL("call.name_to_handle_at", SYS_name_to_handle_at, AT_FDCWD, AT("/"), AT(zeros), AT(scratch), 0),
    {"call.open_by_handle_at", try_file_handle, NULL, 0, {0}},
    CALL("call.memfd_secret", SYS_memfd_secret, 0),
    CALL("call.lsm_list_modules", SYS_lsm_list_modules, 0, 0, 0),
    CALL("call.process_madvise", SYS_process_madvise, -1, 0, 0, 0, 0),
    CALL("call.move_pages", SYS_move_pages, 0, 0, 0, 0, 0, 0),
    CALL("call.personality_no_random", SYS_personality, 0x0040000),
    CALL("call.personality_read_exec", SYS_personality, 0x0400000),
    CALL("call.ptrace", SYS_ptrace, PTRACE_TRACEME, 0, 0, 0),
    {"call.vhangup", try_vhangup, NULL, 0, {0}},
    CALL("call.nfsservctl", SYS_nfsservctl, -1, 0, 0),
    CALL("call.ustat", SYS_ustat, 0, 0),
    CALL("call.sysfs", SYS_sysfs, 3),
    CALL("call.lookup_dcookie", SYS_lookup_dcookie, 0, 0, 0),
    {"call.tiocsti", try_terminal, NULL, TIOCSTI, {0}},
    {"call.tiocsetd", try_terminal, NULL, TIOCSETD, {0}},
    {"call.int80", try_other_abi, NULL, 0, {0}},
    {"call.x32", try_x32, NULL, 0, {0}},
    {0},
};
