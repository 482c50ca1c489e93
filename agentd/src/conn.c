#define _GNU_SOURCE
#include "conn.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent.h"
#include "boot.h"
#include "frames.h"
#include "guard.h"
#include "loop.h"
#include "msgpack.h"
#include "sha256.h"
#include "spool.h"
#include "streams.h"
#include "util.h"

#define GENERATION 1
#define PENDING_MAX 8
#define HANDSHAKE_MS 5000
#define NONCE_SIZE 16
/* While so much waits to be sent, nothing is read from the host. */
#define BACKLOG 262144u
#define TRIM_MS 1000
#define ACCEPT_PAUSE_MS 100

struct conn {
    struct watch watch;
    struct frame_reader in;
    struct timer deadline;
    bool answered; /* the agent's HELLO is out */
    uint8_t host_nonce[NONCE_SIZE];
    uint8_t agent_nonce[NONCE_SIZE];
};

static struct watch listener;
static struct timer listen_again;
static struct conn *pending[PENDING_MAX];

/* The authenticated one, and what waits to be sent to it. */
static struct conn *host;
static struct buf out;
static size_t out_sent;
static bool blocked; /* the socket took no more */
static bool broken;
static struct timer trim;
static uint64_t traffic, traffic_at_trim;

static size_t backlog(void) { return out.len - out_sent; }

bool conn_is_up(void) { return host != NULL; }

static void conn_free(struct conn *c) {
    timer_stop(&c->deadline);
    watch_close(&c->watch);
    frame_reader_free(&c->in);
    free(c);
}

static void forget_host(void) {
    if (!host)
        return;
    conn_free(host);
    host = NULL;
    buf_free(&out);
    out_sent = 0;
    blocked = broken = false;
    streams_lost();
}

static void lose_host(void) {
    forget_host();
    agent_host_lost();
}

/* ---- handshake ---- */

static void forget_pending(struct conn *c) {
    for (size_t i = 0; i < PENDING_MAX; i++) {
        if (pending[i] == c)
            pending[i] = NULL;
    }
}

static void drop_pending(struct conn *c) {
    forget_pending(c);
    conn_free(c);
}

static void prove(const char *who, const uint8_t *first, const uint8_t *second,
                  uint8_t proof[SHA256_SIZE]) {
    struct hmac h;

    hmac_begin(&h, boot.token, TOKEN_SIZE);
    hmac_add(&h, who, strlen(who));
    hmac_add(&h, first, NONCE_SIZE);
    hmac_add(&h, second, NONCE_SIZE);
    hmac_end(&h, proof);
}

/* A few hundred bytes into an empty socket buffer: all or nothing. */
static bool send_now(const struct conn *c, uint8_t type, const struct buf *payload) {
    uint8_t header[FRAME_HEADER];
    struct iovec iov[2] = {{header, sizeof(header)}, {payload->data, payload->len}};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};

    frame_put_header(header, 0, type, payload->len);
    return sendmsg(c->watch.fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) ==
           (ssize_t)(sizeof(header) + payload->len);
}

static void refuse(const struct conn *c, const char *code, const char *message) {
    CLEANUP_BUF struct buf b = {0};
    struct mp_map map = mp_open(&b);

    mp_add_str(&map, "code", code);
    mp_add_str(&map, "message", message);
    (void)send_now(c, FRAME_ERROR, &b);
}

static bool answer_hello(struct conn *c, const struct mp_value *hello) {
    CLEANUP_BUF struct buf b = {0};
    const struct mp_value *gen = NULL;
    const uint8_t *nonce = NULL;
    size_t nonce_size = 0;
    uint8_t proof[SHA256_SIZE];
    struct mp_map map, inner;

    if (mp_get_array(hello, "gen", &gen) != MP_OK || gen->len != 2 ||
        gen->items[0].type != MP_UINT || gen->items[1].type != MP_UINT)
        return false;
    if (gen->items[0].u > GENERATION || gen->items[1].u < GENERATION) {
        refuse(c, "generation", "this agent speaks generation 1");
        return false;
    }
    if (mp_get_bin(hello, "nonce", &nonce, &nonce_size) != MP_OK || nonce_size != NONCE_SIZE)
        return false;
    memcpy(c->host_nonce, nonce, NONCE_SIZE);
    if (getrandom(c->agent_nonce, NONCE_SIZE, 0) != NONCE_SIZE)
        return false;
    prove("agentkernel agent", c->host_nonce, c->agent_nonce, proof);
    map = mp_open(&b);
    mp_add_uint(&map, "gen", GENERATION);
    mp_add_bin(&map, "nonce", c->agent_nonce, NONCE_SIZE);
    mp_add_bin(&map, "proof", proof, sizeof(proof));
    mp_add_str(&map, "version", AGENTD_VERSION);
    inner = mp_add_map(&map, "guard");
    guard_describe(&inner);
    c->answered = true;
    return send_now(c, FRAME_HELLO, &b);
}

static bool check_proof(struct conn *c, const struct mp_value *hello) {
    uint8_t expected[SHA256_SIZE];
    const uint8_t *proof = NULL;
    size_t n = 0;
    bool right;

    if (mp_get_bin(hello, "proof", &proof, &n) != MP_OK || n != SHA256_SIZE)
        return false;
    prove("agentkernel host", c->agent_nonce, c->host_nonce, expected);
    right = equal_in_constant_time(expected, proof, sizeof(expected));
    wipe(expected, sizeof(expected));
    if (!right)
        refuse(c, "refused", "wrong proof");
    return right;
}

static void process(void);
static void on_host(struct watch *watch, uint32_t events);

static void promote(struct conn *c) {
    forget_pending(c);
    if (!frame_reader_widen(&c->in, FRAME_MAX_LENGTH)) {
        conn_free(c);
        return;
    }
    forget_host();
    timer_stop(&c->deadline);
    c->watch.fn = on_host;
    host = c;
    agent_host_came();
    process();
}

/* false: the connection has to go. *PROVED: it is the host's. */
static bool take_hello(struct conn *c, const struct frame *frame, bool *proved) {
    struct mp_tree tree;
    bool good;

    if (frame->type != FRAME_HELLO || frame->stream != 0 ||
        mp_parse(&tree, frame->payload, frame->size) != NULL)
        return false;
    *proved = c->answered;
    good = c->answered ? check_proof(c, tree.root) : answer_hello(c, tree.root);
    mp_free(&tree);
    return good;
}

static void on_pending(struct watch *watch, uint32_t events) {
    struct conn *c = CONTAINER_OF(watch, struct conn, watch);
    struct frame frame;
    bool proved = false;
    size_t room;
    uint8_t *to = frame_reader_room(&c->in, &room);
    ssize_t n = recv(watch->fd, to, room, MSG_DONTWAIT);
    int got;

    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        drop_pending(c);
        return;
    }
    frame_reader_fed(&c->in, (size_t)n);
    while ((got = frame_reader_next(&c->in, &frame)) == 1) {
        if (!take_hello(c, &frame, &proved)) {
            drop_pending(c);
            return;
        }
        if (proved) {
            promote(c);
            return;
        }
    }
    if (got < 0)
        drop_pending(c);
}

static void on_deadline(struct timer *timer) {
    drop_pending(CONTAINER_OF(timer, struct conn, deadline));
}

static void on_listen_again(struct timer *timer) {
    (void)timer;
    watch_set(&listener, EPOLLIN);
}

static void on_listener(struct watch *watch, uint32_t events) {
    int fd = accept4(watch->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct conn *c;
    size_t slot = 0;

    (void)events;
    if (fd < 0) {
        /* Out of descriptors or memory: the connection stays in the backlog, so wait a little. */
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
            watch_set(watch, 0);
            timer_set(&listen_again, now_ms() + ACCEPT_PAUSE_MS);
        }
        return;
    }
    while (slot < PENDING_MAX && pending[slot])
        slot++;
    if (slot == PENDING_MAX) {
        close(fd);
        return;
    }
    c = xcalloc(1, sizeof(*c));
    c->watch = (struct watch){.fd = fd, .fn = on_pending};
    c->deadline.fn = on_deadline;
    if (!frame_reader_init(&c->in, FRAME_MAX_HELLO)) {
        conn_free(c);
        return;
    }
    pending[slot] = c;
    timer_set(&c->deadline, now_ms() + HANDSHAKE_MS);
    watch_set(&c->watch, EPOLLIN);
}

/* ---- the host's connection ---- */

static void process(void) {
    struct frame frame;
    int got;

    while (host && !broken && backlog() < BACKLOG &&
           (got = frame_reader_next(&host->in, &frame)) != 0) {
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
    to = frame_reader_room(&host->in, &room);
    n = recv(watch->fd, to, room, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        broken = true;
        return;
    }
    traffic += (uint64_t)n;
    frame_reader_fed(&host->in, (size_t)n);
    process();
}

void conn_send(uint32_t stream, uint8_t type, const void *payload, size_t n) {
    uint8_t header[FRAME_HEADER];

    if (!host)
        return;
    frame_put_header(header, stream, type, n);
    buf_add(&out, header, sizeof(header));
    buf_add(&out, payload, n);
}

void conn_send_data(uint32_t stream, uint8_t channel, const void *bytes, size_t n) {
    uint8_t header[FRAME_HEADER + 1];

    if (!host)
        return;
    frame_put_header(header, stream, FRAME_DATA, n + 1);
    header[FRAME_HEADER] = channel;
    buf_add(&out, header, sizeof(header));
    buf_add(&out, bytes, n);
}

/* What was sent; -1 when the socket is full or broken. */
static ssize_t send_some(struct iovec *iov, int count) {
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = (size_t)count};
    ssize_t n;

    do
        n = sendmsg(host->watch.fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
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
    while (host && !blocked && !broken && backlog()) {
        struct iovec iov = {out.data + out_sent, backlog()};
        ssize_t n = send_some(&iov, 1);

        if (n > 0)
            out_sent += (size_t)n;
    }
    if (out_sent == out.len) {
        buf_free(&out);
        out_sent = 0;
    } else if (out_sent > BACKLOG) {
        buf_drop(&out, out_sent);
        out_sent = 0;
    }
}

bool conn_send_output(uint32_t stream, uint8_t channel, const struct iovec *iov, int count) {
    uint8_t header[FRAME_HEADER + 1];
    struct iovec all[3] = {{header, sizeof(header)}};
    size_t total = 0, skip;
    ssize_t n;

    flush();
    if (!host || blocked || broken || backlog())
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

        buf_add(&out, (uint8_t *)all[i].iov_base + done, all[i].iov_len - done);
        skip -= done;
    }
    return true;
}

static void on_trim(struct timer *timer) {
    if (traffic != traffic_at_trim || (host && !frame_reader_trim(&host->in))) {
        traffic_at_trim = traffic;
        timer_set(timer, now_ms() + TRIM_MS);
        return;
    }
    spool_trim();
}

void conn_settle(void) {
    size_t before;

    do {
        before = backlog();
        flush();
        process();
    } while (host && !broken && backlog() != before && !blocked);
    if (broken)
        lose_host();
    if (!host)
        return;
    watch_set(&host->watch, (backlog() < BACKLOG ? EPOLLIN : 0) |
                                (blocked || backlog() ? EPOLLOUT : 0));
    if (!trim.slot && traffic != traffic_at_trim) {
        traffic_at_trim = traffic;
        timer_set(&trim, now_ms() + TRIM_MS);
    }
}

void conn_drain(int ms) {
    int64_t deadline = now_ms() + ms;

    while (host && !broken) {
        struct pollfd p = {.fd = host->watch.fd, .events = POLLOUT};
        int64_t left = deadline - now_ms();

        blocked = false;
        flush();
        if (!backlog() || left <= 0 || poll(&p, 1, (int)left) <= 0)
            return;
    }
}

void conn_init(int listen_fd) {
    listener = (struct watch){.fd = listen_fd, .fn = on_listener};
    listen_again.fn = on_listen_again;
    trim.fn = on_trim;
    if (set_nonblocking(listen_fd) < 0)
        die("listening socket");
    watch_set(&listener, EPOLLIN);
}
