/* `tree.read`: every entry below a directory, in the order of their paths' components. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file_entry.h"
#include "file_levels.h"
#include "file_path.h"
#include "file_worker.h"

#define PIECE 65536u

static uint64_t files, bytes, skipped;
/* One entry; its memory is used again for the next. */
static struct buf record;

static __attribute__((noreturn)) void too_much(const char *path) {
    worker_refuse("limit", "the tree is larger than was allowed", path);
}

static void describe(const char *path, const struct stat *st, int dir, const char *name) {
    struct mp_map map = mp_open(&record);

    mp_add_bin(&map, "path", path, strlen(path));
    entry_add(&map, st, dir, name);
    worker_record(&record);
}

/* Exactly SIZE bytes, whatever has become of the file: the reader counts on them. */
static void send_content(int fd, uint64_t size) {
    static uint8_t piece[PIECE];
    bool over = false;

    while (size) {
        size_t want = size < PIECE ? (size_t)size : PIECE;
        ssize_t n = over ? 0 : read(fd, piece, want);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            over = true;
            memset(piece, 0, want);
            n = (ssize_t)want;
        }
        worker_write(piece, (size_t)n);
        size -= (uint64_t)n;
    }
}

static void read_file(const struct file_request *r, struct levels *l, const char *name) {
    /* O_NONBLOCK: by now it may be a FIFO. */
    CLEANUP_CLOSE int fd = openat(levels_fd(l), name,
                                  O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    const char *path = levels_path(l, name);
    struct stat st;

    if (fd < 0 && (errno == ENOENT || errno == ELOOP || errno == ENXIO))
        return; /* gone, or another thing than a moment ago */
    if (fd < 0 || fstat(fd, &st) < 0)
        worker_fail(errno, path);
    if (!S_ISREG(st.st_mode)) {
        skipped++;
        return;
    }
    if (st.st_size < 0 || (uint64_t)st.st_size > r->limit_bytes - bytes)
        too_much(path);
    files++;
    bytes += (uint64_t)st.st_size;
    describe(path, &st, fd, "");
    send_content(fd, (uint64_t)st.st_size);
}

static void read_entry(const struct file_request *r, struct levels *l, const char *name) {
    const char *path = levels_path(l, name);
    struct stat st;

    if (fstatat(levels_fd(l), name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno == ENOENT)
            return;
        worker_fail(errno, path);
    }
    if (strlen(path) >= FILE_PATH_MAX)
        worker_fail(ENAMETOOLONG, path);
    if (files >= r->limit_files)
        too_much(path);
    if (S_ISREG(st.st_mode)) {
        read_file(r, l, name);
    } else if (S_ISLNK(st.st_mode)) {
        files++;
        describe(path, &st, levels_fd(l), name);
    } else if (S_ISDIR(st.st_mode)) {
        files++;
        describe(path, &st, levels_fd(l), name);
        if (levels_enter(l, levels_fd(l), name, (size_t)(r->limit_files - files)) < 0) {
            if (errno == EOVERFLOW)
                too_much(levels_path(l, name));
            if (errno != ENOENT && errno != ELOOP && errno != ENOTDIR)
                worker_fail(errno, levels_path(l, name));
        }
    } else {
        skipped++;
    }
}

void file_do_tree_read(const struct file_request *r) {
    CLEANUP_BUF struct buf b = {0};
    struct mp_map map = mp_open(&b);
    struct levels l = {0};
    int at = path_open(AT_FDCWD, r->path, O_DIRECTORY);

    if (at < 0 || levels_enter(&l, at, ".", (size_t)r->limit_files) < 0) {
        if (errno == EOVERFLOW)
            too_much(r->path);
        worker_fail(errno, r->path);
    }
    while (l.depth) {
        const char *name = levels_next(&l);

        if (name)
            read_entry(r, &l, name);
        else if (levels_leave(&l) < 0)
            worker_fail(errno, r->path);
    }
    mp_add_uint(&map, "files", files);
    mp_add_uint(&map, "bytes", bytes);
    mp_add_uint(&map, "skipped", skipped);
    worker_end(&b);
}
