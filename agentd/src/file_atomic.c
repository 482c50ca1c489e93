/* A file without a name vanishes with the worker, whatever kills it. Where a file system has none
 * (or the new one has to take the place of another, for the moment that takes) it has a random name
 * in the same directory, which the worker removes on its way out. */
#define _GNU_SOURCE
#include "file_atomic.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

#define TRIES 16

static struct {
    int fd;  /* -1: there is none */
    int dir;
    bool named;
    char name[40];
} file = {.fd = -1};

static int random_name(char out[40]) {
    uint64_t number;

    if (getrandom(&number, sizeof(number), 0) != sizeof(number))
        return -1;
    snprintf(out, 40, ".agentkernel-%016llx", (unsigned long long)number);
    return 0;
}

int atomic_begin(int dir) {
    file.dir = dir;
    file.named = false;
    file.fd = openat(dir, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    /* What kernels and file systems say that do not know it. */
    if (file.fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT &&
                         errno != EINVAL && errno != ENOSYS))
        return file.fd;
    for (int i = 0; i < TRIES; i++) {
        if (random_name(file.name) < 0)
            return -1;
        file.fd = openat(dir, file.name, O_CREAT | O_EXCL | O_NOFOLLOW | O_WRONLY | O_CLOEXEC,
                         0600);
        if (file.fd >= 0 || errno != EEXIST)
            break;
    }
    file.named = file.fd >= 0;
    return file.fd;
}

static int give_name(const char *name) {
    char link[40];

    snprintf(link, sizeof(link), "/proc/self/fd/%d", file.fd);
    return linkat(AT_FDCWD, link, file.dir, name, AT_SYMLINK_FOLLOW);
}

static void close_file(void) {
    close(file.fd);
    file.fd = -1;
    file.named = false;
}

int atomic_commit(const char *name) {
    if (!file.named) {
        if (give_name(name) == 0) {
            close_file();
            return 0;
        }
        for (int i = 0; i < TRIES && errno == EEXIST; i++) {
            if (random_name(file.name) < 0)
                return -1;
            file.named = give_name(file.name) == 0;
            if (file.named)
                break;
        }
        if (!file.named)
            return -1;
    }
    if (renameat(file.dir, file.name, file.dir, name) < 0)
        return -1;
    close_file();
    return 0;
}

void atomic_abandon(void) {
    if (file.fd < 0)
        return;
    if (file.named)
        (void)unlinkat(file.dir, file.name, 0);
    close_file();
}

int atomic_link(int dir, const char *name, const char *target) {
    char temporary[40];
    int err;

    if (symlinkat(target, dir, name) == 0)
        return 0;
    if (errno != EEXIST)
        return -1;
    do {
        if (random_name(temporary) < 0)
            return -1;
    } while (symlinkat(target, dir, temporary) < 0 && errno == EEXIST);
    if (renameat(dir, temporary, dir, name) == 0)
        return 0;
    err = errno;
    (void)unlinkat(dir, temporary, 0);
    errno = err;
    return -1;
}

void atomic_resemble(int fd, const struct stat *old, int has_mode, mode_t mode) {
    struct stat st;

    /* The group alone is often allowed where the owner is not. */
    if (old && fstat(fd, &st) == 0 && (st.st_uid != old->st_uid || st.st_gid != old->st_gid) &&
        fchown(fd, old->st_uid, old->st_gid) < 0)
        (void)!fchown(fd, (uid_t)-1, old->st_gid);
    if (!has_mode) {
        mode_t mask = umask(0);

        umask(mask);
        mode = old ? old->st_mode : 0666 & ~mask;
    }
    (void)fchmod(fd, mode & 0777);
}
