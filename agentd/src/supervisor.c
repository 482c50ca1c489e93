/* A supervisor is the reaper of everything its process leaves behind: children that called setsid
 * or forked twice become its children, so the process's whole tree stays below it for as long as
 * it lives. It reports and waits, nothing else. All signals that can be blocked are, so a guest's
 * `kill -1` only reaches it as SIGKILL or SIGSTOP; agentd sees both, undoes the second, and treats
 * the first as the end of the tree. */
#define _GNU_SOURCE
#include "supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sys.h"
#include "util.h"

#define REPORT_FD 3

static void report(struct report r) {
    r.supervisor = getpid();
    (void)write_all(REPORT_FD, &r, sizeof(r));
}

static __attribute__((noreturn)) void not_started(uint64_t serial, int err, int stage) {
    report((struct report){
        .serial = serial, .kind = REPORT_NOT_STARTED, .err = err, .stage = stage});
    _exit(0);
}

static uint64_t microseconds(struct timeval t) {
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_usec;
}

static struct usage usage_so_far(void) {
    struct rusage usage;

    if (getrusage(RUSAGE_CHILDREN, &usage) < 0)
        return (struct usage){0};
    return (struct usage){
        .known = true,
        .cpu_us = microseconds(usage.ru_utime) + microseconds(usage.ru_stime),
        .max_rss_kb = (uint64_t)usage.ru_maxrss,
        .written_kb = (uint64_t)usage.ru_oublock / 2,
    };
}

static __attribute__((noreturn)) void wait_for_all(uint64_t serial, pid_t main_pid) {
    for (;;) {
        int status;
        /* __WALL: a child that was cloned to send another signal than SIGCHLD, too. */
        pid_t pid = waitpid(-1, &status, __WALL);

        if (pid == main_pid)
            report((struct report){
                .serial = serial,
                .kind = REPORT_EXITED,
                .status = status,
                .usage = usage_so_far(),
            });
        else if (pid < 0 && errno != EINTR)
            _exit(0);
    }
}

static __attribute__((noreturn)) void supervise(const struct spawn *spawn, uint64_t serial,
                                                int report_fd) {
    struct spawn_failure failure;
    int error_pipe[2];
    ssize_t n;
    pid_t pid;

    (void)prctl(PR_SET_NAME, "supervisor", 0, 0, 0);
    /* Of agentd's descriptors the report pipe stays, and stdio until the process has it. */
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0 ||
        dup3(report_fd, REPORT_FD, O_CLOEXEC) < 0)
        _exit(70);
    if (dup2(spawn->in, 0) < 0 || dup2(spawn->out, 1) < 0 || dup2(spawn->err, 2) < 0)
        not_started(serial, errno, STAGE_LIMITS);
    close_from(REPORT_FD + 1);
    if (pipe2(error_pipe, O_CLOEXEC) < 0)
        not_started(serial, errno, STAGE_LIMITS);
    /* With vfork the child borrows our memory until it executes, which saves copying it; we wait,
     * and it leaves this frame only by exec or exit. Both are alone in it, and neither reads what
     * the other has written but through the pipe. */
    pid = vfork();
    if (pid < 0)
        not_started(serial, errno, STAGE_FORK);
    if (pid == 0) {
        if (dup3(error_pipe[1], REPORT_FD, O_CLOEXEC) < 0)
            _exit(127);
        close_from(REPORT_FD + 1);
        spawn_become(spawn, REPORT_FD);
    }
    /* The child's change of credentials may have reset this for the memory we share. */
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        _exit(70);
    close(error_pipe[1]);
    for (int fd = 0; fd < 3; fd++)
        close(fd);
    do
        n = read(error_pipe[0], &failure, sizeof(failure));
    while (n < 0 && errno == EINTR);
    close(error_pipe[0]);
    if (n == sizeof(failure)) {
        (void)waitpid(pid, NULL, 0);
        not_started(serial, failure.err, failure.stage);
    }
    report((struct report){.serial = serial, .kind = REPORT_STARTED, .pid = pid});
    wait_for_all(serial, pid);
}

pid_t supervisor_start(const struct spawn *spawn, uint64_t serial, int report_fd) {
    pid_t pid = fork();

    if (pid == 0)
        supervise(spawn, serial, report_fd);
    return pid;
}
