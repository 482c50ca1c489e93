#define _GNU_SOURCE
#include "guard.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "caps.h"
#include "sys.h"
#include "util.h"

static void default_and_block_signals(void) {
    struct sigaction by_default = {.sa_handler = SIG_DFL};
    sigset_t all;

    /* Whoever started us may ignore some (Python does ignore SIGPIPE), which would go down to every
     * process of the sandbox. */
    for (int sig = 1; sig < NSIG; sig++)
        (void)sigaction(sig, &by_default, NULL);
    sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, NULL);
}

/* What processes get when nobody asks for a limit: not the one agentd raises for itself. */
static uint64_t inherited_nofile;

uint64_t guard_inherited_nofile(void) { return inherited_nofile; }

void guard_first(void) {
    /* Not 0: a host whose core dumps go to a program runs it for 0 too, but never for 1. */
    struct rlimit no_core = {1, 1};
    struct rlimit files;

    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        die("PR_SET_DUMPABLE");
    /* By default the kernel takes the name of a file of the host. */
    (void)prctl(PR_SET_NAME, "agentd", 0, 0, 0);
    (void)setrlimit(RLIMIT_CORE, &no_core);
    close_from(5);
    for (int fd = 3; fd < 5; fd++) {
        if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 && errno != EBADF)
            die("descriptors 3 and 4");
    }
    /* What a program opens before it has stdio becomes its stdio. */
    for (int fd = 0; fd < 3; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDWR) != fd)
            die("/dev/null");
    }
    default_and_block_signals();
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        inherited_nofile = files.rlim_cur;
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    umask(077);
    if (chdir("/") < 0)
        die("chdir /");
}

void guard_capabilities(uint64_t mask) {
    uint64_t keep = mask | SYS_CAP_BIT(SYS_CAP_SETUID) | SYS_CAP_BIT(SYS_CAP_SETGID) |
                    SYS_CAP_BIT(SYS_CAP_SETPCAP) | SYS_CAP_BIT(SYS_CAP_KILL) |
                    SYS_CAP_BIT(SYS_CAP_LEASE);

    if (!caps_limit_bounding(keep) || !caps_set(keep))
        die("capabilities");
    if (prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != 0 && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        die("PR_SET_DUMPABLE");
}

void guard_describe(struct mp_map *map) {
    int dumpable = prctl(PR_GET_DUMPABLE, 0, 0, 0, 0);

    mp_add_uint(map, "dumpable", dumpable < 0 ? 1 : (uint64_t)dumpable);
    mp_add_uint(map, "uid", getuid());
    mp_add_uint(map, "caps", caps_get().effective);
}
