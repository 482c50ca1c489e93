/* `tree.write`: entries as `tree.read` gives them, made below a directory.
 *
 * The directory is opened once, and from then on everything is relative to it and goes through no
 * link: not one that an earlier entry made, nor one that a process of the sandbox puts there while
 * this runs. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file_atomic.h"
#include "file_path.h"
#include "file_worker.h"
#include "msgpack.h"

#define PIECE 65536u

/* One entry of the stream. */
struct item {
    char *path;
    char *target;
    const struct mp_value *type;
    uint64_t size, mode, mtime_ms, uid, gid;
    bool has_mode, has_mtime;
};

static uint64_t files, bytes;
static int root;

/* The parent of the entry before: most have the same. */
static char last_parent[FILE_PATH_MAX];
static int last_dir = -1;

static __attribute__((noreturn)) void bad(const char *why, const char *path) {
    worker_refuse("bad_request", why, path);
}

/* False at the end of the content, if nothing of it was read. */
static bool take(void *to, size_t n) {
    size_t done = 0;

    while (done < n) {
        size_t got = worker_read((uint8_t *)to + done, n - done);

        if (got == 0) {
            if (done == 0)
                return false;
            bad("the content ends inside an entry", NULL);
        }
        done += got;
    }
    return true;
}

static void parse(const struct mp_value *map, struct item *item) {
    if (mp_get_text(map, "path", &item->path) != MP_OK || !path_is_clean(item->path) ||
        strlen(item->path) >= FILE_PATH_MAX)
        bad("path", item->path);
    item->type = mp_get(map, "type");
    if (!item->type || item->type->type != MP_STR)
        bad("type", item->path);
    item->has_mode = mp_get(map, "mode") != NULL;
    item->has_mtime = mp_get(map, "mtime_ms") != NULL;
    if (mp_get_uint(map, "size", INT64_MAX, &item->size) == MP_WRONG)
        bad("size", item->path);
    if (mp_get_uint(map, "mode", 07777, &item->mode) == MP_WRONG)
        bad("mode", item->path);
    if (mp_get_uint(map, "mtime_ms", INT64_MAX, &item->mtime_ms) == MP_WRONG)
        bad("mtime_ms", item->path);
    if (mp_get_uint(map, "uid", UINT32_MAX - 1, &item->uid) == MP_WRONG)
        bad("uid", item->path);
    if (mp_get_uint(map, "gid", UINT32_MAX - 1, &item->gid) == MP_WRONG)
        bad("gid", item->path);
    if (mp_get_text(map, "target", &item->target) == MP_WRONG)
        bad("target", item->path);
}

/* The directory that ITEM goes into, made if need be; its name in it goes to NAME. */
static int parent_of(const struct item *item, const char **name) {
    const char *slash = strrchr(item->path, '/');
    size_t n = slash ? (size_t)(slash - item->path) : 0;

    *name = slash ? slash + 1 : item->path;
    if (last_dir >= 0 && strlen(last_parent) == n && memcmp(last_parent, item->path, n) == 0)
        return last_dir;
    if (last_dir >= 0)
        close(last_dir);
    memcpy(last_parent, item->path, n);
    last_parent[n] = '\0';
    last_dir = path_beneath(root, last_parent, true);
    if (last_dir < 0)
        worker_fail(errno, item->path);
    return last_dir;
}

static void set_time(int fd, const struct item *item) {
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
                                {.tv_sec = (time_t)(item->mtime_ms / 1000),
                                 .tv_nsec = (long)(item->mtime_ms % 1000) * 1000000}};

    if (item->has_mtime)
        (void)futimens(fd, times);
}

/* Owner and mode as the entry has them. An id that does not exist in here stays ours. */
static void set_owner(int fd, const struct item *item) {
    (void)!fchown(fd, (uid_t)item->uid, (gid_t)item->gid);
    if (item->has_mode)
        (void)fchmod(fd, (mode_t)item->mode);
}

static void make_file(const struct file_request *r, const struct item *item) {
    static uint8_t piece[PIECE];
    const char *name;
    int dir = parent_of(item, &name), fd;
    struct stat old;

    if (item->size > r->limit_bytes - bytes)
        worker_refuse("limit", "the tree is larger than was allowed", item->path);
    if (fstatat(dir, name, &old, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(old.st_mode))
        worker_fail(EISDIR, item->path);
    fd = atomic_begin(dir);
    if (fd < 0)
        worker_fail(errno, item->path);
    for (uint64_t left = item->size; left;) {
        size_t n = left < PIECE ? (size_t)left : PIECE;

        n = worker_read(piece, n);
        if (n == 0)
            bad("the content ends inside an entry", item->path);
        if (write_all(fd, piece, n) < 0)
            worker_fail(errno, item->path);
        left -= n;
    }
    bytes += item->size;
    atomic_resemble(fd, NULL, item->has_mode, (mode_t)item->mode);
    if (r->owners)
        set_owner(fd, item);
    set_time(fd, item);
    if (atomic_commit(name) < 0)
        worker_fail(errno, item->path);
}

static void make_directory(const struct file_request *r, const struct item *item) {
    const char *name;
    int dir = parent_of(item, &name);
    mode_t mask = umask(0), mode = item->has_mode ? (mode_t)item->mode & 0777 : 0777 & ~mask;
    struct stat st;
    int result, fd;

    /* The owner may always go in and add: the entries below come later. */
    result = mkdirat(dir, name, mode | 0700);
    umask(mask);
    if (result < 0 && (errno != EEXIST || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0))
        worker_fail(errno, item->path);
    if (result < 0 && !S_ISDIR(st.st_mode))
        worker_fail(S_ISLNK(st.st_mode) ? ELOOP : ENOTDIR, item->path);
    if (!r->owners)
        return;
    fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        worker_fail(errno, item->path);
    set_owner(fd, item);
    close(fd);
}

static void make_link(const struct file_request *r, const struct item *item) {
    const char *name;
    int dir = parent_of(item, &name);

    if (!item->target || !*item->target)
        bad("target", item->path);
    if (atomic_link(dir, name, item->target) < 0)
        worker_fail(errno, item->path);
    if (r->owners)
        (void)!fchownat(dir, name, (uid_t)item->uid, (gid_t)item->gid, AT_SYMLINK_NOFOLLOW);
}

static void make(const struct file_request *r, const struct item *item) {
    if (files >= r->limit_files)
        worker_refuse("limit", "the tree is larger than was allowed", item->path);
    if (mp_equals(item->type, "file"))
        make_file(r, item);
    else if (mp_equals(item->type, "dir"))
        make_directory(r, item);
    else if (mp_equals(item->type, "link"))
        make_link(r, item);
    else
        bad("type", item->path);
    files++;
}

static int open_root(const struct file_request *r) {
    bool made;

    return r->parents ? path_make(r->path, false, 0, &made)
                      : path_open(AT_FDCWD, r->path, O_DIRECTORY);
}

void file_do_tree_write(const struct file_request *r) {
    static uint8_t record[FILE_RECORD_MAX];
    CLEANUP_BUF struct buf b = {0};
    struct mp_map map = mp_open(&b);
    uint8_t head[4];

    root = open_root(r);
    if (root < 0)
        worker_fail(errno, r->path);
    while (take(head, sizeof(head))) {
        uint32_t size = get_le32(head);
        struct item item = {0};
        struct mp_tree tree;

        if (size > sizeof(record) || !take(record, size) || mp_parse(&tree, record, size))
            bad("not an entry", NULL);
        parse(tree.root, &item);
        make(r, &item);
        mp_free(&tree);
        free(item.path);
        free(item.target);
    }
    if (!worker_is_complete())
        worker_fail(ECANCELED, r->path);
    mp_add_uint(&map, "files", files);
    mp_add_uint(&map, "bytes", bytes);
    worker_end(&b);
}
