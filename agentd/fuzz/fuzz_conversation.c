/* sources: conn.c frames.c handshake.c msgpack.c msgpack_encode.c request.c ops.c process_ops.c process.c process_table.c files.c file_request.c streams.c flow.c spool.c relay.c loop.c util.c sha256.c usage.c user.c */
/* agentd as a whole, in conversation: the input is a list of steps, each something that the host, a
 * process, a file worker, a port or the clock does. agentd's own loop runs between them; when they
 * are used up everybody leaves, and then nothing may be left: no process, no descriptor, no memory.
 *
 * What acts is made up: nothing is forked, executed, signalled or connected to. */
#include "../src/agent.c"

#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>

#include "../src/files.h"
#include "../src/frames.h"
#include "../src/guard.h"
#include "../src/msgpack.h"
#include "../src/ops.h"
#include "../src/process.h"
#include "../src/process_table.h"
#include "../src/pty.h"
#include "../src/sha256.h"
#include "../src/streams.h"
#include "../src/supervisor.h"
#include "../src/tree.h"

/* From here on they are the system's own. */
#undef epoll_wait
#undef pipe2
#undef socketpair

#define PEERS 4
#define PORTS 4
#define CHILDREN 64
#define STEPS_MAX 400
#define FIRST_PID 1000

struct boot boot;

static struct taker input;

/* ---- what agentd talks to ---- */

/* Ends of sockets to agentd; those of the host and, accepted or not, of ports. */
static int peers[PEERS] = {-1, -1, -1, -1};
static int waiting[PEERS];
static size_t waiting_count;
static uint32_t next_stream[PEERS];
static int ports[PORTS] = {-1, -1, -1, -1};
static int listen_event = -1, child_signal = -1;

/* A supervisor or a file worker: the other ends of its descriptors. */
struct child {
    pid_t pid; /* 0: none */
    uint64_t serial;
    bool is_worker, started;
    int in, out, err;
    int report;
};
static struct child children[CHILDREN];
static pid_t last_pid = FIRST_PID;

struct waited {
    pid_t pid;
    int status;
};
static struct waited waits[CHILDREN];
static size_t wait_count;

static bool fork_fails, connect_fails, small_buffers, leaving;
static struct tree_kill *orphan_kill;

static void close_it(int *fd) {
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static int copy_of(int fd) {
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);

    promise(copy >= 0);
    (void)set_nonblocking(copy);
    return copy;
}

static struct child *new_child(void) {
    for (size_t i = 0; i < CHILDREN; i++) {
        if (!children[i].pid) {
            children[i] = (struct child){.pid = ++last_pid, .in = -1, .out = -1, .err = -1,
                                         .report = -1};
            return &children[i];
        }
    }
    return NULL;
}

static struct child *nth_child(uint8_t n, bool is_worker) {
    struct child *found = NULL;

    for (size_t i = 0; i < CHILDREN; i++) {
        if (children[i].pid && children[i].is_worker == is_worker) {
            found = &children[i];
            if (n-- == 0)
                break;
        }
    }
    return found;
}

static void end_child(struct child *c, int status) {
    close_it(&c->in);
    close_it(&c->out);
    close_it(&c->err);
    close_it(&c->report);
    promise(wait_count < CHILDREN);
    waits[wait_count++] = (struct waited){c->pid, status};
    c->pid = 0;
}

/* ---- in the place of the system's ---- */

static int last_pipe[2] = {-1, -1}, last_pair[2] = {-1, -1};

/* files.c says by one of a pipe's ends not waiting that it is agentd's. */
static int agent_end(void) { return fcntl(last_pipe[0], F_GETFL) & O_NONBLOCK ? 0 : 1; }

pid_t world_fork(void) {
    struct child *c = fork_fails ? NULL : new_child();

    if (!c) {
        last_pipe[0] = -1;
        errno = EAGAIN;
        return -1;
    }
    c->is_worker = true;
    c->err = copy_of(last_pair[1]);
    if (last_pipe[0] >= 0) {
        if (agent_end() == 0)
            c->out = copy_of(last_pipe[1]);
        else
            c->in = copy_of(last_pipe[0]);
    }
    last_pipe[0] = -1;
    return c->pid;
}

int world_pipe2(int fds[2], int flags) {
    int result = pipe2(fds, flags);

    last_pipe[0] = result ? -1 : fds[0];
    last_pipe[1] = result ? -1 : fds[1];
    return result;
}

int world_socketpair(int domain, int type, int protocol, int fds[2]) {
    int result = socketpair(domain, type, protocol, fds);

    last_pair[1] = result ? -1 : fds[1];
    return result;
}

pid_t supervisor_start(const struct spawn *spawn, uint64_t serial, int report_fd) {
    struct child *c = fork_fails ? NULL : new_child();
    size_t all = strlen(spawn->cwd);

    promise(!spawn->argv[-1] && spawn->argv[0] && spawn->user.group_count <= USER_GROUPS_MAX);
    for (char **word = spawn->argv; *word; word++)
        all += strlen(*word);
    for (char **word = spawn->envp; *word; word++)
        all += strlen(*word);
    __asm__ volatile("" : : "r"(all));
    last_pipe[0] = -1; /* it was not a worker's */
    if (!c) {
        errno = EAGAIN;
        return -1;
    }
    c->serial = serial;
    c->in = copy_of(spawn->in);
    c->out = copy_of(spawn->out);
    c->err = copy_of(spawn->err);
    c->report = copy_of(report_fd);
    return c->pid;
}

int pty_open(const struct user_ids *user, uint64_t rows, uint64_t cols, int *master, int *slave) {
    int fds[2];

    (void)user;
    promise(rows <= UINT16_MAX && cols <= UINT16_MAX);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
        return errno;
    *master = fds[0];
    *slave = fds[1];
    return 0;
}

void pty_resize(int master, uint64_t rows, uint64_t cols) {
    promise(fcntl(master, F_GETFD) >= 0 && rows <= UINT16_MAX && cols <= UINT16_MAX);
}

int world_kill(pid_t pid, int sig) {
    promise(sig > 0 && sig <= 64);
    /* To all is for the end of a sandbox; to itself, or to its own group, is for nothing. */
    promise(pid != 0 && pid != 1 && (pid != -1 || agent_is_ending()));
    promise(pid == -1 || (pid < 0 ? -pid : pid) > FIRST_PID);
    return 0;
}

pid_t world_waitpid(pid_t pid, int *status, int options) {
    struct waited first = waits[0];

    promise(pid == -1 && options & WNOHANG);
    if (!wait_count)
        return 0;
    memmove(waits, waits + 1, --wait_count * sizeof(waits[0]));
    *status = first.status;
    return first.pid;
}

ssize_t world_getrandom(void *to, size_t n) {
    memset(to, 'n', n);
    return (ssize_t)n;
}

/* A pipe of whole records, as a signalfd is. */
int world_signalfd(void) {
    int fds[2];

    promise(pipe2(fds, O_CLOEXEC | O_NONBLOCK) == 0);
    child_signal = fds[1];
    return fds[0];
}

int world_accept(void) {
    uint64_t count;
    int fd;

    if (!waiting_count) {
        (void)!read(listen_event, &count, sizeof(count));
        errno = EAGAIN;
        return -1;
    }
    fd = waiting[0];
    memmove(waiting, waiting + 1, --waiting_count * sizeof(waiting[0]));
    return fd;
}

int world_socket(void) {
    int fds[2], slot = 0;

    while (slot < PORTS && ports[slot] >= 0)
        slot++;
    if (slot == PORTS ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0) {
        errno = EMFILE;
        return -1;
    }
    ports[slot] = fds[1];
    return fds[0];
}

int world_connect(int fd, const struct sockaddr *address, socklen_t size) {
    promise(fd >= 0 && (address->sa_family == AF_INET || address->sa_family == AF_INET6));
    promise(size >= 16);
    if (!connect_fails)
        return 0;
    errno = EINPROGRESS;
    return -1;
}

void tree_init(bool (*is_supervisor)(pid_t pid)) { (void)is_supervisor; }
void tree_kill_start(struct tree_kill *k) {
    k->active = true;
    if (!k->supervisor)
        orphan_kill = k;
}
void tree_kill_stop(struct tree_kill *k) { k->active = false; }
size_t tree_count(void) { return CHILDREN; }
int tree_proc(void) { return -1; } /* no processes to look at */

const char *stage_name(enum stage stage) {
    promise(stage >= STAGE_USER && stage <= STAGE_EXEC);
    return "stage";
}
void guard_first(void) {}
void guard_capabilities(uint64_t mask) { (void)mask; }
void guard_describe(struct mp_map *map) { mp_add_uint(map, "dumpable", 0); }
void boot_read(int fd) { (void)fd; }
__attribute__((noreturn)) void file_worker_main(const struct file_request *r, int in, int out,
                                                int control) {
    (void)r;
    (void)in;
    (void)out;
    (void)control;
    abort();
}

/* ---- the host's side ---- */

static void send_bytes(size_t peer, const void *bytes, size_t n) {
    if (peers[peer] >= 0 && n)
        (void)!send(peers[peer], bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void send_frame(size_t peer, uint32_t stream, uint8_t type, const void *payload, size_t n) {
    CLEANUP_BUF struct buf b = {0};

    frame_put_header(buf_room(&b, FRAME_HEADER), stream, type, n);
    b.len += FRAME_HEADER;
    buf_add(&b, payload, n);
    send_bytes(peer, b.data, b.len);
}

/* A read that ended inside a frame: where the next one begins is not known any more. */
static bool cut[PEERS];

static void connect_peer(size_t peer) {
    int fds[2], small = 1;
    uint64_t one = 1;

    if (waiting_count == PEERS)
        return;
    close_it(&peers[peer]);
    promise(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    if (small_buffers)
        (void)setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
    waiting[waiting_count++] = fds[0];
    peers[peer] = fds[1];
    next_stream[peer] = 1;
    cut[peer] = false;
    (void)!write(listen_event, &one, sizeof(one));
}

/* Both of the host's greetings at once: the agent's nonce is known here. */
static void shake_hands(size_t peer) {
    CLEANUP_BUF struct buf b = {0};
    uint8_t nonce[16], other[16], proof[SHA256_SIZE];
    struct mp_map map;
    struct hmac h;

    memset(nonce, 'h', sizeof(nonce));
    memset(other, 'n', sizeof(other));
    map = mp_open(&b);
    mp_add_array(&map, "gen", 2);
    buf_add(&b, "\x01\x01", 2);
    mp_add_bin(&map, "nonce", nonce, sizeof(nonce));
    send_frame(peer, 0, FRAME_HELLO, b.data, b.len);
    hmac_begin(&h, boot.token, TOKEN_SIZE);
    hmac_add(&h, "agentkernel host", 16);
    hmac_add(&h, other, sizeof(other));
    hmac_add(&h, nonce, sizeof(nonce));
    hmac_end(&h, proof);
    b.len = 0;
    map = mp_open(&b);
    mp_add_bin(&map, "proof", proof, sizeof(proof));
    send_frame(peer, 0, FRAME_HELLO, b.data, b.len);
}

/* What agentd has said so far is read, as frames, and looked at. */
static void read_peer(size_t peer) {
    static uint8_t bytes[1 << 21];
    size_t have = 0, at = 0;
    ssize_t n;

    if (peers[peer] < 0)
        return;
    while (have < sizeof(bytes) &&
           (n = recv(peers[peer], bytes + have, sizeof(bytes) - have, MSG_DONTWAIT)) > 0)
        have += (size_t)n;
    /* Only from a frame's beginning on can anything be said. */
    while (!small_buffers && !cut[peer] && have - at >= FRAME_HEADER) {
        uint32_t length = get_le32(bytes + at);
        uint8_t type = bytes[at + 8];
        struct mp_tree tree;

        promise(length >= FRAME_MIN_LENGTH && length <= FRAME_MAX_LENGTH);
        promise(type >= FRAME_HELLO && type <= FRAME_ERROR && type != FRAME_OPEN);
        if (have - at < 4 + (size_t)length)
            break;
        if (type == FRAME_END || type == FRAME_ERROR) {
            /* A file worker's answer goes through as it is: whose it was is not known here. */
            if (!mp_parse(&tree, bytes + at + FRAME_HEADER, length - FRAME_MIN_LENGTH))
                mp_free(&tree);
        }
        at += 4 + (size_t)length;
    }
    cut[peer] |= at < have;
}

static const char *const ops_by_number[] = {
    "exec",       "attach",    "list",       "signal",     "forget",     "ping",        "stats",
    "tcp",        "shutdown",  "file.stat",  "file.read",  "file.write", "file.list",   "file.mkdir",
    "file.move",  "file.remove", "tree.read", "tree.write", "file.watch", "no.such",
};

static void add_id(struct mp_map *map, uint8_t which) {
    char id[PROCESS_ID_LEN + 1];

    memset(id, 'a' + which % 6, PROCESS_ID_LEN);
    id[PROCESS_ID_LEN] = '\0';
    mp_add_str(map, "id", id);
}

static void open_stream(size_t peer, struct taker *t) {
    CLEANUP_BUF struct buf b = {0};
    struct mp_map map = mp_open(&b), inner;
    uint8_t op = take_byte(t) % COUNT_OF(ops_by_number), id = take_byte(t);
    uint32_t bits = take_number(t, 2);

    mp_add_str(&map, "op", ops_by_number[op]);
    if (op < 2 || op == 3 || op == 4)
        add_id(&map, id);
    if (op == 0) {
        mp_add_array(&map, "argv", 2);
        buf_add(&b, "\xa2sh\xa1x", 5);
    }
    if (op >= 9) {
        mp_add_str(&map, "path", "/tmp/x");
        mp_add_str(&map, "to", "/tmp/y");
    }
    if (bits & 1)
        mp_add_bool(&map, "stdin", true);
    if (bits & 2) {
        inner = mp_add_map(&map, "pty");
        mp_add_uint(&inner, "rows", take_number(t, 2));
    }
    if (bits & 4)
        mp_add_bool(&map, "job", true);
    if (bits & 8)
        mp_add_uint(&map, "timeout_ms", take_number(t, 2));
    if (bits & 16)
        mp_add_uint(&map, "window", take_number(t, 3));
    if (bits & 32)
        mp_add_uint(&map, "spool", take_number(t, 3));
    if (bits & 64)
        mp_add_uint(&map, "lost_ms", take_number(t, 2));
    if (bits & 128)
        mp_add_uint(&map, "out", take_number(t, 3));
    if (bits & 256)
        mp_add_uint(&map, "signal", take_byte(t));
    if (bits & 512)
        mp_add_bool(&map, "kill", true);
    if (bits & 1024)
        mp_add_uint(&map, "port", take_number(t, 2));
    if (bits & 2048)
        mp_add_str(&map, "user", take_byte(t) % 2 ? "nobody" : "7:8");
    if (bits & 4096)
        mp_add_uint(&map, "grace_ms", take_number(t, 2));
    send_frame(peer, next_stream[peer], FRAME_OPEN, b.data, b.len);
    next_stream[peer] += 2;
}

static void send_control(size_t peer, uint32_t stream, struct taker *t) {
    static const uint8_t channel = CHANNEL_CONTROL;
    CLEANUP_BUF struct buf b = {0};
    struct mp_map map;
    uint8_t bits = take_byte(t);

    buf_add(&b, &channel, 1);
    map = mp_open(&b);
    if (bits & 1)
        mp_add_bool(&map, "eof", true);
    if (bits & 2)
        mp_add_bool(&map, "kill", bits & 32);
    if (bits & 4)
        mp_add_uint(&map, "signal", take_byte(t));
    if (bits & 8)
        mp_add_uint(&map, "rows", take_number(t, 3));
    if (bits & 16)
        mp_add_uint(&map, "cols", take_number(t, 2));
    send_frame(peer, stream, FRAME_DATA, b.data, b.len);
}

static void send_input(size_t peer, uint32_t stream, struct taker *t) {
    static uint8_t payload[1 << 18];
    size_t n = take_number(t, 3) % sizeof(payload);

    payload[0] = take_byte(t) % 5;
    payload[n] = take_byte(t);
    send_frame(peer, stream, FRAME_DATA, payload, n + 1);
}

/* ---- the guest's side ---- */

static void report(struct child *c, struct taker *t) {
    struct report r = {.serial = c->serial, .supervisor = c->pid, .pid = c->pid + 100000};
    uint8_t kind = take_byte(t);

    r.kind = c->started ? REPORT_EXITED : kind % 4 ? REPORT_STARTED : REPORT_NOT_STARTED;
    r.status = kind;
    r.err = ENOENT;
    r.stage = STAGE_EXEC;
    r.usage.cpu_us = kind;
    c->started = true;
    (void)!write(c->report, &r, sizeof(r));
}

static void produce(int fd, size_t n) {
    static uint8_t bytes[1 << 17];

    if (fd >= 0)
        (void)!write(fd, bytes, n % sizeof(bytes));
}

static void consume(int fd) {
    static uint8_t bytes[1 << 17];

    if (fd >= 0)
        (void)!read(fd, bytes, sizeof(bytes));
}

static void act_as_process(struct child *c, struct taker *t) {
    uint8_t what = take_byte(t);

    if (!c)
        return;
    if (what % 8 < 2)
        report(c, t);
    else if (what % 8 == 2)
        produce(what & 8 ? c->err : c->out, take_number(t, 3));
    else if (what % 8 == 3)
        consume(c->in);
    else if (what % 8 == 4)
        close_it(what & 8 ? &c->err : &c->out);
    else if (what % 8 == 5)
        close_it(&c->in);
    else
        end_child(c, what & 8 ? 0x7f & SIGKILL : 0);
}

static void act_as_worker(struct child *c, struct taker *t) {
    uint8_t what = take_byte(t);
    const uint8_t *bytes;
    size_t n;

    if (!c)
        return;
    switch (what % 6) {
    case 0:
        produce(c->out, take_number(t, 3));
        break;
    case 1:
        consume(c->in);
        break;
    case 2:
        bytes = take_bytes(t, take_byte(t), &n);
        (void)!send(c->err, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        break;
    case 3:
        (void)!send(c->err, "E\x80", 2, MSG_DONTWAIT | MSG_NOSIGNAL);
        close_it(&c->out);
        break;
    case 4:
        close_it(what & 8 ? &c->in : &c->out);
        break;
    default:
        end_child(c, what & 8 ? SIGKILL : 0);
    }
}

static void act_as_port(uint8_t which, struct taker *t) {
    int *fd = &ports[which % PORTS];
    uint8_t what = take_byte(t);

    if (what % 4 == 0)
        produce(*fd, take_number(t, 3));
    else if (what % 4 == 1)
        consume(*fd);
    else if (what % 4 == 2 && *fd >= 0)
        (void)shutdown(*fd, SHUT_WR);
    else
        close_it(fd);
}

/* ---- steps ---- */

static void step(struct taker *t) {
    uint8_t what = take_byte(t), who = take_byte(t);
    size_t peer = who % PEERS, n;
    uint32_t stream = (uint32_t)(who / PEERS) * 2 + 1;
    const uint8_t *bytes;
    uint8_t type;

    switch (what % 16) {
    case 0:
        connect_peer(peer);
        shake_hands(peer);
        break;
    case 1:
        connect_peer(peer);
        break;
    case 2:
        bytes = take_bytes(t, take_number(t, 2), &n);
        send_bytes(peer, bytes, n);
        break;
    case 3:
        type = take_byte(t);
        bytes = take_bytes(t, take_number(t, 2), &n);
        send_frame(peer, type & 128 ? next_stream[peer] : stream, type % 8, bytes, n);
        if (type & 128)
            next_stream[peer] += 2;
        break;
    case 4:
    case 5:
        open_stream(peer, t);
        break;
    case 6:
        send_input(peer, stream, t);
        break;
    case 7: {
        uint8_t credit[5] = {take_byte(t) % 4};

        put_le32(credit + 1, take_number(t, what & 16 ? 4 : 2));
        send_frame(peer, stream, FRAME_CREDIT, credit, sizeof(credit));
        break;
    }
    case 8:
        send_control(peer, stream, t);
        break;
    case 9:
        send_frame(peer, stream, FRAME_END, "\x80", 1);
        break;
    case 10:
    case 11:
        act_as_process(nth_child(who, false), t);
        break;
    case 12:
        act_as_worker(nth_child(who, true), t);
        break;
    case 13:
        act_as_port(who, t);
        break;
    case 14:
        world_pass_ms(INT64_C(1) << who % 18);
        break;
    default:
        if (who & 128)
            close_it(&peers[peer]);
        else
            read_peer(peer);
        fork_fails = who & 64;
        connect_fails = who & 32;
    }
}

/* ---- the end: everybody leaves ---- */

static void forget_one(struct process *p, void *context) {
    CLEANUP_BUF struct buf b = {0};
    struct mp_map map = mp_open(&b);

    (void)context;
    mp_add_str(&map, "op", "forget");
    mp_add_str(&map, "id", p->id);
    send_frame(0, next_stream[0], FRAME_OPEN, b.data, b.len);
    next_stream[0] += 2;
}

static void leave_children(void) {
    for (size_t i = 0; i < CHILDREN; i++) {
        if (children[i].pid)
            end_child(&children[i], 0);
    }
}

/* One thing a turn; false when nothing is left to do. */
static bool leave(int turn) {
    /* What a host had sent before it left may still begin a process. */
    leave_children();
    switch (turn) {
    case 0:
        fork_fails = connect_fails = small_buffers = false;
        for (size_t i = 0; i < PEERS; i++)
            close_it(&peers[i]);
        for (size_t i = 0; i < PORTS; i++)
            close_it(&ports[i]);
        return true;
    case 4:
        if (orphan_kill)
            orphan_kill->active = false;
        return true;
    case 1:
    case 2:
    case 3:
    case 5:
        world_pass_ms(200000); /* beyond every timer of an input */
        return true;
    case 6:
        connect_peer(0);
        shake_hands(0);
        return true;
    case 9:
        process_each(forget_one, NULL);
        return true;
    case 12:
        close_it(&peers[0]);
        return true;
    default:
        world_pass_ms(5000);
        return turn < 20;
    }
}

static int steps, turns;

int world_epoll_wait(int fd, struct epoll_event *events, int most, int timeout) {
    struct signalfd_siginfo info = {0};

    (void)timeout; /* the clock moves by steps only */
    if (!leaving && (taker_empty(&input) || ++steps > STEPS_MAX))
        leaving = true;
    if (!leaving)
        step(&input);
    else if (!leave(turns++))
        world_leave(0);
    if (wait_count)
        (void)!write(child_signal, &info, sizeof(info));
    return epoll_wait(fd, events, most, 0);
}

static void body(void *context) {
    (void)context;
    loop_run(settle);
}

static void begin(void) {
    static const uint8_t token[TOKEN_SIZE] = "the token of a fuzzed sandbox...";

    boot = (struct boot){.token = token, .single_uid = -1, .spool_max = 1 << 22, .umask = 022};
    spool_set_budget(boot.spool_max);
    (void)signal(SIGPIPE, SIG_IGN); /* agentd has it blocked */
    loop_init();
    no_host.fn = on_no_host;
    ending_timer.fn = on_ending;
    process_init();
    conn_init();
    listen_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    handshake_init(listen_event);
}

static void converse(const uint8_t *data, size_t size) {
    input = (struct taker){data, data + size};
    boot.ephemeral = false;
    if (size) {
        uint8_t how = take_byte(&input);

        boot.ephemeral = how & 1;
        small_buffers = how & 2;
    }
    leaving = false;
    steps = turns = 0;
    /* A sandbox that has ended by itself is begun again, so that its end can be looked at: also one
     * that ended while everybody was leaving, who then leave once more. */
    for (int lives = 0; !world_runs(body, NULL) && !(leaving && turns > 20); lives++) {
        promise(world_status == 0 && lives < 4);
        leaving = true;
        turns = 0;
        ending = ending_killed = false;
        ending_stream = 0;
        timer_stop(&ending_timer);
        boot.ephemeral = false;
    }
    ending = ending_killed = false;
    timer_stop(&ending_timer);
    spool_trim();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static size_t memory, descriptors;

    if (!memory) {
        begin();
        /* Once around, so that what is made at its first use is there. */
        converse((const uint8_t *)"\0\0\0", 3);
        memory = world_allocations();
        descriptors = world_open_descriptors();
    }
    converse(data, size);
    promise(process_count() == 0 && !process_any_left());
    promise(spool_kept() == 0);
    promise(world_allocations() == memory);
    /* libFuzzer's own thread has one open now and then. */
    for (int tries = 0; tries < 100 && world_open_descriptors() != descriptors; tries++)
        usleep(1000);
    promise(world_open_descriptors() == descriptors);
    return 0;
}
