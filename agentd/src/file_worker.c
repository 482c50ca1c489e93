/* A worker: from the fork to its answer.
 *
 * Until it has answered it is a copy of agentd in the clothes of a user, so it stays not dumpable
 * for all its life, and of agentd's memory it has only what a fork can't avoid (no output, no
 * token: those are mapped so that children do not get them). Signals stay blocked: a guest's
 * `kill -1` does not break a file call. */
#define _GNU_SOURCE
#include "file_worker.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "file_atomic.h"
#include "msgpack.h"
#include "spawn.h"
#include "sys.h"

#define CONTROL_FD 3
#define BUFFER 65536u

static struct buf pending;
static uint64_t bytes_in;

static __attribute__((noreturn)) void leave(void) {
    atomic_abandon();
    _exit(0);
}

static __attribute__((noreturn)) void answer(enum file_answer kind, const struct buf *map) {
    static const uint8_t empty_map = 0x80;
    CLEANUP_BUF struct buf b = {0};
    uint8_t head = (uint8_t)kind;

    buf_add(&b, &head, 1);
    if (map)
        buf_add(&b, map->data, map->len);
    else
        buf_add(&b, &empty_map, 1);
    atomic_abandon();
    (void)!send(CONTROL_FD, b.data, b.len, MSG_NOSIGNAL);
    _exit(0);
}

void worker_end(const struct buf *map) {
    worker_flush();
    answer(FILE_ANSWER_END, map);
}

void worker_refuse(const char *code, const char *why, const char *path) {
    CLEANUP_BUF struct buf b = {0};
    struct mp_map map = mp_open(&b);

    mp_add_str(&map, "code", code);
    mp_add_str(&map, "message", why);
    if (path)
        mp_add_bin(&map, "path", path, strnlen(path, FILE_PATH_MAX));
    worker_flush();
    answer(FILE_ANSWER_ERROR, &b);
}

void worker_fail(int err, const char *path) { worker_refuse(errno_name(err), strerror(err), path); }

/* Nobody reads any more when it fails: the stream was released. */
static void put(const void *bytes, size_t n) {
    if (write_all(1, bytes, n) < 0)
        leave();
}

void worker_flush(void) {
    put(pending.data, pending.len);
    pending.len = 0;
}

void worker_write(const void *bytes, size_t n) {
    if (pending.len + n > BUFFER)
        worker_flush();
    if (n >= BUFFER)
        put(bytes, n);
    else
        buf_add(&pending, bytes, n);
}

void worker_record(struct buf *map) {
    uint8_t head[4];

    put_le32(head, (uint32_t)map->len);
    worker_write(head, sizeof(head));
    worker_write(map->data, map->len);
    map->len = 0;
}

size_t worker_read(void *bytes, size_t n) {
    for (;;) {
        ssize_t got = read(0, bytes, n);

        if (got >= 0) {
            bytes_in += (uint64_t)got;
            return (size_t)got;
        }
        if (errno != EINTR)
            leave();
    }
}

bool worker_is_complete(void) {
    uint64_t all;
    ssize_t n;

    do
        n = recv(CONTROL_FD, &all, sizeof(all), 0);
    while (n < 0 && errno == EINTR);
    return n == sizeof(all) && all == bytes_in;
}

static void become(const struct file_request *r) {
    enum stage stage;
    int err;

    (void)setsid();
    err = spawn_drop_rights(&r->user, 0, &stage);
    /* Where a change of ids sets it anew (fs.suid_dumpable). */
    if (!err && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        err = errno;
    if (!err)
        err = spawn_filter();
    if (err)
        worker_refuse(errno_name(err), "the worker could not become the user", NULL);
}

void file_worker_main(const struct file_request *r, int in, int out, int control) {
    static void (*const operations[FILE_OPS])(const struct file_request *r) = {
        [FILE_STAT] = file_do_stat,       [FILE_READ] = file_do_read,
        [FILE_WRITE] = file_do_write,     [FILE_LIST] = file_do_list,
        [FILE_MKDIR] = file_do_mkdir,     [FILE_MOVE] = file_do_move,
        [FILE_REMOVE] = file_do_remove,   [TREE_READ] = file_do_tree_read,
        [TREE_WRITE] = file_do_tree_write, [FILE_WATCH] = file_do_watch,
    };

    (void)prctl(PR_SET_NAME, "file-worker", 0, 0, 0);
    /* Descriptor 0 to 2 of agentd are /dev/null. */
    if ((in >= 0 && dup2(in, 0) < 0) || (out >= 0 && dup2(out, 1) < 0) ||
        dup2(control, CONTROL_FD) < 0)
        _exit(70);
    close_from(CONTROL_FD + 1);
    become(r);
    operations[r->op](r);
    leave();
}
