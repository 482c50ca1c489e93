/* `file.remove`. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file_levels.h"
#include "file_path.h"
#include "file_worker.h"
#include "msgpack.h"

/* How often a tree may turn out to be another one than it was, or a directory to be filled again
 * by somebody, before that counts as a failure. */
#define TRIES 64

static uint64_t removed;

/* Anything but a directory with something in it: that is ENOTEMPTY. */
static int remove_one(int at, const char *name) {
    int err;

    if (unlinkat(at, name, 0) == 0) {
        removed++;
        return 0;
    }
    if (errno == ENOENT)
        return 0; /* somebody else did it */
    if (errno != EISDIR && errno != EPERM)
        return -1;
    err = errno;
    if (unlinkat(at, name, AT_REMOVEDIR) == 0) {
        removed++;
        return 0;
    }
    if (errno == ENOTDIR)
        errno = err;
    else if (errno == EEXIST)
        errno = ENOTEMPTY;
    return errno == ENOENT ? 0 : -1;
}

static __attribute__((noreturn)) void fail(int err, const char *top, const char *below) {
    CLEANUP_BUF struct buf path = {0};

    buf_add(&path, top, strlen(top));
    if (below) {
        buf_add(&path, "/", 1);
        buf_add(&path, below, strlen(below));
    }
    buf_add(&path, "", 1);
    worker_fail(err, (const char *)path.data);
}

/* Empties the directory NAME in AT. False: the tree has changed under us, try again. */
static bool empty(int at, const char *name, const char *top) {
    struct levels l = {0};
    unsigned refilled = 0;

    if (levels_enter(&l, at, name, SIZE_MAX) < 0)
        fail(errno, top, NULL);
    for (;;) {
        const char *next = levels_next(&l);

        if (next) {
            if (remove_one(levels_fd(&l), next) == 0)
                continue;
            if (errno != ENOTEMPTY || levels_enter(&l, levels_fd(&l), next, SIZE_MAX) < 0) {
                if (errno == ENOENT || errno == ELOOP || errno == ENOTDIR)
                    break; /* another one by now */
                fail(errno, top, levels_path(&l, next));
            }
            continue;
        }
        if (l.depth == 1) {
            levels_free(&l);
            return true;
        }
        if (levels_leave(&l) < 0)
            break;
        /* The directory that was just emptied is the last name that was given. */
        next = l.list[l.depth - 1].names[l.list[l.depth - 1].next - 1];
        if (remove_one(levels_fd(&l), next) < 0) {
            if (errno != ENOTEMPTY || ++refilled > TRIES)
                fail(errno, top, levels_path(&l, next));
            l.list[l.depth - 1].next--;
        }
    }
    levels_free(&l);
    return false;
}

void file_do_remove(const struct file_request *r) {
    CLEANUP_BUF struct buf b = {0};
    struct mp_map map = mp_open(&b);
    struct place place;
    struct stat st;

    if (place_open(AT_FDCWD, r->path, &place) < 0)
        worker_fail(errno == ERANGE ? EBUSY : errno, r->path);
    if (fstatat(place.dir, place.name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        worker_fail(errno, r->path);
    for (int i = 0; remove_one(place.dir, place.name) < 0; i++) {
        if (errno != ENOTEMPTY || !r->recursive || i == TRIES)
            worker_fail(errno, r->path);
        (void)empty(place.dir, place.name, r->path);
    }
    mp_add_uint(&map, "removed", removed);
    worker_end(&b);
}
