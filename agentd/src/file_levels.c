#define _GNU_SOURCE
#include "file_levels.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Few, since a sandbox may allow 16 descriptors. */
#define OPEN_MAX_LEVELS 4
#define FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void free_level(struct level *level) {
    if (level->fd >= 0)
        close(level->fd);
    buf_free(&level->text);
    free(level->names);
}

static int read_names(struct level *level, size_t max) {
    int copy = fcntl(level->fd, F_DUPFD_CLOEXEC, 0);
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *entry;
    char *at;
    int err;

    if (!dir) {
        err = errno;
        if (copy >= 0)
            close(copy);
        errno = err;
        return -1;
    }
    while ((errno = 0, entry = readdir(dir))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        if (++level->count > max) {
            errno = EOVERFLOW;
            break;
        }
        buf_add(&level->text, entry->d_name, strlen(entry->d_name) + 1);
    }
    err = errno;
    closedir(dir);
    errno = err;
    if (err)
        return -1;
    level->names = xcalloc(level->count, sizeof(*level->names));
    at = (char *)level->text.data;
    for (size_t i = 0; i < level->count; i++) {
        level->names[i] = at;
        at += strlen(at) + 1;
    }
    if (level->count)
        qsort(level->names, level->count, sizeof(*level->names), by_name);
    return 0;
}

int levels_enter(struct levels *l, int at, const char *name, size_t max) {
    struct level level = {.fd = openat(at, name, FLAGS)};
    struct stat st;

    if (level.fd < 0)
        return -1;
    if (fstat(level.fd, &st) < 0 || read_names(&level, max) < 0) {
        int err = errno;

        free_level(&level);
        errno = err;
        return -1;
    }
    level.dev = st.st_dev;
    level.ino = st.st_ino;
    if (l->depth) {
        level.path_len = strlen(levels_path(l, name));
        if (l->depth >= OPEN_MAX_LEVELS && l->list[l->depth - OPEN_MAX_LEVELS].fd >= 0) {
            close(l->list[l->depth - OPEN_MAX_LEVELS].fd);
            l->list[l->depth - OPEN_MAX_LEVELS].fd = -1;
        }
    }
    if (l->depth == l->room) {
        l->room = l->room ? 2 * l->room : 16;
        l->list = xrealloc(l->list, l->room * sizeof(*l->list));
    }
    l->list[l->depth++] = level;
    return 0;
}

const char *levels_next(struct levels *l) {
    struct level *level = &l->list[l->depth - 1];

    return level->next < level->count ? level->names[level->next++] : NULL;
}

int levels_fd(const struct levels *l) { return l->list[l->depth - 1].fd; }

int levels_leave(struct levels *l) {
    struct level *level = &l->list[--l->depth];
    struct level *parent = l->depth ? level - 1 : NULL;
    struct stat st;
    int result = 0;

    if (parent && parent->fd < 0) {
        parent->fd = openat(level->fd, "..", FLAGS);
        if (parent->fd < 0 || fstat(parent->fd, &st) < 0 || st.st_ino != parent->ino ||
            st.st_dev != parent->dev) {
            errno = ESTALE;
            result = -1;
        }
    }
    free_level(level);
    return result;
}

void levels_free(struct levels *l) {
    while (l->depth)
        free_level(&l->list[--l->depth]);
    free(l->list);
    buf_free(&l->path);
    *l = (struct levels){0};
}

const char *levels_path(struct levels *l, const char *name) {
    l->path.len = l->list[l->depth - 1].path_len;
    if (l->path.len)
        buf_add(&l->path, "/", 1);
    buf_add(&l->path, name, strlen(name) + 1);
    return (const char *)l->path.data;
}
