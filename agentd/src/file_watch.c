/* `file.watch`: inotify, with a watch for each directory.
 *
 * Events go out on channel 1, under credit: while the host does not take them the kernel's queue
 * fills, and what it then drops is told as `overflow`. A directory that appears is watched before
 * it is looked into, so what is in it is told at least once. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file_levels.h"
#include "file_path.h"
#include "file_worker.h"
#include "msgpack.h"

#define WATCHES_MAX 8192u
#define MASK                                                                                       \
    (IN_CREATE | IN_MODIFY | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF |            \
     IN_MOVE_SELF | IN_ONLYDIR | IN_EXCL_UNLINK)
#define MASK_FILE (IN_MODIFY | IN_DELETE_SELF | IN_MOVE_SELF)
/* The two halves of a move come one right after the other. */
#define PAIR_MS 20

struct watched {
    int wd;
    char *path; /* relative to the root, "" for itself */
};

static int notify = -1;
static const char *root_path;
static struct stat root; /* not held open: then its removal would not be told */
static int root_wd = -1;
static bool recursive;
static struct watched *watches; /* in no order */
static size_t watch_count, watch_room;

/* The first half of a move that waits for the second. */
static struct {
    char *path;
    uint32_t cookie;
} moved;

static void tell(const char *kind, const char *path, const char *to) {
    static struct buf b;
    struct mp_map map = mp_open(&b);

    mp_add_str(&map, "kind", kind);
    if (path)
        mp_add_bin(&map, "path", path, strnlen(path, FILE_PATH_MAX));
    if (to)
        mp_add_bin(&map, "to", to, strnlen(to, FILE_PATH_MAX));
    worker_record(&b);
}

static char *join(const char *dir, const char *name) {
    size_t n = strlen(dir), m = strlen(name);
    char *path = xmalloc(n + m + 2);

    memcpy(path, dir, n);
    if (n && m)
        path[n++] = '/';
    memcpy(path + n, name, m + 1);
    return path;
}

static struct watched *find(int wd) {
    for (size_t i = 0; i < watch_count; i++) {
        if (watches[i].wd == wd)
            return &watches[i];
    }
    return NULL;
}

static void drop(struct watched *w) {
    free(w->path);
    *w = watches[--watch_count];
}

/* Watches the directory that FD is; false when there can be no more watches. */
static bool add(int fd, const char *path, uint32_t mask) {
    char link[40];
    struct watched *w;
    int wd;

    if (watch_count >= WATCHES_MAX)
        return false;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    wd = inotify_add_watch(notify, link, mask);
    if (wd < 0)
        return errno != ENOSPC && errno != ENOMEM;
    w = find(wd);
    if (w) {
        free(w->path);
    } else {
        if (watch_count == watch_room) {
            watch_room = watch_room ? 2 * watch_room : 16;
            watches = xrealloc(watches, watch_room * sizeof(*watches));
        }
        w = &watches[watch_count++];
        w->wd = wd;
    }
    w->path = xmemdup_text(path, strlen(path));
    return true;
}

/* The root, if it is still the same; -1 otherwise. */
static int open_root(void) {
    int fd = path_open(AT_FDCWD, root_path, 0);
    struct stat st;

    if (fd >= 0 && (fstat(fd, &st) < 0 || st.st_ino != root.st_ino || st.st_dev != root.st_dev)) {
        close(fd);
        return -1;
    }
    return fd;
}

static int open_below(const char *path) {
    CLEANUP_CLOSE int fd = open_root();

    return fd < 0 ? -1 : path_beneath(fd, path, false);
}

/* Watches everything below PATH (a directory); with ANNOUNCE, what is there already is told. */
static void add_tree(const char *path, bool announce) {
    struct levels l = {0};
    int at = open_below(path);
    bool room;

    if (at < 0)
        return; /* gone, or a link by now */
    room = add(at, path, MASK);
    if (!recursive || levels_enter(&l, at, ".", SIZE_MAX) < 0) {
        close(at);
        if (!room)
            tell("overflow", NULL, NULL);
        return;
    }
    close(at);
    while (l.depth && room) {
        const char *name = levels_next(&l);
        char *below;
        struct stat st;

        if (!name) {
            if (levels_leave(&l) < 0)
                break;
            continue;
        }
        below = join(path, levels_path(&l, name));
        if (announce)
            tell("create", below, NULL);
        if (fstatat(levels_fd(&l), name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode)) {
            int fd = openat(levels_fd(&l), name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

            if (fd >= 0) {
                room = add(fd, below, MASK);
                close(fd);
                (void)levels_enter(&l, levels_fd(&l), name, SIZE_MAX);
            }
        }
        free(below);
    }
    levels_free(&l);
    if (!room)
        tell("overflow", NULL, NULL);
}

/* The directory PATH is TO now, or (NULL) out of sight, and with it all that is below it. */
static void rename_tree(const char *path, const char *to) {
    size_t n = strlen(path);

    for (size_t i = 0; i < watch_count;) {
        struct watched *w = &watches[i];
        char *below = w->path + n;

        if (strncmp(w->path, path, n) != 0 || (*below != '/' && *below != '\0')) {
            i++;
        } else if (to) {
            char *fresh = join(to, *below ? below + 1 : "");

            free(w->path);
            w->path = fresh;
            i++;
        } else {
            (void)inotify_rm_watch(notify, w->wd);
            drop(w);
        }
    }
}

/* No second half has come: it was moved out of sight. */
static void settle_move(void) {
    if (!moved.path)
        return;
    tell("remove", moved.path, NULL);
    rename_tree(moved.path, NULL);
    free(moved.path);
    moved.path = NULL;
}

static void appeared(const char *path, const struct inotify_event *e) {
    if (e->mask & IN_MOVED_TO && moved.path && moved.cookie == e->cookie) {
        tell("move", moved.path, path);
        rename_tree(moved.path, path);
        free(moved.path);
        moved.path = NULL;
        return;
    }
    settle_move();
    tell("create", path, NULL);
    if (e->mask & IN_ISDIR && recursive)
        add_tree(path, true);
}

static void disappeared(const char *path, const struct inotify_event *e) {
    settle_move();
    if (e->mask & IN_MOVED_FROM) {
        moved.path = xmemdup_text(path, strlen(path));
        moved.cookie = e->cookie;
    } else {
        tell("remove", path, NULL);
    }
}

static void take(const struct inotify_event *e) {
    struct watched *w;
    char *path;

    if (e->mask & IN_Q_OVERFLOW) {
        settle_move();
        tell("overflow", NULL, NULL);
        return;
    }
    w = find(e->wd);
    if (!w)
        return;
    if (e->wd == root_wd && (e->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT))) {
        settle_move();
        tell("remove", "", NULL);
        worker_end(NULL);
    }
    if (e->mask & IN_IGNORED) {
        drop(w);
        return;
    }
    path = join(w->path, e->len ? e->name : "");
    if (e->mask & (IN_CREATE | IN_MOVED_TO)) {
        appeared(path, e);
    } else if (e->mask & (IN_DELETE | IN_MOVED_FROM)) {
        disappeared(path, e);
    } else if (e->mask & IN_MODIFY) {
        settle_move();
        tell("modify", path, NULL);
    }
    free(path);
}

static void begin(const struct file_request *r) {
    int fd = path_open(AT_FDCWD, r->path, 0);
    bool is_dir, added;

    recursive = r->recursive;
    root_path = r->path;
    notify = inotify_init1(IN_CLOEXEC);
    if (notify < 0 || fd < 0 || fstat(fd, &root) < 0)
        worker_fail(errno, r->path);
    is_dir = S_ISDIR(root.st_mode);
    errno = EACCES;
    added = add(fd, "", is_dir ? MASK : MASK_FILE);
    if (!added || !watch_count)
        worker_fail(errno, r->path);
    close(fd);
    root_wd = watches[0].wd;
    if (is_dir && recursive)
        add_tree("", false);
    tell("ready", NULL, NULL);
    worker_flush();
}

void file_do_watch(const struct file_request *r) {
    static _Alignas(struct inotify_event) char events[16384];

    begin(r);
    for (;;) {
        struct pollfd waiting[2] = {{.fd = notify, .events = POLLIN}, {.fd = 3, .events = 0}};
        ssize_t n;

        if (poll(waiting, 2, moved.path ? PAIR_MS : -1) == 0)
            settle_move();
        worker_flush();
        if (waiting[1].revents)
            worker_end(NULL); /* agentd has let go */
        if (!(waiting[0].revents & POLLIN))
            continue;
        n = read(notify, events, sizeof(events));
        for (ssize_t at = 0; at < n;) {
            const struct inotify_event *e = (const void *)(events + at);

            take(e);
            at += (ssize_t)(sizeof(*e) + e->len);
        }
        worker_flush();
    }
}
