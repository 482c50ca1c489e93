/* The child between fork and exec.
 *
 * Until the exec it is a copy of agentd: not dumpable and with capabilities that no process of the
 * sandbox has, so nobody can look into it. Every step takes something away, in an order in which
 * what a step needs is still there: groups before uid before capabilities, the filter last, because
 * it may forbid every step before it. */
#define _GNU_SOURCE
#include "spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "boot.h"
#include "caps.h"
#include "guard.h"
#include "path_search.h"
#include "sys.h"
#include "util.h"

const char *stage_name(enum stage stage) {
    static const char *const names[] = {
        [STAGE_USER] = "user",     [STAGE_CWD] = "cwd",
        [STAGE_PTY] = "pty",       [STAGE_LIMITS] = "limits",
        [STAGE_FORK] = "fork",     [STAGE_CONFINE] = "confine",
        [STAGE_EXEC] = "exec",
    };

    return (size_t)stage < COUNT_OF(names) ? names[stage] : "exec";
}

static __attribute__((noreturn)) void fail_with(int error_fd, enum stage stage, int err) {
    struct spawn_failure failure = {.err = err, .stage = (int)stage};

    (void)!write(error_fd, &failure, sizeof(failure));
    _exit(127);
}

static void set_oom_score_adj(void) {
    char text[8];
    int value = (int)boot.oom_score_adj;
    size_t n = sizeof(text);
    uid_t before;
    int fd;

    if (!boot.has_oom_score_adj)
        return;
    for (int rest = value < 0 ? -value : value; n == sizeof(text) || rest; rest /= 10)
        text[--n] = (char)('0' + rest % 10);
    if (value < 0)
        text[--n] = '-';
    /* The files of a process that is not dumpable belong to the namespace's root. */
    before = (uid_t)setfsuid(0);
    fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    (void)setfsuid(before);
    if (fd < 0)
        return;
    (void)!write(fd, text + n, sizeof(text) - n);
    close(fd);
}

/* An explicit limit holds or the start fails; a default goes as far as it may. */
static bool limit(int resource, uint64_t value, bool explicitly) {
    struct rlimit old, new = {value, value};

    if (getrlimit(resource, &old) < 0)
        return false;
    if (old.rlim_max != RLIM_INFINITY && value > old.rlim_max) {
        if (explicitly) {
            errno = EPERM;
            return false;
        }
        new.rlim_cur = new.rlim_max = old.rlim_max;
    }
    return setrlimit(resource, &new) == 0;
}

static bool set_limits(uint64_t nofile) {
    struct rlimit no_core = {1, 1}; /* see guard.c; seccomp keeps it so */
    struct rlimit files;

    if (nofile ? !limit(RLIMIT_NOFILE, nofile, true)
               : boot.nofile && !limit(RLIMIT_NOFILE, boot.nofile, false))
        return false;
    if (!nofile && !boot.nofile && guard_inherited_nofile() &&
        getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = guard_inherited_nofile();
        if (setrlimit(RLIMIT_NOFILE, &files) < 0)
            return false;
    }
    if (boot.nproc && !limit(RLIMIT_NPROC, boot.nproc, false))
        return false;
    return setrlimit(RLIMIT_CORE, &no_core) == 0;
}

static bool become_user(const struct user_ids *user) {
    /* In a namespace of one id setgroups is denied, and there is no other group to leave. */
    if (boot.single_uid < 0 && setgroups(user->group_count, user->groups) < 0)
        return false;
    return setresgid(user->gid, user->gid, user->gid) == 0 &&
           setresuid(user->uid, user->uid, user->uid) == 0;
}

static bool enter(const char *cwd) {
    char real[PATH_MAX];

    if (chdir(cwd) < 0)
        return false;
    /* A directory outside the root, reached by some descriptor or magic link, has no path that
     * starts with a slash. */
    if (syscall(SYS_getcwd, real, sizeof(real)) < 0)
        return errno == ERANGE;
    if (real[0] != '/') {
        errno = ENOENT;
        return false;
    }
    return true;
}

static bool install_filter(void) {
    struct sys_sock_fprog program = {
        .len = (unsigned short)boot.seccomp_count,
        .filter = boot.seccomp,
    };

    return !boot.seccomp ||
           syscall(SYS_seccomp, SYS_SECCOMP_SET_MODE_FILTER, 0UL, &program) == 0;
}

static int attempt(void *context, const char *file) {
    const struct spawn *spawn = context;
    char *first = spawn->argv[0];
    int err;

    execve(file, spawn->argv, spawn->envp);
    err = errno;
    if (err != ENOEXEC)
        return err;
    /* A script without "#!": the shell reads it, as from execvp. */
    spawn->argv[-1] = (char *)(uintptr_t) "/bin/sh";
    spawn->argv[0] = (char *)(uintptr_t)file;
    execve("/bin/sh", spawn->argv - 1, spawn->envp);
    spawn->argv[0] = first;
    return ENOEXEC;
}

static const char *search_path(char *const *envp) {
    for (; *envp; envp++) {
        if (strncmp(*envp, "PATH=", 5) == 0)
            return *envp + 5;
    }
    return DEFAULT_PATH;
}

int spawn_drop_rights(const struct user_ids *user, uint64_t nofile, enum stage *stage) {
    uint64_t caps = user->uid == 0 ? boot.caps : 0;

    set_oom_score_adj();
    *stage = STAGE_LIMITS;
    if (!set_limits(nofile))
        return errno;
    umask((mode_t)boot.umask);
    (void)syscall(SYS_keyctl, SYS_KEYCTL_JOIN_SESSION_KEYRING, NULL);
    *stage = STAGE_CONFINE;
    if (!caps_limit_bounding(caps))
        return errno;
    *stage = STAGE_USER;
    if (!become_user(user))
        return errno;
    *stage = STAGE_CONFINE;
    if (!caps_set(caps))
        return errno;
    /* Where fs.suid_dumpable says so, the change of uid has made this process dumpable again. */
    return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0 ? 0 : errno;
}

int spawn_filter(void) {
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && install_filter() ? 0 : errno;
}

void spawn_become(const struct spawn *spawn, int error_fd) {
    enum stage stage;
    sigset_t none;
    int err;

    (void)setsid();
    if (spawn->pty && ioctl(0, TIOCSCTTY, 0) < 0)
        fail_with(error_fd, STAGE_PTY, errno);
    err = spawn_drop_rights(&spawn->user, spawn->nofile, &stage);
    if (err)
        fail_with(error_fd, stage, err);
    /* With the user's own rights, so that it can only start where the user may be. */
    if (!enter(spawn->cwd))
        fail_with(error_fd, STAGE_CWD, errno);
    /* Every disposition is the default already; agentd has only blocked them. */
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    err = spawn_filter();
    if (err)
        fail_with(error_fd, STAGE_CONFINE, err);
    fail_with(error_fd, STAGE_EXEC,
              path_search(spawn->argv[0], search_path(spawn->envp), attempt,
                          (void *)(uintptr_t)spawn));
}
