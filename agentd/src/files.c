/* A file operation is a fork that becomes its user (file_worker.c) and a stream of the host. What
 * flows between them is what flows for a process: channel 0 into a pipe, channel 1 out of one, both
 * under credit. The answer comes over a socket of packets, of which agentd understands the first
 * byte only. */
#define _GNU_SOURCE
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent.h"
#include "boot.h"
#include "conn.h"
#include "flow.h"
#include "loop.h"
#include "streams.h"
#include "util.h"

#define WORKERS_MAX 256
/* One that was let go of has so long to clean up behind itself. */
#define CLEANUP_MS 1000

/* Lives until the child was waited for and the stream is gone. */
struct worker {
    pid_t pid; /* 0: it was */
    struct stream *stream;
    struct sink in;
    struct source out;
    struct watch control;
    struct timer kill;
    bool has_content; /* it takes some, so it may have something to clean up */
    struct buf answer;
    struct worker *next;
};

static struct worker *workers;
static size_t worker_count;

static struct worker *find(pid_t pid) {
    struct worker *w = workers;

    while (w && w->pid != pid)
        w = w->next;
    return w;
}

bool file_is_worker(pid_t pid) { return pid > 0 && find(pid); }

static void free_if_over(struct worker *w) {
    struct worker **at = &workers;

    if (w->pid || w->stream)
        return;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    worker_count--;
    timer_stop(&w->kill);
    free(w);
}

static void on_kill(struct timer *timer) {
    struct worker *w = CONTAINER_OF(timer, struct worker, kill);

    if (w->pid)
        (void)kill(w->pid, SIGKILL);
}

/* The stream is gone or about to be: the worker has nobody to work for. */
static void let_go(struct worker *w) {
    w->stream = NULL;
    sink_free(&w->in);
    source_free(&w->out);
    watch_close(&w->control);
    buf_free(&w->answer);
    if (w->pid && w->has_content)
        timer_set(&w->kill, now_ms() + CLEANUP_MS);
    else if (w->pid)
        (void)kill(w->pid, SIGKILL);
    free_if_over(w);
}

bool file_worker_waited(pid_t pid, int status) {
    struct worker *w = find(pid);

    if (!w)
        return false;
    if (WIFSTOPPED(status)) {
        (void)kill(pid, SIGCONT);
        return true;
    }
    w->pid = 0;
    timer_stop(&w->kill);
    free_if_over(w);
    return true;
}

/* ---- the answer ---- */

static void check(struct worker *w) {
    bool failed = w->answer.len && w->answer.data[0] == FILE_ANSWER_ERROR;
    struct stream *stream = w->stream;

    /* What it sent before it failed is part of what is told. */
    if (!stream || !w->answer.len || !w->out.eof || !source_all_sent(&w->out))
        return;
    conn_send(stream->id, failed ? FRAME_ERROR : FRAME_END, w->answer.data + 1,
              w->answer.len - 1);
    stream_drop(stream);
    let_go(w);
}

static void on_out(struct source *source) { check(CONTAINER_OF(source, struct worker, out)); }

static void on_control(struct watch *watch, uint32_t events) {
    struct worker *w = CONTAINER_OF(watch, struct worker, control);
    uint8_t packet[FILE_ANSWER_MAX];
    ssize_t n = recv(watch->fd, packet, sizeof(packet), MSG_DONTWAIT);

    (void)events;
    /* It has not read what was sent to it; its answer is still there. */
    if (n < 0 && errno == ECONNRESET)
        n = recv(watch->fd, packet, sizeof(packet), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    watch_close(watch);
    if (n <= 1) {
        struct stream *stream = w->stream;

        /* It ended without a word: a guest has killed it, or the kernel for want of memory. */
        stream_error(stream, "ECANCELED", "the worker was killed");
        let_go(w);
        return;
    }
    buf_add(&w->answer, packet, (size_t)n);
    check(w);
}

/* ---- frames of the host ---- */

static int on_data(struct stream *stream, uint8_t channel, const uint8_t *bytes, size_t n) {
    struct worker *w = stream->owner;

    return channel == CHANNEL_IN ? sink_data(&w->in, bytes, n) : -1;
}

static int on_credit(struct stream *stream, uint8_t channel, uint32_t bytes) {
    struct worker *w = stream->owner;

    if (channel != CHANNEL_OUT)
        return -1;
    source_credit(&w->out, bytes);
    return 0;
}

static int on_host_control(struct stream *stream, const struct mp_value *map) {
    struct worker *w = stream->owner;
    uint64_t all = w->in.queue.end;
    bool eof = false;

    if (mp_get_bool(map, "eof", &eof) == MP_WRONG)
        return -1;
    if (eof && !w->in.eof && w->control.fd >= 0) {
        /* Before the pipe is closed: an end of file without it means "nothing of this counts". */
        (void)!send(w->control.fd, &all, sizeof(all), MSG_NOSIGNAL | MSG_DONTWAIT);
        sink_eof(&w->in);
    }
    return 0;
}

static void on_lost(struct stream *stream) { let_go(stream->owner); }

static const struct stream_ops worker_stream = {
    .data = on_data,
    .credit = on_credit,
    .control = on_host_control,
    .lost = on_lost,
};

/* ---- the beginning ---- */

/* Descriptors of a start: the worker's ends, and ours. */
struct ends {
    int in, out, control;
    int our_in, our_out, our_control;
};

static void close_ends(const int *fds, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
}

static bool gives_content(enum file_op op) {
    return op == FILE_READ || op == FILE_LIST || op == TREE_READ || op == FILE_WATCH;
}

static bool takes_content(enum file_op op) { return op == FILE_WRITE || op == TREE_WRITE; }

static int make_ends(enum file_op op, struct ends *ends) {
    int in[2] = {-1, -1}, out[2] = {-1, -1}, control[2] = {-1, -1};

    if ((takes_content(op) && (pipe2(in, O_CLOEXEC) < 0 || set_nonblocking(in[1]) < 0)) ||
        (gives_content(op) && (pipe2(out, O_CLOEXEC) < 0 || set_nonblocking(out[0]) < 0)) ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) < 0) {
        int err = errno;

        close_ends(in, 2);
        close_ends(out, 2);
        close_ends(control, 2);
        return err;
    }
    *ends = (struct ends){in[0], out[1], control[1], in[1], out[0], control[0]};
    return 0;
}

static struct worker *new_worker(const struct file_request *r, const struct ends *ends) {
    struct worker *w = xcalloc(1, sizeof(*w));

    w->has_content = takes_content(r->op);
    w->kill.fn = on_kill;
    w->control = (struct watch){.fd = ends->our_control, .fn = on_control};
    sink_init(&w->in, ends->our_in);
    source_init(&w->out, ends->our_out, CHANNEL_OUT,
                r->window < SPOOL_CHUNK ? SPOOL_CHUNK : r->window, false, on_out);
    w->next = workers;
    workers = w;
    worker_count++;
    return w;
}

static void start(uint32_t id, const struct file_request *r) {
    struct ends ends = {-1, -1, -1, -1, -1, -1};
    struct worker *w;
    int err = make_ends(r->op, &ends);

    if (err) {
        answer_error(id, errno_name(err), "no descriptors for a worker");
        return;
    }
    w = new_worker(r, &ends);
    w->stream = stream_open(id, &worker_stream, w);
    w->pid = w->stream ? fork() : 0;
    if (w->stream && w->pid == 0)
        file_worker_main(r, ends.in, ends.out, ends.control);
    err = errno;
    close_ends((int[]){ends.in, ends.out, ends.control}, 3);
    if (!w->stream || w->pid < 0) {
        if (w->stream)
            stream_error(w->stream, errno_name(err), "no process for a worker");
        else
            answer_error(id, "busy", "too many streams");
        w->pid = 0;
        let_go(w);
        return;
    }
    sink_attach(&w->in, w->stream);
    source_attach(&w->out, w->stream, 0, r->window);
    watch_set(&w->control, EPOLLIN);
    source_start(&w->out);
}

void op_file(uint32_t id, const struct mp_value *map) {
    struct file_request r;
    CLEANUP_FREE char *user = NULL;
    const char *wrong = file_request_parse(map, &r, &user);
    const char *who;

    if (wrong) {
        answer_error(id, "bad_request", wrong);
        return;
    }
    who = user ? user : boot.user;
    if (!who && boot.single_uid > 0)
        r.user.uid = r.user.gid = (uint32_t)boot.single_uid;
    if (agent_is_ending())
        answer_error(id, "refused", "the sandbox is shutting down");
    else if (worker_count >= WORKERS_MAX)
        answer_error(id, "busy", "too many file operations");
    else if (who && user_resolve(who, boot.single_uid, &r.user))
        answer_error(id, "no_such_user", "the sandbox has no such user");
    else
        start(id, &r);
    file_request_free(&r);
}
