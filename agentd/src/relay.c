/* The `tcp` operation: a byte stream to a port of the sandbox's loopback. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "flow.h"
#include "ops.h"
#include "request.h"
#include "streams.h"
#include "util.h"

struct relay {
    struct stream *stream;
    struct watch connecting;
    bool connected;
    bool told_eof;
    uint64_t window;
    struct sink in;
    struct source out;
};

static void relay_free(struct relay *r) {
    watch_close(&r->connecting);
    if (r->connected) {
        sink_free(&r->in);
        source_free(&r->out);
    }
    free(r);
}

static int on_credit(struct stream *stream, uint8_t channel, uint32_t bytes) {
    struct relay *r = stream->owner;

    if (channel != CHANNEL_OUT || !r->connected)
        return -1;
    source_credit(&r->out, bytes);
    return 0;
}

static void relay_check(struct relay *r) {
    CLEANUP_BUF struct buf b = {0};
    struct mp_map map = mp_open(&b);

    if (!r->out.eof || !source_all_sent(&r->out))
        return;
    if (!r->in.closed) {
        if (!r->told_eof) {
            r->told_eof = true;
            mp_add_str(&map, "ev", "eof");
            stream_control(r->stream, &b);
        }
        return;
    }
    mp_add_uint(&map, "out", r->out.spool.end);
    mp_add_uint(&map, "in", r->in.queue.end);
    stream_end(r->stream, &b);
    relay_free(r);
}

static int on_data(struct stream *stream, uint8_t channel, const uint8_t *bytes, size_t n) {
    struct relay *r = stream->owner;

    if (channel != CHANNEL_IN || !r->connected || sink_data(&r->in, bytes, n) < 0)
        return -1;
    relay_check(r);
    return 0;
}

static int on_control(struct stream *stream, const struct mp_value *map) {
    struct relay *r = stream->owner;
    bool eof = false;

    if (mp_get_bool(map, "eof", &eof) == MP_WRONG)
        return -1;
    if (eof && r->connected) {
        sink_eof(&r->in);
        relay_check(r);
    }
    return 0;
}

static void on_lost(struct stream *stream) { relay_free(stream->owner); }

static const struct stream_ops relay_stream = {
    .data = on_data,
    .credit = on_credit,
    .control = on_control,
    .lost = on_lost,
};

static void on_out(struct source *source) { relay_check(CONTAINER_OF(source, struct relay, out)); }

static void on_in(struct sink *sink) { relay_check(CONTAINER_OF(sink, struct relay, in)); }

static void fail(struct relay *r, int err) {
    stream_error(r->stream, errno_name(err), strerror(err));
    relay_free(r);
}

static void on_connected(struct relay *r) {
    CLEANUP_BUF struct buf b = {0};
    struct mp_map map = mp_open(&b);
    int fd = r->connecting.fd;
    int out = fcntl(fd, F_DUPFD_CLOEXEC, 5);
    int yes = 1;

    if (out < 0) {
        fail(r, errno);
        return;
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    watch_set(&r->connecting, 0);
    r->connecting.fd = -1;
    r->connected = true;
    sink_init(&r->in, fd);
    r->in.socket = true;
    r->in.changed = on_in;
    sink_attach(&r->in, r->stream);
    source_init(&r->out, out, CHANNEL_OUT, r->window < SPOOL_CHUNK ? SPOOL_CHUNK : r->window, false,
                on_out);
    source_attach(&r->out, r->stream, 0, r->window);
    mp_add_str(&map, "ev", "connected");
    stream_control(r->stream, &b);
    source_start(&r->out);
}

static void on_connecting(struct watch *watch, uint32_t events) {
    struct relay *r = CONTAINER_OF(watch, struct relay, connecting);
    int err = 0;
    socklen_t size = sizeof(err);

    (void)events;
    if (getsockopt(watch->fd, SOL_SOCKET, SO_ERROR, &err, &size) < 0)
        err = errno;
    if (err)
        fail(r, err);
    else
        on_connected(r);
}

/* 127.0.0.0/8 or ::1, in figures: nothing is ever looked up. */
static bool parse_loopback(const char *host, uint16_t port, struct sockaddr_storage *out,
                           socklen_t *size) {
    struct sockaddr_in *v4 = (void *)out;
    struct sockaddr_in6 *v6 = (void *)out;

    memset(out, 0, sizeof(*out));
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        *size = sizeof(*v4);
        return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    }
    if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
        *size = sizeof(*v6);
        return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
    }
    return false;
}

void op_tcp(uint32_t id, const struct mp_value *map) {
    CLEANUP_FREE char *host = NULL;
    struct sockaddr_storage address;
    socklen_t size;
    uint64_t port = 0, window;
    struct relay *r;
    int fd;

    if (mp_get_uint(map, "port", UINT16_MAX, &port) != MP_OK || port == 0 ||
        !request_window(map, &window) || mp_get_text(map, "host", &host) == MP_WRONG) {
        answer_error(id, "bad_request", "port, host or window");
        return;
    }
    if (!parse_loopback(host ? host : "127.0.0.1", (uint16_t)port, &address, &size)) {
        answer_error(id, "refused", "not a loopback address");
        return;
    }
    fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        answer_error(id, errno_name(errno), strerror(errno));
        return;
    }
    r = xcalloc(1, sizeof(*r));
    r->window = window;
    r->connecting = (struct watch){.fd = fd, .fn = on_connecting};
    r->stream = stream_open(id, &relay_stream, r);
    if (!r->stream) {
        relay_free(r);
        answer_error(id, "busy", "too many streams");
        return;
    }
    if (connect(fd, (struct sockaddr *)&address, size) == 0)
        on_connected(r);
    else if (errno == EINPROGRESS)
        watch_set(&r->connecting, EPOLLOUT);
    else
        fail(r, errno);
}
