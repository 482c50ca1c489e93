/* sources: file_ops.c file_path.c file_atomic.c file_levels.c file_entry.c file_request.c request.c msgpack.c msgpack_encode.c util.c */
/* A file operation from its request to its answer, in a root of its own: what comes from the host
 * (the request, the content, a stream of tree entries) and what a guest has put there (links, pipes,
 * deep directories).
 *
 * The input: u16 length of the request, the request, the content. The root has an inner directory
 * /in; a request that stays below it may change nothing outside. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

/* Their counters begin anew with every input. */
#define files tree_write_files
#define bytes tree_write_bytes
#include "../src/file_tree_write.c"
#undef files
#undef bytes
#undef PIECE
#define files tree_read_files
#define bytes tree_read_bytes
#include "../src/file_tree_read.c"
#undef files
#undef bytes
#include "../src/file_remove.c"

#include "../src/boot.h"
#include "../src/files.h"

struct boot boot = {.single_uid = -1, .spool_max = 1000};

static struct taker content;
static uint64_t written;
static bool complete, refused;
static struct file_request request;

#define MOST 4194304u

/* ---- the worker, without a process of its own ---- */

void worker_end(const struct buf *map) {
    struct mp_tree tree;

    if (map) {
        promise(mp_parse(&tree, map->data, map->len) == NULL && tree.root->type == MP_MAP);
        promise(map->len < FILE_ANSWER_MAX);
    }
    world_leave(0);
}

void worker_refuse(const char *code, const char *why, const char *path) {
    promise(code && why);
    if (path)
        (void)strnlen(path, FILE_PATH_MAX);
    refused = true;
    world_leave(1);
}

void worker_fail(int err, const char *path) {
    promise(err > 0 && err < 4096);
    worker_refuse(errno_name(err), strerror(err), path);
}

void worker_write(const void *bytes, size_t n) {
    uint8_t sum = 0;

    for (size_t i = 0; i < n; i++)
        sum ^= ((const uint8_t *)bytes)[i];
    __asm__ volatile("" : : "r"(sum));
    written += n;
    if (written > MOST)
        world_leave(2); /* nobody reads any more */
}

void worker_flush(void) {}

void worker_record(struct buf *map) {
    struct mp_tree tree;

    promise(map->len <= FILE_RECORD_MAX && mp_parse(&tree, map->data, map->len) == NULL);
    mp_free(&tree);
    worker_write(map->data, map->len);
    map->len = 0;
}

size_t worker_read(void *bytes, size_t n) {
    size_t got;
    const uint8_t *from = take_bytes(&content, n, &got);

    if (got)
        memcpy(bytes, from, got);
    return got;
}

bool worker_is_complete(void) { return complete; }

ssize_t world_getrandom(void *to, size_t n) {
    static uint8_t next;

    memset(to, ++next, n);
    return (ssize_t)n;
}

void file_do_watch(const struct file_request *r) {
    (void)r;
    world_leave(0); /* would wait for ever */
}

/* ---- the place ---- */

static void put_file(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);

    if (fd < 0)
        return;
    promise(write_all(fd, text, strlen(text)) == 0);
    close(fd);
}

/* By the code that is on trial. */
static void remove_it(void *context) {
    struct file_request r = {.op = FILE_REMOVE, .path = context, .recursive = true};

    file_do_remove(&r);
}

/* All that an input has left is gone before the next one. */
static void clean_place(void) {
    DIR *top = opendir("/");
    struct dirent *entry;
    char path[NAME_MAX + 2];

    promise(top);
    while ((entry = readdir(top))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") ||
            !strcmp(entry->d_name, "proc") || !strcmp(entry->d_name, "work"))
            continue; /* the last is where a crash is written to */
        snprintf(path, sizeof(path), "/%s", entry->d_name);
        (void)world_runs(remove_it, path);
        world_free_all();
        promise(access(path, F_OK) < 0);
    }
    closedir(top);
}

static void make_place(void) {
    clean_place();
    (void)mkdir("/in", 0700);
    (void)mkdir("/in/d", 0755);
    (void)mkdir("/in/d/e", 0755);
    put_file("/in/f", "some bytes");
    put_file("/in/d/g", "");
    (void)!symlink("../out", "/in/up");
    (void)!symlink("/out/secret", "/in/d/secret");
    (void)!symlink("loop", "/in/loop");
    (void)!symlink("d/new", "/in/dangling");
    (void)mkfifo("/in/fifo", 0600);
    (void)mkdir("/out", 0700);
    put_file("/out/secret", "untouched");
}

static void check_outside(void) {
    char text[32] = "";
    struct stat st;
    int fd = open("/out/secret", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    promise(fd >= 0 && read(fd, text, sizeof(text) - 1) == 9 && !strcmp(text, "untouched"));
    close(fd);
    promise(stat("/out", &st) == 0 && st.st_nlink == 2); /* no new directory in it */
    promise(access("/out/new", F_OK) < 0 && access("/escaped", F_OK) < 0);
}

static void body(void *context) {
    static void (*const operations[FILE_OPS])(const struct file_request *r) = {
        [FILE_STAT] = file_do_stat,       [FILE_READ] = file_do_read,
        [FILE_WRITE] = file_do_write,     [FILE_LIST] = file_do_list,
        [FILE_MKDIR] = file_do_mkdir,     [FILE_MOVE] = file_do_move,
        [FILE_REMOVE] = file_do_remove,   [TREE_READ] = file_do_tree_read,
        [TREE_WRITE] = file_do_tree_write, [FILE_WATCH] = file_do_watch,
    };

    (void)context;
    operations[request.op](&request);
}

/* tree.write and tree.read below /in, whatever the entries are, never go through a link; so nothing
 * outside changes. The others follow links, as their callers want them to. */
static bool must_stay_inside(void) {
    return !strcmp(request.path, "/in") && (request.op == TREE_WRITE || request.op == TREE_READ ||
                                            request.op == FILE_STAT || request.op == FILE_LIST);
}

static int old_root = -1;

static void enter_arena(void) {
    if (old_root < 0)
        old_root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    promise(old_root >= 0 && chroot("/arena") == 0 && chdir("/") == 0);
}

static void leave_arena(void) {
    promise(fchdir(old_root) == 0 && chroot(".") == 0 && chdir("/") == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct taker t = {data, data + size};
    struct mp_tree tree;
    size_t n;
    const uint8_t *bytes = take_bytes(&t, take_number(&t, 2), &n);
    char *user = NULL;

    if (mp_parse(&tree, bytes, n))
        return 0;
    if (file_request_parse(tree.root, &request, &user)) {
        mp_free(&tree);
        return 0;
    }
    enter_arena();
    umask(022);
    make_place();
    /* Made places free everything, so the request is read again. */
    promise(!mp_parse(&tree, bytes, n) && !file_request_parse(tree.root, &request, &user));
    content = t;
    complete = size % 8 != 0;
    written = 0;
    refused = false;
    tree_write_files = tree_write_bytes = tree_read_files = tree_read_bytes = skipped = 0;
    removed = 0;
    record = (struct buf){0};
    root = last_dir = -1;
    (void)world_runs(body, NULL);
    (void)world_runs((void (*)(void *))atomic_abandon, NULL);
    if (must_stay_inside())
        check_outside();
    world_free_all();
    (void)syscall(SYS_close_range, (unsigned)old_root + 1, ~0U, 0);
    leave_arena();
    return 0;
}
