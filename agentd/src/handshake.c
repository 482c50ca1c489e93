/* The listening socket, and connections that have not proved yet that they are the host's. They can
 * say HELLO and nothing else, in a small buffer and for a short time. */
#define _GNU_SOURCE
#include "handshake.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent.h"
#include "boot.h"
#include "conn.h"
#include "frames.h"
#include "guard.h"
#include "loop.h"
#include "msgpack.h"
#include "sha256.h"
#include "util.h"

#define GENERATION 1
#define PENDING_MAX 8
#define HANDSHAKE_MS 5000
#define NONCE_SIZE 16
#define ACCEPT_PAUSE_MS 100

struct pending {
    struct watch watch;
    struct frame_reader in;
    struct timer deadline;
    bool answered; /* the agent's HELLO is out */
    uint8_t host_nonce[NONCE_SIZE];
    uint8_t agent_nonce[NONCE_SIZE];
};

static struct watch listener;
static struct timer listen_again;
static struct pending *pending[PENDING_MAX];

static void free_pending(struct pending *c) {
    timer_stop(&c->deadline);
    watch_close(&c->watch);
    frame_reader_free(&c->in);
    free(c);
}

static void drop_pending(struct pending *c) {
    for (size_t i = 0; i < PENDING_MAX; i++) {
        if (pending[i] == c)
            pending[i] = NULL;
    }
    free_pending(c);
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
static bool send_now(const struct pending *c, uint8_t type, const struct buf *payload) {
    uint8_t header[FRAME_HEADER];
    struct iovec iov[2] = {{header, sizeof(header)}, {payload->data, payload->len}};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};

    frame_put_header(header, 0, type, payload->len);
    return sendmsg(c->watch.fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) ==
           (ssize_t)(sizeof(header) + payload->len);
}

static void refuse(const struct pending *c, const char *code, const char *message) {
    CLEANUP_BUF struct buf b = {0};
    struct mp_map map = mp_open(&b);

    mp_add_str(&map, "code", code);
    mp_add_str(&map, "message", message);
    (void)send_now(c, FRAME_ERROR, &b);
}

static bool answer_hello(struct pending *c, const struct mp_value *hello) {
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

static bool check_proof(struct pending *c, const struct mp_value *hello) {
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

/* Proved: it becomes the host's connection, with whatever has come behind the last HELLO. */
static void promote(struct pending *c) {
    int fd = c->watch.fd;

    watch_set(&c->watch, 0);
    c->watch.fd = -1;
    conn_adopt(fd, &c->in);
    drop_pending(c);
}

/* false: the connection has to go. *PROVED: it is the host's. */
static bool take_hello(struct pending *c, const struct frame *frame, bool *proved) {
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
    struct pending *c = CONTAINER_OF(watch, struct pending, watch);
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
    drop_pending(CONTAINER_OF(timer, struct pending, deadline));
}

static void on_listen_again(struct timer *timer) {
    (void)timer;
    watch_set(&listener, EPOLLIN);
}

static void on_listener(struct watch *watch, uint32_t events) {
    int fd = accept4(watch->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct pending *c;
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
        free_pending(c);
        return;
    }
    pending[slot] = c;
    timer_set(&c->deadline, now_ms() + HANDSHAKE_MS);
    watch_set(&c->watch, EPOLLIN);
}

/* The socket's path is the engine's business: once the host has seen it there it may be gone. */
static int listen_at(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (strlen(path) >= sizeof(address.sun_path))
        die_plain("boot configuration: listen");
    strcpy(address.sun_path, path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 16) < 0)
        die("listening socket");
    return fd;
}

void handshake_init(int inherited) {
    int listen_fd = boot.listen ? listen_at(boot.listen) : inherited;

    listener = (struct watch){.fd = listen_fd, .fn = on_listener};
    listen_again.fn = on_listen_again;
    if (set_nonblocking(listen_fd) < 0)
        die("listening socket");
    watch_set(&listener, EPOLLIN);
}
