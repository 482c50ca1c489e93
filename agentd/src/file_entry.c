/* `file.stat` and `file.list`. */
#define _GNU_SOURCE
#include "file_entry.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "file_path.h"
#include "file_worker.h"

const char *entry_type(mode_t mode) {
    switch (mode & S_IFMT) {
    case S_IFREG:
        return "file";
    case S_IFDIR:
        return "dir";
    case S_IFLNK:
        return "link";
    case S_IFIFO:
        return "fifo";
    case S_IFSOCK:
        return "socket";
    case S_IFCHR:
        return "char";
    default:
        return "block";
    }
}

uint64_t entry_mtime(const struct stat *st) {
    struct timespec t = st->st_mtim;

    if (t.tv_sec < 0)
        return 0;
    if (t.tv_sec > INT64_MAX / 1000 - 1)
        return INT64_MAX;
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void entry_add(struct mp_map *map, const struct stat *st, int dir, const char *name) {
    char target[PATH_MAX];
    ssize_t n;

    mp_add_str(map, "type", entry_type(st->st_mode));
    mp_add_uint(map, "size", st->st_size < 0 ? 0 : (uint64_t)st->st_size);
    mp_add_uint(map, "mode", st->st_mode & 07777);
    mp_add_uint(map, "uid", st->st_uid);
    mp_add_uint(map, "gid", st->st_gid);
    mp_add_uint(map, "mtime_ms", entry_mtime(st));
    if (S_ISLNK(st->st_mode) && (n = readlinkat(dir, name, target, sizeof(target))) >= 0)
        mp_add_bin(map, "target", target, (size_t)n);
}

void file_do_stat(const struct file_request *r) {
    CLEANUP_BUF struct buf b = {0};
    struct mp_map map = mp_open(&b);
    int fd = path_open(AT_FDCWD, r->path, r->follow ? 0 : O_NOFOLLOW);
    size_t end = strlen(r->path), start;
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        worker_fail(errno, r->path);
    while (end && r->path[end - 1] == '/')
        end--;
    for (start = end; start && r->path[start - 1] != '/'; start--)
        continue;
    mp_add_bin(&map, "name", end ? r->path + start : "/", end ? end - start : 1);
    entry_add(&map, &st, fd, "");
    worker_end(&b);
}

/* The LIMIT + 1 first names of a directory, however many it has: a heap with the last on top. */
struct page {
    char **names;
    size_t count, room;
};

static void sift_down(struct page *p, size_t at) {
    for (;;) {
        size_t last = at, child = 2 * at + 1;
        char *name;

        for (size_t i = child; i < child + 2 && i < p->count; i++) {
            if (strcmp(p->names[i], p->names[last]) > 0)
                last = i;
        }
        if (last == at)
            return;
        name = p->names[at];
        p->names[at] = p->names[last];
        p->names[last] = name;
        at = last;
    }
}

static void sift_up(struct page *p, size_t at) {
    while (at && strcmp(p->names[at], p->names[(at - 1) / 2]) > 0) {
        char *name = p->names[at];

        p->names[at] = p->names[(at - 1) / 2];
        p->names[(at - 1) / 2] = name;
        at = (at - 1) / 2;
    }
}

static void offer(struct page *p, const char *name) {
    if (p->count < p->room) {
        p->names[p->count++] = xmemdup_text(name, strlen(name));
        sift_up(p, p->count - 1);
    } else if (strcmp(name, p->names[0]) < 0) {
        free(p->names[0]);
        p->names[0] = xmemdup_text(name, strlen(name));
        sift_down(p, 0);
    }
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void read_page(DIR *dir, const char *after, struct page *p, const char *path) {
    struct dirent *entry;

    while ((errno = 0, entry = readdir(dir))) {
        const char *name = entry->d_name;

        if (strcmp(name, ".") && strcmp(name, "..") && (!after || strcmp(name, after) > 0))
            offer(p, name);
    }
    if (errno)
        worker_fail(errno, path);
    if (p->count)
        qsort(p->names, p->count, sizeof(*p->names), by_name);
}

void file_do_list(const struct file_request *r) {
    CLEANUP_BUF struct buf b = {0};
    struct page page = {.room = (size_t)r->limit + 1};
    int at = path_open(AT_FDCWD, r->path, O_DIRECTORY);
    int fd = at < 0 ? -1 : openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct mp_map map;

    if (!dir)
        worker_fail(errno, r->path);
    page.names = xcalloc(page.room, sizeof(*page.names));
    read_page(dir, r->after, &page, r->path);
    for (size_t i = 0; i < page.count && i < r->limit; i++) {
        struct stat st;

        if (fstatat(fd, page.names[i], &st, AT_SYMLINK_NOFOLLOW) < 0) {
            if (errno == ENOENT)
                continue; /* gone since */
            worker_fail(errno, r->path);
        }
        map = mp_open(&b);
        mp_add_bin(&map, "name", page.names[i], strlen(page.names[i]));
        entry_add(&map, &st, fd, page.names[i]);
        worker_record(&b);
    }
    map = mp_open(&b);
    mp_add_bool(&map, "more", page.count > r->limit);
    worker_end(&b);
}
