/* The operations on processes: exec, attach, list, signal, forget. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "agent.h"
#include "boot.h"
#include "ops.h"
#include "process.h"
#include "pty.h"
#include "streams.h"
#include "util.h"

#define SIGNAL_MAX 64

/* ---- frames on a process's stream ---- */

static int on_data(struct stream *stream, uint8_t channel, const uint8_t *bytes, size_t n) {
    struct process *p = stream->owner;

    return channel == CHANNEL_IN ? sink_data(&p->in, bytes, n) : -1;
}

static int on_credit(struct stream *stream, uint8_t channel, uint32_t bytes) {
    struct process *p = stream->owner;

    if (channel != CHANNEL_OUT && channel != CHANNEL_ERR)
        return -1;
    source_credit(channel == CHANNEL_OUT ? &p->out : &p->err, bytes);
    return 0;
}

static int on_control(struct stream *stream, const struct mp_value *map) {
    struct process *p = stream->owner;
    uint64_t sig = 0, rows = 0, cols = 0;
    bool eof = false, all = false;

    if (mp_get_uint(map, "signal", SIGNAL_MAX, &sig) == MP_WRONG ||
        mp_get_uint(map, "rows", UINT16_MAX, &rows) == MP_WRONG ||
        mp_get_uint(map, "cols", UINT16_MAX, &cols) == MP_WRONG ||
        mp_get_bool(map, "eof", &eof) == MP_WRONG || mp_get_bool(map, "kill", &all) == MP_WRONG)
        return -1;
    if (sig)
        process_signal(p, (int)sig);
    if (all)
        process_kill(p);
    if (eof)
        sink_eof(&p->in);
    if (p->pty && mp_get(map, "rows") && mp_get(map, "cols") && p->in.watch.fd >= 0)
        pty_resize(p->in.watch.fd, rows, cols);
    return 0;
}

static void on_lost_stream(struct stream *stream) { process_detach(stream->owner); }

static const struct stream_ops process_stream = {
    .data = on_data,
    .credit = on_credit,
    .control = on_control,
    .lost = on_lost_stream,
};

/* ---- exec ---- */

/* Descriptors of a start: the process's ends, and ours. */
struct stdio {
    int in, out, err;
    int our_in, our_out, our_err;
};

static void close_all(const int *fds, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
}

static void close_theirs(const struct stdio *io) {
    int fds[3] = {io->in, io->out == io->in ? -1 : io->out, io->err == io->out ? -1 : io->err};

    close_all(fds, 3);
}

static int make_pipes(bool has_stdin, struct stdio *io) {
    int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1};

    /* Descriptor 0 is /dev/null, opened by whoever started agentd: a guest can put anything at
     * the path. */
    if (has_stdin ? pipe2(in, O_CLOEXEC) < 0 : (in[0] = fcntl(0, F_DUPFD_CLOEXEC, 5)) < 0)
        goto failed;
    if (pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0)
        goto failed;
    if ((has_stdin && set_nonblocking(in[1]) < 0) || set_nonblocking(out[0]) < 0 ||
        set_nonblocking(err[0]) < 0)
        goto failed;
    *io = (struct stdio){in[0], out[1], err[1], in[1], out[0], err[0]};
    return 0;
failed:;
    int error = errno;
    close_all(in, 2);
    close_all(out, 2);
    close_all(err, 2);
    return error;
}

static int make_pty(const struct request *r, const struct user_ids *user, struct stdio *io) {
    int master, slave, in;
    int err = pty_open(user, r->rows, r->cols, &master, &slave);

    if (err)
        return err;
    /* Reading and writing wait apart, so each has a descriptor. */
    in = fcntl(master, F_DUPFD_CLOEXEC, 5);
    if (in < 0) {
        err = errno;
        close(master);
        close(slave);
        return err;
    }
    *io = (struct stdio){slave, slave, slave, in, master, -1};
    return 0;
}

static void answer_not_started(uint32_t id, int err, enum stage stage) {
    CLEANUP_BUF struct buf b = {0};
    struct mp_map map = mp_open(&b);
    struct process p = {
        .outcome = OUTCOME_NOT_STARTED, .start_err = err, .start_stage = stage};

    process_describe_end(&p, &map);
    answer_end(id, &b);
}

static struct process *new_process(const struct request *r, const struct stdio *io) {
    struct process *p = xcalloc(1, sizeof(*p));
    uint64_t keep = r->job ? r->spool : r->window;

    memcpy(p->id, r->id, sizeof(p->id));
    p->job = r->job;
    p->pty = r->pty;
    p->lost_ms = r->lost_ms;
    /* A window of nothing is allowed (the host grants later), a spool of nothing is not. */
    if (!p->job && keep < SPOOL_CHUNK)
        keep = SPOOL_CHUNK;
    sink_init(&p->in, io->our_in);
    p->in.tty = r->pty;
    source_init(&p->out, io->our_out, CHANNEL_OUT, keep, r->job, NULL);
    source_init(&p->err, io->our_err, CHANNEL_ERR, keep, r->job, NULL);
    return p;
}

static void free_unstarted(struct process *p) {
    sink_free(&p->in);
    source_free(&p->out);
    source_free(&p->err);
    free(p);
}

static void start(uint32_t id, const struct request *r) {
    struct spawn spawn = {
        .argv = r->slots + 1,
        .envp = r->envp,
        .cwd = r->cwd,
        .pty = r->pty,
        .nofile = r->nofile,
    };
    struct stdio io;
    struct process *p;
    struct stream *stream;
    int err;

    err = r->user ? user_resolve(r->user, boot.single_uid, &spawn.user) : 0;
    if (!r->user && boot.single_uid > 0)
        spawn.user.uid = spawn.user.gid = (uint32_t)boot.single_uid;
    if (err) {
        answer_not_started(id, err, STAGE_USER);
        return;
    }
    err = r->pty ? make_pty(r, &spawn.user, &io) : make_pipes(r->has_stdin, &io);
    if (err) {
        answer_not_started(id, err, r->pty ? STAGE_PTY : STAGE_LIMITS);
        return;
    }
    p = new_process(r, &io);
    stream = stream_open(id, &process_stream, p);
    if (!stream) {
        close_theirs(&io);
        free_unstarted(p);
        answer_error(id, "busy", "too many streams");
        return;
    }
    spawn.in = io.in;
    spawn.out = io.out;
    spawn.err = io.err;
    err = process_start(p, &spawn, r->timeout_ms);
    close_theirs(&io);
    if (err) {
        stream_drop(stream);
        free_unstarted(p);
        answer_not_started(id, err, STAGE_FORK);
        return;
    }
    process_attach(p, stream, 0, 0, r->window);
}

void op_exec(uint32_t id, const struct mp_value *map) {
    struct request r;
    const char *wrong = request_parse(map, &r);

    if (wrong) {
        answer_error(id, "bad_request", wrong);
        return;
    }
    if (agent_is_ending())
        answer_error(id, "refused", "the sandbox is shutting down");
    else if (process_find(r.id))
        answer_error(id, "exists", "a process with this id exists");
    else if (process_count() >= PROCESSES_MAX)
        answer_error(id, "busy", "too many processes");
    else
        start(id, &r);
    request_free(&r);
}

/* ---- the others ---- */

static struct process *wanted(uint32_t id, const struct mp_value *map) {
    char name[PROCESS_ID_LEN + 1];
    struct process *p;

    if (!request_id(map, name)) {
        answer_error(id, "bad_request", "id");
        return NULL;
    }
    p = process_find(name);
    if (!p)
        answer_error(id, "no_such_process", "no process has this id");
    return p;
}

void op_attach(uint32_t id, const struct mp_value *map) {
    CLEANUP_BUF struct buf b = {0};
    struct process *p = wanted(id, map);
    uint64_t out = 0, err = 0, window;
    struct stream *stream, *older;
    struct mp_map reply;

    if (!p)
        return;
    if (mp_get_uint(map, "out", UINT64_MAX, &out) == MP_WRONG ||
        mp_get_uint(map, "err", UINT64_MAX, &err) == MP_WRONG || !request_window(map, &window)) {
        answer_error(id, "bad_request", "out, err or window");
        return;
    }
    stream = stream_open(id, &process_stream, p);
    if (!stream) {
        answer_error(id, "busy", "too many streams");
        return;
    }
    older = p->stream;
    process_detach(p);
    if (older)
        stream_error(older, "replaced", "another stream has attached");
    process_attach(p, stream, out, err, window);
    reply = mp_open(&b);
    mp_add_str(&reply, "ev", "attached");
    mp_add_uint(&reply, "pid", (uint64_t)p->pid);
    mp_add_uint(&reply, "out", p->out.sent);
    mp_add_uint(&reply, "err", p->err.sent);
    mp_add_uint(&reply, "in", p->in.queue.end);
    mp_add_uint(&reply, "credit", sink_credit(&p->in));
    stream_control(stream, &b);
    process_check(p);
}

static void list_one(struct process *p, void *context) {
    struct buf *b = context;
    struct mp_map map = mp_open(b);

    mp_add_str(&map, "id", p->id);
    mp_add_uint(&map, "pid", (uint64_t)p->pid);
    mp_add_bool(&map, "job", p->job);
    mp_add_bool(&map, "running", p->state != PROCESS_ENDED);
    if (p->state == PROCESS_ENDED) {
        process_describe_end(p, &map);
        return;
    }
    mp_add_uint(&map, "out", p->out.spool.end);
    mp_add_uint(&map, "err", p->err.spool.end);
}

void op_list(uint32_t id, const struct mp_value *map) {
    CLEANUP_BUF struct buf b = {0};
    struct mp_map end = mp_open(&b);

    (void)map;
    mp_add_array(&end, "procs", (uint32_t)process_count());
    process_each(list_one, &b);
    answer_end(id, &b);
}

void op_signal(uint32_t id, const struct mp_value *map) {
    struct process *p = wanted(id, map);
    uint64_t sig = 0;
    bool all = false;

    if (!p)
        return;
    if (mp_get_uint(map, "signal", SIGNAL_MAX, &sig) == MP_WRONG ||
        mp_get_bool(map, "kill", &all) == MP_WRONG || (!sig && !all)) {
        answer_error(id, "bad_request", "signal or kill");
        return;
    }
    if (sig)
        process_signal(p, (int)sig);
    if (all)
        process_kill(p);
    answer_end(id, NULL);
}

void op_forget(uint32_t id, const struct mp_value *map) {
    struct process *p = wanted(id, map);

    if (!p)
        return;
    if (p->state != PROCESS_ENDED) {
        answer_error(id, "refused", "the process has not ended");
        return;
    }
    if (p->stream)
        stream_error(p->stream, "no_such_process", "forgotten");
    process_detach(p);
    process_forget(p);
    answer_end(id, NULL);
}
