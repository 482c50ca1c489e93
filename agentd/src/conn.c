#define _GNU_SOURCE
#include "conn.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent.h"
#include "loop.h"
#include "spool.h"
#include "streams.h"
#include "util.h"

/* While so much waits to be sent, nothing is read from the host. */
#define BACKLOG 262144u
/* More never waits: a connection for which it would is given up. A `list` of all records is below
 * 1 MiB, and nothing else is near that. */
#define QUEUE_SIZE 4194304u
#define TRIM_MS 1000
/* What a quiet connection may keep of the queue. */
#define QUEUE_KEPT 8192u

/* The authenticated connection. */
static struct watch host = {.fd = -1};
static struct frame_reader in;
static bool blocked; /* the socket took no more */
static bool broken;

/* What waits to be sent to it: bytes from `sent` to `end` of a mapping that children do not get. */
static struct {
    uint8_t *bytes;
    size_t sent;
    size_t end;
    size_t touched;
} queue;

static struct timer trim;
static uint64_t traffic, traffic_at_trim;

bool conn_is_up(void) { return host.fd >= 0; }

static size_t backlog(void) { return queue.end - queue.sent; }

static void enqueue(const void *bytes, size_t n) {
    if (queue.sent && QUEUE_SIZE - queue.end < n) {
        memmove(queue.bytes, queue.bytes + queue.sent, backlog());
        queue.end -= queue.sent;
        queue.sent = 0;
    }
    if (QUEUE_SIZE - queue.end < n)
        broken = true;
    if (broken || !n)
        return;
    memcpy(queue.bytes + queue.end, bytes, n);
    queue.end += n;
    if (queue.end > queue.touched)
        queue.touched = queue.end;
}

static void trim_queue(void) {
    if (queue.touched <= QUEUE_KEPT || backlog())
        return;
    (void)madvise(queue.bytes + QUEUE_KEPT, QUEUE_SIZE - QUEUE_KEPT, MADV_DONTNEED);
    queue.touched = QUEUE_KEPT;
}

static void forget_host(void) {
    if (!conn_is_up())
        return;
    watch_close(&host);
    frame_reader_free(&in);
    queue.sent = queue.end = 0;
    blocked = broken = false;
    streams_lost();
}

static void lose_host(void) {
    forget_host();
    agent_host_lost();
}

static void process(void) {
    struct frame frame;
    int got;

    while (conn_is_up() && !broken && backlog() < BACKLOG &&
           (got = frame_reader_next(&in, &frame)) != 0) {
        if (got < 0 || streams_frame(&frame) < 0)
            broken = true;
    }
}

static void on_host(struct watch *watch, uint32_t events) {
    size_t room;
    uint8_t *to;
    ssize_t n;

    if (events & EPOLLOUT)
        blocked = false;
    if (!(events & ~(uint32_t)EPOLLOUT))
        return;
    to = frame_reader_room(&in, &room);
    n = recv(watch->fd, to, room, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        broken = true;
        return;
    }
    traffic += (uint64_t)n;
    frame_reader_fed(&in, (size_t)n);
    process();
}

void conn_send(uint32_t stream, uint8_t type, const void *payload, size_t n) {
    uint8_t header[FRAME_HEADER];

    if (!conn_is_up())
        return;
    frame_put_header(header, stream, type, n);
    enqueue(header, sizeof(header));
    enqueue(payload, n);
}

void conn_send_data(uint32_t stream, uint8_t channel, const void *bytes, size_t n) {
    uint8_t header[FRAME_HEADER + 1];

    if (!conn_is_up())
        return;
    frame_put_header(header, stream, FRAME_DATA, n + 1);
    header[FRAME_HEADER] = channel;
    enqueue(header, sizeof(header));
    enqueue(bytes, n);
}

/* What was sent; -1 when the socket is full or broken. */
static ssize_t send_some(struct iovec *iov, int count) {
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = (size_t)count};
    ssize_t n;

    do
        n = sendmsg(host.fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n >= 0)
        traffic += (uint64_t)n;
    else if (errno == EAGAIN)
        blocked = true;
    else
        broken = true;
    return n;
}

static void flush(void) {
    while (conn_is_up() && !blocked && !broken && backlog()) {
        struct iovec iov = {queue.bytes + queue.sent, backlog()};
        ssize_t n = send_some(&iov, 1);

        if (n > 0)
            queue.sent += (size_t)n;
    }
    if (!backlog())
        queue.sent = queue.end = 0;
}

bool conn_can_send(void) {
    flush();
    return conn_is_up() && !blocked && !broken && !backlog();
}

bool conn_send_output(uint32_t stream, uint8_t channel, const struct iovec *iov, int count) {
    uint8_t header[FRAME_HEADER + 1];
    struct iovec all[3] = {{header, sizeof(header)}};
    size_t total = 0, skip;
    ssize_t n;

    if (!conn_can_send())
        return false;
    for (int i = 0; i < count; i++) {
        all[i + 1] = iov[i];
        total += iov[i].iov_len;
    }
    frame_put_header(header, stream, FRAME_DATA, total + 1);
    header[FRAME_HEADER] = channel;
    n = send_some(all, count + 1);
    if (n < 0)
        return false;
    /* A frame is never left half sent while its bytes may be dropped from the spool: the rest is
     * copied, once, and nothing else is sent before it. */
    skip = (size_t)n;
    for (int i = 0; i <= count; i++) {
        size_t done = skip < all[i].iov_len ? skip : all[i].iov_len;

        enqueue((uint8_t *)all[i].iov_base + done, all[i].iov_len - done);
        skip -= done;
    }
    return true;
}

static void on_trim(struct timer *timer) {
    if (traffic != traffic_at_trim || (conn_is_up() && !frame_reader_trim(&in))) {
        traffic_at_trim = traffic;
        timer_set(timer, now_ms() + TRIM_MS);
        return;
    }
    trim_queue();
    spool_trim();
}

void conn_settle(void) {
    size_t before;

    do {
        before = backlog();
        flush();
        process();
    } while (conn_is_up() && !broken && backlog() != before && !blocked);
    if (broken)
        lose_host();
    if (!conn_is_up())
        return;
    watch_set(&host, (backlog() < BACKLOG ? EPOLLIN : 0) |
                                (blocked || backlog() ? EPOLLOUT : 0));
    if (!trim.slot && traffic != traffic_at_trim) {
        traffic_at_trim = traffic;
        timer_set(&trim, now_ms() + TRIM_MS);
    }
}

void conn_drain(int ms) {
    int64_t deadline = now_ms() + ms;

    while (conn_is_up() && !broken) {
        struct pollfd p = {.fd = host.fd, .events = POLLOUT};
        int64_t left = deadline - now_ms();

        blocked = false;
        flush();
        if (!backlog() || left <= 0 || poll(&p, 1, (int)left) <= 0)
            return;
    }
}

void conn_adopt(int fd, struct frame_reader *reader) {
    if (!frame_reader_widen(reader, FRAME_MAX_LENGTH)) {
        close(fd);
        return;
    }
    forget_host();
    host = (struct watch){.fd = fd, .fn = on_host};
    in = *reader;
    *reader = (struct frame_reader){0};
    watch_set(&host, EPOLLIN);
    agent_host_came();
    process();
}

void conn_init(void) {
    trim.fn = on_trim;
    queue.bytes = map_private(QUEUE_SIZE);
    if (!queue.bytes)
        die("output queue");
}
