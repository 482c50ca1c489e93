#define _GNU_SOURCE
#include "flow.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#include "conn.h"
#include "util.h"

/* Largest piece of output in one DATA frame. */
#define PIECE 65536u
/* Input is granted anew in lumps of so much. */
#define GRANT 65536u
#define RETRY_MS 100

/* Sources with something to send, served in turns. */
static struct source *ready_first, *ready_last;

static bool is_ready(const struct source *s) {
    return s->stream && !s->queued && s->sent < s->spool.end && s->sent < s->limit;
}

static void make_ready(struct source *s) {
    if (!is_ready(s))
        return;
    s->queued = true;
    s->next_ready = NULL;
    if (ready_last)
        ready_last->next_ready = s;
    else
        ready_first = s;
    ready_last = s;
}

static void unready(struct source *s) {
    struct source *before = NULL;

    if (!s->queued)
        return;
    for (struct source *at = ready_first; at != s; at = at->next_ready)
        before = at;
    if (before)
        before->next_ready = s->next_ready;
    else
        ready_first = s->next_ready;
    if (ready_last == s)
        ready_last = before;
    s->queued = false;
}

static void rearm(struct source *s) {
    if (s->started && s->watch.fd >= 0 && !s->retry.slot)
        watch_set(&s->watch, s->discard || spool_room(&s->spool) ? EPOLLIN : 0);
}

static void on_source(struct watch *watch, uint32_t events) {
    struct source *s = CONTAINER_OF(watch, struct source, watch);

    (void)events;
    (void)source_read(s);
    s->changed(s);
}

static void on_retry(struct timer *timer) {
    source_start(CONTAINER_OF(timer, struct source, retry));
}

void source_init(struct source *s, int fd, uint8_t channel, uint64_t keep, bool rolling,
                 void (*changed)(struct source *)) {
    *s = (struct source){
        .watch = {.fd = fd, .fn = on_source},
        .channel = channel,
        .eof = fd < 0,
        .retry = {.fn = on_retry},
        .changed = changed,
    };
    spool_init(&s->spool, keep, rolling);
}

void source_start(struct source *s) {
    s->started = true;
    rearm(s);
}

static ssize_t read_into_spool(struct source *s) {
    struct iovec iov[2];
    uint64_t room = spool_room(&s->spool);
    int pieces;
    ssize_t n;

    if (room == 0) {
        errno = EAGAIN;
        return -1;
    }
    pieces = spool_reserve(&s->spool, room > PIECE ? PIECE : (size_t)room, iov);
    if (pieces == 0) {
        watch_set(&s->watch, 0);
        timer_set(&s->retry, now_ms() + RETRY_MS);
        errno = EAGAIN;
        return -1;
    }
    n = readv(s->watch.fd, iov, pieces);
    if (n > 0) {
        spool_commit(&s->spool, (size_t)n);
        make_ready(s);
        rearm(s);
    }
    return n;
}

bool source_read(struct source *s) {
    char scratch[16384];
    ssize_t n;

    if (s->watch.fd < 0)
        return false;
    n = s->discard ? read(s->watch.fd, scratch, sizeof(scratch)) : read_into_spool(s);
    /* A pty's master says EIO when nobody has the other side open any more. */
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        watch_close(&s->watch);
        timer_stop(&s->retry);
        s->eof = true;
    }
    return n > 0;
}

void source_attach(struct source *s, struct stream *stream, uint64_t offset, uint64_t window) {
    if (offset > s->spool.end)
        offset = s->spool.end;
    if (!s->spool.rolling) {
        spool_release(&s->spool, offset);
        if (window > s->spool.limit)
            s->spool.limit = window;
        rearm(s);
    }
    s->sent = offset < s->spool.base ? s->spool.base : offset;
    s->consumed = s->sent;
    s->limit = s->sent + window;
    s->stream = stream;
    make_ready(s);
}

void source_detach(struct source *s) {
    unready(s);
    s->stream = NULL;
}

static void release_consumed(struct source *s) {
    if (s->spool.rolling)
        return;
    spool_release(&s->spool, s->consumed < s->sent ? s->consumed : s->sent);
    rearm(s);
}

void source_credit(struct source *s, uint32_t bytes) {
    s->limit += bytes;
    s->consumed += bytes;
    release_consumed(s);
    make_ready(s);
}

void source_discard(struct source *s) {
    s->discard = true;
    timer_stop(&s->retry);
    rearm(s);
}

void source_free(struct source *s) {
    source_detach(s);
    timer_stop(&s->retry);
    watch_close(&s->watch);
    spool_clear(&s->spool);
}

static void tell_dropped(struct source *s) {
    CLEANUP_BUF struct buf b = {0};
    struct mp_map map = mp_open(&b);

    mp_add_str(&map, "ev", "dropped");
    mp_add_uint(&map, "ch", s->channel);
    mp_add_uint(&map, "bytes", s->spool.base - s->sent);
    mp_add_uint(&map, "offset", s->spool.base);
    stream_control(s->stream, &b);
    /* What was lost does not use up what the host has granted. */
    s->limit += s->spool.base - s->sent;
    s->sent = s->spool.base;
}

static bool send_piece(struct source *s) {
    struct iovec iov[2];
    uint64_t want;
    int pieces;
    size_t total = 0;

    if (s->sent < s->spool.base) {
        /* Not before the socket takes it: until then more will be dropped, and one event tells. */
        if (!conn_can_send())
            return false;
        tell_dropped(s);
        return true;
    }
    want = s->limit - s->sent;
    pieces = spool_peek(&s->spool, s->sent, want > PIECE ? PIECE : (size_t)want, iov);
    for (int i = 0; i < pieces; i++)
        total += iov[i].iov_len;
    if (!conn_send_output(s->stream->id, s->channel, iov, pieces))
        return false;
    s->sent += total;
    release_consumed(s);
    return true;
}

void flow_settle(void) {
    while (ready_first) {
        struct source *s = ready_first;

        if (!send_piece(s))
            return;
        unready(s);
        make_ready(s);
        /* Last, as it may free the source. */
        s->changed(s);
    }
}

static void on_sink(struct watch *watch, uint32_t events);

void sink_init(struct sink *s, int fd) {
    *s = (struct sink){.watch = {.fd = fd, .fn = on_sink}, .closed = fd < 0};
    spool_init(&s->queue, UINT64_MAX, false);
}

uint64_t sink_credit(const struct sink *s) {
    uint64_t used = s->queue.end - s->queue.base;

    return used < FLOW_WINDOW ? FLOW_WINDOW - used : 0;
}

void sink_attach(struct sink *s, struct stream *stream) {
    s->stream = stream;
    s->granted = s->queue.end + sink_credit(s);
    s->returned = s->queue.base;
}

static void close_sink(struct sink *s) {
    watch_close(&s->watch);
    spool_release(&s->queue, s->queue.end);
    s->closed = true;
}

static void grant(struct sink *s) {
    uint64_t bytes = s->queue.base - s->returned;

    /* `returned` may be ahead by the characters sink_eof has added. */
    if (!s->stream || s->queue.base < s->returned || bytes < GRANT)
        return;
    stream_credit(s->stream, CHANNEL_IN, (uint32_t)bytes);
    s->granted += bytes;
    s->returned += bytes;
}

static void write_queue(struct sink *s) {
    struct iovec iov[2];
    int pieces;

    while ((pieces = spool_peek(&s->queue, s->queue.base, PIECE, iov)) > 0) {
        ssize_t n = writev(s->watch.fd, iov, pieces);

        if (n > 0) {
            spool_release(&s->queue, s->queue.base + (uint64_t)n);
        } else if (n < 0 && errno == EAGAIN) {
            watch_set(&s->watch, EPOLLOUT);
            break;
        } else if (n < 0 && errno != EINTR) {
            close_sink(s);
        }
    }
    if (s->queue.base == s->queue.end && !s->closed) {
        watch_set(&s->watch, 0);
        if (s->eof) {
            if (s->socket)
                (void)shutdown(s->watch.fd, SHUT_WR);
            close_sink(s);
        }
    }
    grant(s);
}

static void on_sink(struct watch *watch, uint32_t events) {
    struct sink *s = CONTAINER_OF(watch, struct sink, watch);

    (void)events;
    write_queue(s);
    if (s->closed && s->changed)
        s->changed(s);
}

static bool append(struct sink *s, const uint8_t *bytes, size_t n) {
    while (n) {
        struct iovec iov[2];
        int pieces = spool_reserve(&s->queue, n, iov);

        if (pieces == 0)
            return false;
        for (int i = 0; i < pieces; i++) {
            memcpy(iov[i].iov_base, bytes, iov[i].iov_len);
            spool_commit(&s->queue, iov[i].iov_len);
            bytes += iov[i].iov_len;
            n -= iov[i].iov_len;
        }
    }
    return true;
}

/* What goes past the queue, because it was written at once or thrown away. */
static void pass(struct sink *s, size_t n) {
    s->queue.end += n;
    spool_release(&s->queue, s->queue.end);
}

int sink_data(struct sink *s, const uint8_t *bytes, size_t n) {
    if (n > s->granted - s->queue.end)
        return -1;
    if (n == 0)
        return 0;
    if (s->closed || s->eof) {
        pass(s, n);
        grant(s);
        return 0;
    }
    s->mid_line = bytes[n - 1] != '\n';
    if (s->queue.base == s->queue.end) {
        ssize_t done = write(s->watch.fd, bytes, n);

        if (done > 0) {
            pass(s, (size_t)done);
            bytes += done;
            n -= (size_t)done;
        }
    }
    if (!append(s, bytes, n))
        close_sink(s);
    if (!s->closed)
        write_queue(s);
    return 0;
}

void sink_eof(struct sink *s) {
    struct termios termios;
    uint8_t veof[2] = {4, 4};
    size_t n;

    if (s->closed || s->eof)
        return;
    if (!s->tty) {
        s->eof = true;
        write_queue(s);
        return;
    }
    if (tcgetattr(s->watch.fd, &termios) == 0)
        veof[0] = veof[1] = termios.c_cc[VEOF];
    /* The first VEOF in the middle of a line only hands that line over. */
    n = s->mid_line ? 2 : 1;
    s->mid_line = false;
    if (!append(s, veof, n)) {
        close_sink(s);
        return;
    }
    s->granted += n;
    s->returned += n;
    write_queue(s);
}

void sink_free(struct sink *s) {
    close_sink(s);
    spool_clear(&s->queue);
    s->stream = NULL;
}
