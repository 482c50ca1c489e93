/* `file.read`, `file.write`, `file.mkdir`, `file.move`. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "file_atomic.h"
#include "file_entry.h"
#include "file_path.h"
#include "file_worker.h"
#include "sys.h"

#define PIECE 65536u
/* Files of procfs and the like say that they are empty; so much is read of them. */
#define SIZELESS_MAX 1048576u
#define PROC_MAGIC 0x9fa0
#define TRIES 16

/* renameat2(2) */
#define NOREPLACE 1u

void file_do_read(const struct file_request *r) {
    static uint8_t piece[PIECE];
    CLEANUP_BUF struct buf b = {0};
    struct mp_map map = mp_open(&b);
    int at = path_open(AT_FDCWD, r->path, 0);
    int fd = at < 0 ? -1 : path_reopen(at, O_RDONLY, r->path);
    uint64_t size, left, sent = 0;
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        worker_fail(errno, r->path);
    size = st.st_size > 0 ? (uint64_t)st.st_size : 0;
    left = size ? (r->offset < size ? size - r->offset : 0) : SIZELESS_MAX;
    if (left > r->length)
        left = r->length;
    if (r->offset && left && lseek(fd, (off_t)r->offset, SEEK_SET) < 0)
        worker_fail(errno, r->path);
    while (left) {
        ssize_t n = read(fd, piece, left < PIECE ? (size_t)left : PIECE);

        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0 || (n < 0 && errno == EAGAIN))
            break;
        if (n < 0)
            worker_fail(errno, r->path);
        worker_write(piece, (size_t)n);
        left -= (uint64_t)n;
        sent += (uint64_t)n;
    }
    mp_add_uint(&map, "size", size);
    mp_add_uint(&map, "mtime_ms", entry_mtime(&st));
    mp_add_uint(&map, "sent", sent);
    worker_end(&b);
}

/* ---- write ---- */

static uint64_t take_content(int fd, const char *path) {
    static uint8_t piece[PIECE];
    uint64_t size = 0;
    size_t n;

    while ((n = worker_read(piece, sizeof(piece)))) {
        if (write_all(fd, piece, n) < 0)
            worker_fail(errno, path);
        size += n;
    }
    return size;
}

static int open_to_append(const struct file_request *r, const struct place *place) {
    for (int i = 0; i < TRIES; i++) {
        int at = openat(place->dir, place->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        int fd;

        if (at >= 0) {
            struct statfs fs;

            if (fstatfs(at, &fs) == 0 && fs.f_type == PROC_MAGIC)
                worker_refuse("special", "not a regular file", r->path);
            return path_reopen(at, O_WRONLY | O_APPEND, r->path);
        }
        if (errno != ENOENT)
            return -1;
        fd = openat(place->dir, place->name,
                    O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (fd >= 0 && r->has_mode)
            (void)fchmod(fd, (mode_t)r->mode);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    errno = EBUSY;
    return -1;
}

static __attribute__((noreturn)) void wrote(uint64_t size) {
    CLEANUP_BUF struct buf b = {0};
    struct mp_map map = mp_open(&b);

    mp_add_uint(&map, "size", size);
    worker_end(&b);
}

static void append(const struct file_request *r, const struct place *place) {
    int fd = open_to_append(r, place);
    struct stat st;

    if (fd < 0)
        worker_fail(errno, r->path);
    (void)take_content(fd, r->path);
    if (!worker_is_complete())
        worker_fail(ECANCELED, r->path);
    if (fstat(fd, &st) < 0)
        worker_fail(errno, r->path);
    wrote((uint64_t)st.st_size);
}

static void replace(const struct file_request *r, const struct place *place) {
    struct stat old;
    bool exists = fstatat(place->dir, place->name, &old, AT_SYMLINK_NOFOLLOW) == 0;
    uint64_t size;
    int fd;

    if (exists && S_ISDIR(old.st_mode))
        worker_fail(EISDIR, r->path);
    if (exists && !S_ISREG(old.st_mode))
        worker_refuse("special", "not a regular file", r->path);
    fd = atomic_begin(place->dir);
    if (fd < 0)
        worker_fail(errno, r->path);
    size = take_content(fd, r->path);
    if (!worker_is_complete())
        worker_fail(ECANCELED, r->path);
    atomic_resemble(fd, exists ? &old : NULL, r->has_mode, (mode_t)r->mode);
    if (atomic_commit(place->name) < 0)
        worker_fail(errno, r->path);
    wrote(size);
}

void file_do_write(const struct file_request *r) {
    struct place place;

    if (r->path[strlen(r->path) - 1] == '/')
        worker_fail(EISDIR, r->path);
    if (r->parents && path_make_parent(r->path) < 0)
        worker_fail(errno, r->path);
    if (place_follow(r->path, &place) < 0)
        worker_fail(errno == ERANGE ? EISDIR : errno, r->path);
    if (r->append)
        append(r, &place);
    else
        replace(r, &place);
}

/* ---- mkdir and move ---- */

void file_do_mkdir(const struct file_request *r) {
    CLEANUP_BUF struct buf b = {0};
    struct mp_map map = mp_open(&b);
    bool made = true;

    if (r->parents) {
        if (path_make(r->path, r->has_mode, (mode_t)r->mode, &made) < 0)
            worker_fail(errno, r->path);
    } else {
        struct place place;

        if (place_open(AT_FDCWD, r->path, &place) < 0)
            worker_fail(errno == ERANGE ? EEXIST : errno, r->path);
        if (r->has_mode)
            umask(0);
        if (mkdirat(place.dir, place.name, r->has_mode ? (mode_t)r->mode : 0777) < 0)
            worker_fail(errno, r->path);
    }
    mp_add_bool(&map, "made", made);
    worker_end(&b);
}

static int rename_anew(const struct place *from, const struct place *to) {
    struct stat st;

    if (syscall(SYS_renameat2, from->dir, from->name, to->dir, to->name, NOREPLACE) == 0)
        return 0;
    if (errno != ENOSYS && errno != EINVAL)
        return -1;
    /* A file system that can't say "only if it is free". */
    if (fstatat(to->dir, to->name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        errno = EEXIST;
        return -1;
    }
    return errno == ENOENT ? renameat(from->dir, from->name, to->dir, to->name) : -1;
}

void file_do_move(const struct file_request *r) {
    struct place from, to;
    struct stat st;
    int result;

    if (place_open(AT_FDCWD, r->path, &from) < 0)
        worker_fail(errno == ERANGE ? EBUSY : errno, r->path);
    if (fstatat(from.dir, from.name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        worker_fail(errno, r->path);
    if (place_open(AT_FDCWD, r->to, &to) < 0)
        worker_fail(errno == ERANGE ? EEXIST : errno, r->to);
    result = r->replace ? renameat(from.dir, from.name, to.dir, to.name) : rename_anew(&from, &to);
    if (result < 0)
        worker_fail(errno, r->to);
    worker_end(NULL);
}
