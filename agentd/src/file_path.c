#define _GNU_SOURCE
#include "file_path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "file_worker.h"
#include "sys.h"

#define LINKS_MAX 40
#define PROC_MAGIC 0x9fa0
#define DIRECTORY (O_PATH | O_DIRECTORY | O_CLOEXEC)

/* openat2(2) */
#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#define NO_MAGICLINKS 0x02u
#define NO_SYMLINKS 0x04u
#define BENEATH 0x08u

struct how {
    uint64_t flags, mode, resolve;
};

static int openat2(int at, const char *path, int flags, uint64_t resolve) {
    struct how how = {.flags = (uint64_t)(unsigned)flags, .resolve = resolve};
    int fd;

    do
        fd = (int)syscall(SYS_openat2, at, path, &how, sizeof(how));
    while (fd < 0 && (errno == EINTR || errno == EAGAIN));
    return fd;
}

int path_open(int at, const char *path, int flags) {
    int fd = openat2(at, path, O_PATH | O_CLOEXEC | flags, NO_MAGICLINKS);

    /* Where the call does not exist, what remains is what open always did. */
    return fd < 0 && errno == ENOSYS ? openat(at, path, O_PATH | O_CLOEXEC | flags) : fd;
}

/* /proc/PID/mem is a regular file without end, and of the worker's own memory at that. */
static bool is_memory(int fd, const char *link) {
    struct statfs fs;
    char text[PATH_MAX];
    ssize_t n;

    if (fstatfs(fd, &fs) < 0 || fs.f_type != PROC_MAGIC)
        return false;
    n = readlink(link, text, sizeof(text));
    return n >= 4 && memcmp(text + n - 4, "/mem", 4) == 0;
}

int path_reopen(int fd, int flags, const char *path) {
    char link[40];
    struct stat before, after;
    int opened;

    if (fstat(fd, &before) < 0)
        return -1;
    if (S_ISDIR(before.st_mode))
        worker_fail(EISDIR, path);
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    if (!S_ISREG(before.st_mode) || is_memory(fd, link))
        worker_refuse("special", "not a regular file", path);
    opened = open(link, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (opened >= 0 && (fstat(opened, &after) < 0 || after.st_ino != before.st_ino ||
                        after.st_dev != before.st_dev)) {
        close(opened);
        errno = EIO;
        return -1;
    }
    return opened;
}

int place_open(int at, const char *path, struct place *out) {
    size_t end = strlen(path), start;
    char parent[PATH_MAX];

    while (end && path[end - 1] == '/')
        end--;
    for (start = end; start && path[start - 1] != '/'; start--)
        continue;
    if (end - start > NAME_MAX || start >= sizeof(parent)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(out->name, path + start, end - start);
    out->name[end - start] = '\0';
    if (!out->name[0] || !strcmp(out->name, ".") || !strcmp(out->name, "..")) {
        errno = ERANGE;
        return -1;
    }
    memcpy(parent, start ? path : ".", start ? start : 1);
    parent[start ? start : 1] = '\0';
    out->dir = path_open(at, parent, O_DIRECTORY);
    return out->dir < 0 ? -1 : 0;
}

/* What fs.protected_symlinks means: in a directory like /tmp a link is followed only if whoever
 * follows it, or the directory's owner, has made it. */
static bool may_follow(int dir, const struct stat *link) {
    struct stat st;

    if (fstat(dir, &st) < 0)
        return false;
    return (st.st_mode & (S_ISVTX | S_IWOTH)) != (S_ISVTX | S_IWOTH) ||
           link->st_uid == geteuid() || link->st_uid == st.st_uid;
}

int place_follow(const char *path, struct place *out) {
    char target[PATH_MAX];
    struct stat st;

    if (place_open(AT_FDCWD, path, out) < 0)
        return -1;
    for (int links = 0; links < LINKS_MAX; links++) {
        int dir = out->dir, err;
        ssize_t n;

        if (fstatat(dir, out->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            return errno == ENOENT ? 0 : -1;
        if (!S_ISLNK(st.st_mode))
            return 0;
        if (!may_follow(dir, &st)) {
            errno = EACCES;
            return -1;
        }
        n = readlinkat(dir, out->name, target, sizeof(target));
        if (n < 0)
            return -1;
        if ((size_t)n >= sizeof(target)) {
            errno = ENAMETOOLONG;
            return -1;
        }
        target[n] = '\0';
        n = place_open(dir, target, out);
        err = errno;
        close(dir);
        errno = err;
        if (n < 0)
            return -1;
    }
    errno = ELOOP;
    return -1;
}

/* A umask of 0 makes MODE exact in one step: a chmod after the mkdir could hit something that was
 * put in its place. */
static int make_one(int at, const char *name, bool has_mode, mode_t mode) {
    mode_t before;
    int result;

    if (!has_mode)
        return mkdirat(at, name, 0777);
    before = umask(0);
    result = mkdirat(at, name, mode);
    umask(before);
    return result;
}

/* Component by component from FD (which it takes over) on; OPEN opens one of them. */
static int walk(int fd, const char *path, bool make, bool has_mode, mode_t mode, bool *made,
                int (*open_one)(int at, const char *name)) {
    while (fd >= 0) {
        char name[NAME_MAX + 1];
        size_t n;
        bool last;
        int next, err;

        path += strspn(path, "/");
        n = strcspn(path, "/");
        if (n == 0)
            return fd;
        if (n > NAME_MAX) {
            close(fd);
            errno = ENAMETOOLONG;
            return -1;
        }
        memcpy(name, path, n);
        name[n] = '\0';
        path += n;
        last = path[strspn(path, "/")] == '\0';
        next = open_one(fd, name);
        if (next < 0 && errno == ENOENT && make) {
            if (make_one(fd, name, last && has_mode, mode) == 0)
                *made = last;
            else if (errno != EEXIST)
                goto failed;
            next = open_one(fd, name);
        }
    failed:
        err = errno;
        close(fd);
        errno = err;
        fd = next;
    }
    return -1;
}

static int open_anywhere(int at, const char *name) { return path_open(at, name, O_DIRECTORY); }

static int open_here(int at, const char *name) { return openat(at, name, DIRECTORY | O_NOFOLLOW); }

int path_make(const char *path, bool has_mode, mode_t mode, bool *made) {
    *made = false;
    return walk(open("/", DIRECTORY), path, true, has_mode, mode, made, open_anywhere);
}

int path_make_parent(const char *path) {
    char parent[PATH_MAX];
    size_t n = strlen(path);
    bool made;
    int fd;

    while (n && path[n - 1] == '/')
        n--;
    while (n && path[n - 1] != '/')
        n--;
    if (n >= sizeof(parent)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(parent, path, n);
    parent[n] = '\0';
    fd = path_make(parent, false, 0, &made);
    if (fd >= 0)
        close(fd);
    return fd < 0 ? -1 : 0;
}

bool path_is_clean(const char *path) {
    do {
        size_t n = strcspn(path, "/");

        if (n == 0 || n > NAME_MAX || (n == 1 && path[0] == '.') ||
            (n == 2 && path[0] == '.' && path[1] == '.'))
            return false;
        path += n;
    } while (*path++);
    return true;
}

int path_beneath(int root, const char *path, bool make) {
    bool made;
    int fd;

    if (!*path)
        return openat(root, ".", DIRECTORY);
    fd = openat2(root, path, DIRECTORY, BENEATH | NO_SYMLINKS | NO_MAGICLINKS);
    if (fd >= 0 || (errno != ENOSYS && !(errno == ENOENT && make)))
        return fd;
    /* The same by hand: no component is "..", and none is followed. */
    return walk(openat(root, ".", DIRECTORY), path, make, false, 0, &made, open_here);
}
