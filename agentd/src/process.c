#define _GNU_SOURCE
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "boot.h"
#include "files.h"
#include "process_table.h"
#include "supervisor.h"
#include "sys.h"
#include "usage.h"
#include "util.h"

/* After the exit output is read to its end, but no longer than so. */
#define DRAIN_MS 100
#define KILL_WAIT_MS 2000

static uint64_t last_serial;
static int report_pipe_in = -1; /* the supervisors' end */
static struct watch report_pipe;
static struct watch child_signals;
static struct tree_kill orphans;

static bool is_ours(pid_t pid) { return process_find_supervised(pid) || file_is_worker(pid); }

/* ---- the end of a process ---- */

static void free_if_over(struct process *p) {
    if (p->recorded || p->supervisor)
        return;
    timer_stop(&p->timeout);
    timer_stop(&p->drain);
    timer_stop(&p->lost);
    tree_kill_stop(&p->kill);
    sink_free(&p->in);
    source_free(&p->out);
    source_free(&p->err);
    free(p);
}

static const char *outcome_name(enum outcome outcome) {
    static const char *const names[] = {
        [OUTCOME_EXITED] = "exited",
        [OUTCOME_SIGNALED] = "signaled",
        [OUTCOME_TIMEOUT] = "timeout",
        [OUTCOME_NOT_STARTED] = "not_started",
    };

    return names[outcome];
}

void process_describe_end(const struct process *p, struct mp_map *map) {
    mp_add_str(map, "outcome", outcome_name(p->outcome));
    if (p->outcome == OUTCOME_EXITED)
        mp_add_uint(map, "code", (uint64_t)p->code);
    if (p->outcome == OUTCOME_SIGNALED)
        mp_add_uint(map, "signal", (uint64_t)p->code);
    if (p->outcome == OUTCOME_NOT_STARTED) {
        mp_add_str(map, "errno", errno_name(p->start_err));
        mp_add_str(map, "stage", stage_name(p->start_stage));
    }
    mp_add_uint(map, "out", p->out.spool.end);
    mp_add_uint(map, "err", p->err.spool.end);
    mp_add_uint(map, "out_dropped", p->job ? p->out.spool.base : 0);
    mp_add_uint(map, "err_dropped", p->job ? p->err.spool.base : 0);
    if (p->usage.known) {
        mp_add_uint(map, "cpu_us", p->usage.cpu_us);
        mp_add_uint(map, "max_rss_kb", p->usage.max_rss_kb);
        mp_add_uint(map, "written_kb", p->usage.written_kb);
    }
    usage_describe_full(p->full, map);
}

static bool is_drained(const struct source *s, uint64_t mark, int64_t until) {
    return s->eof || (s->spool.end >= mark && now_ms() >= until);
}

static void finish(struct process *p) {
    p->state = PROCESS_ENDED;
    timer_stop(&p->timeout);
    timer_stop(&p->drain);
    source_discard(&p->out);
    source_discard(&p->err);
    sink_free(&p->in);
}

static void send_end(struct process *p) {
    CLEANUP_BUF struct buf b = {0};
    struct mp_map map = mp_open(&b);
    struct stream *stream = p->stream;

    process_describe_end(p, &map);
    p->stream = NULL;
    source_detach(&p->out);
    source_detach(&p->err);
    stream_end(stream, &b);
}

void process_check(struct process *p) {
    if (p->state == PROCESS_DRAINING && is_drained(&p->out, p->out_mark, p->drain_until) &&
        is_drained(&p->err, p->err_mark, p->drain_until)) {
        if (p->kill.active && now_ms() < p->kill_until)
            timer_set(&p->drain, p->kill_until);
        else
            finish(p);
    }
    if (p->state == PROCESS_ENDED && p->stream && source_all_sent(&p->out) &&
        source_all_sent(&p->err)) {
        send_end(p);
        if (p->recorded && (!p->job || p->outcome == OUTCOME_NOT_STARTED)) {
            process_forget(p);
            return;
        }
    }
    if (p->state == PROCESS_ENDED && !p->supervisor) {
        watch_close(&p->out.watch);
        watch_close(&p->err.watch);
    }
    free_if_over(p);
}

void process_forget(struct process *p) {
    if (p->recorded)
        process_remove_record(p);
    timer_stop(&p->lost);
    /* What is still written is read and thrown away. */
    if (p->state == PROCESS_ENDED) {
        spool_clear(&p->out.spool);
        spool_clear(&p->err.spool);
    }
    free_if_over(p);
}

/* ---- streams ---- */

void process_attach(struct process *p, struct stream *stream, uint64_t out, uint64_t err,
                    uint64_t window) {
    p->stream = stream;
    timer_stop(&p->lost);
    source_attach(&p->out, stream, out, window);
    source_attach(&p->err, stream, err, window);
    sink_attach(&p->in, stream);
}

void process_detach(struct process *p) {
    source_detach(&p->out);
    source_detach(&p->err);
    p->in.stream = NULL;
    p->stream = NULL;
    if (!p->job)
        timer_set(&p->lost, now_ms() + (int64_t)p->lost_ms);
}

/* ---- killing ---- */

void process_signal(struct process *p, int sig) {
    if (p->state == PROCESS_STARTING)
        p->early_signals |= UINT64_C(1) << (sig - 1);
    else if (p->state == PROCESS_RUNNING)
        (void)kill(-p->pid, sig);
}

void process_kill(struct process *p) {
    if (!p->supervisor)
        return;
    p->kill.supervisor = p->supervisor;
    p->kill_until = now_ms() + KILL_WAIT_MS;
    tree_kill_start(&p->kill);
}

static void on_timeout(struct timer *timer) {
    struct process *p = CONTAINER_OF(timer, struct process, timeout);

    p->timed_out = true;
    process_kill(p);
}

static void on_lost(struct timer *timer) {
    struct process *p = CONTAINER_OF(timer, struct process, lost);

    if (p->state != PROCESS_ENDED)
        process_kill(p);
    process_forget(p);
}

static void on_drain(struct timer *timer) {
    process_check(CONTAINER_OF(timer, struct process, drain));
}

static void on_out(struct source *source) {
    process_check(CONTAINER_OF(source, struct process, out));
}

static void on_err(struct source *source) {
    process_check(CONTAINER_OF(source, struct process, err));
}

/* ---- what supervisors say ---- */

static void write_oom_score_adj(pid_t pid) {
    /* Where uid 0 does not exist, the child could not open its own file: see spawn.c. */
    char path[48], text[8];
    CLEANUP_CLOSE int fd = -1;

    if (!boot.has_oom_score_adj || boot.single_uid <= 0)
        return;
    snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", (int)pid);
    fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0)
        (void)!write(fd, text, (size_t)snprintf(text, sizeof(text), "%d", (int)boot.oom_score_adj));
}

static void on_started(struct process *p, pid_t pid) {
    CLEANUP_BUF struct buf b = {0};
    struct mp_map map = mp_open(&b);

    p->pid = pid;
    p->state = PROCESS_RUNNING;
    write_oom_score_adj(pid);
    if (p->stream) {
        mp_add_str(&map, "ev", "started");
        mp_add_uint(&map, "pid", (uint64_t)pid);
        stream_control(p->stream, &b);
    }
    source_start(&p->out);
    source_start(&p->err);
    for (int sig = 1; sig <= 64; sig++) {
        if (p->early_signals >> (sig - 1) & 1)
            process_signal(p, sig);
    }
}

static uint64_t mark(const struct source *s) {
    int waiting = 0;

    if (s->watch.fd >= 0 && ioctl(s->watch.fd, FIONREAD, &waiting) == 0 && waiting > 0)
        return s->spool.end + (uint64_t)waiting;
    return s->spool.end;
}

/* The process is over; its outcome is set. */
static void begin_drain(struct process *p) {
    p->state = PROCESS_DRAINING;
    timer_stop(&p->timeout);
    p->out_mark = mark(&p->out);
    p->err_mark = mark(&p->err);
    p->drain_until = now_ms() + DRAIN_MS;
    timer_set(&p->drain, p->drain_until);
    for (int turns = 0; turns < 4 && source_read(&p->out); turns++)
        continue;
    for (int turns = 0; turns < 4 && source_read(&p->err); turns++)
        continue;
    process_check(p);
}

static void on_exited(struct process *p, const struct report *r) {
    p->usage = r->usage;
    p->full = usage_full();
    if (p->timed_out) {
        p->outcome = OUTCOME_TIMEOUT;
    } else if (WIFEXITED(r->status)) {
        p->outcome = OUTCOME_EXITED;
        p->code = WEXITSTATUS(r->status);
    } else {
        p->outcome = OUTCOME_SIGNALED;
        p->code = WTERMSIG(r->status);
    }
    begin_drain(p);
}

static void on_not_started(struct process *p, int err, enum stage stage) {
    p->outcome = OUTCOME_NOT_STARTED;
    p->start_err = err;
    p->start_stage = stage;
    finish(p);
    process_check(p);
}

static void take_reports(void) {
    struct report r;

    while (read(report_pipe.fd, &r, sizeof(r)) == sizeof(r)) {
        struct process *p = process_find_supervised(r.supervisor);

        if (!p || p->serial != r.serial)
            continue;
        if (r.kind == REPORT_STARTED && p->state == PROCESS_STARTING)
            on_started(p, r.pid);
        else if (r.kind == REPORT_NOT_STARTED && p->state == PROCESS_STARTING)
            on_not_started(p, r.err, (enum stage)r.stage);
        else if (r.kind == REPORT_EXITED && p->state == PROCESS_RUNNING)
            on_exited(p, &r);
    }
}

static void on_report(struct watch *watch, uint32_t events) {
    (void)watch;
    (void)events;
    take_reports();
}

/* A supervisor ends when nothing of its tree is left, or because a guest has killed it. Then what
 * it kept is now below PID 1 with nobody to tell whose it was, and is killed; the process, if it
 * had not exited before, has no status that anybody saw, and counts as killed, which it is. */
static void on_supervisor_gone(struct process *p, int status) {
    bool killed = WIFSIGNALED(status);

    process_remove_supervisor(p);
    tree_kill_stop(&p->kill);
    if (killed)
        tree_kill_start(&orphans);
    if (p->state == PROCESS_STARTING && !killed) {
        on_not_started(p, EAGAIN, STAGE_FORK);
    } else if (p->state == PROCESS_STARTING || p->state == PROCESS_RUNNING) {
        p->outcome = p->timed_out ? OUTCOME_TIMEOUT : OUTCOME_SIGNALED;
        p->code = SIGKILL;
        begin_drain(p);
    } else {
        process_check(p);
    }
}

static void reap(void) {
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED | __WALL)) > 0) {
        struct process *p = process_find_supervised(pid);

        if (!p) {
            (void)file_worker_waited(pid, status); /* or an orphan */
            continue;
        }
        if (WIFSTOPPED(status)) {
            (void)kill(pid, SIGCONT);
            continue;
        }
        /* What it said last is in the pipe. */
        take_reports();
        p = process_find_supervised(pid);
        if (p)
            on_supervisor_gone(p, status);
    }
}

static void on_child_signal(struct watch *watch, uint32_t events) {
    struct signalfd_siginfo info;

    (void)events;
    while (read(watch->fd, &info, sizeof(info)) == sizeof(info))
        continue;
    reap();
}

bool process_any_left(void) { return process_any_unfinished() || orphans.active; }

/* ---- the beginning ---- */

int process_start(struct process *p, const struct spawn *spawn, uint64_t timeout_ms) {
    p->serial = ++last_serial;
    p->timeout.fn = on_timeout;
    p->drain.fn = on_drain;
    p->lost.fn = on_lost;
    p->out.changed = on_out;
    p->err.changed = on_err;
    p->supervisor = supervisor_start(spawn, p->serial, report_pipe_in);
    if (p->supervisor < 0) {
        p->supervisor = 0;
        return errno;
    }
    process_add(p);
    if (timeout_ms)
        timer_set(&p->timeout, now_ms() + (int64_t)timeout_ms);
    return 0;
}

void process_init(void) {
    int fds[2];
    sigset_t child;

    if (pipe2(fds, O_CLOEXEC) < 0 || set_nonblocking(fds[0]) < 0)
        die("report pipe");
    report_pipe_in = fds[1];
    report_pipe = (struct watch){.fd = fds[0], .fn = on_report};
    watch_set(&report_pipe, EPOLLIN);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    child_signals = (struct watch){
        .fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK),
        .fn = on_child_signal,
    };
    if (child_signals.fd < 0)
        die("signalfd");
    watch_set(&child_signals, EPOLLIN);
    tree_init(is_ours);
}
