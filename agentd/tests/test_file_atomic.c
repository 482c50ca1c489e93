/* sources: util.c */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* Every test runs twice: with files that have no name, and on a file system without them. */
static int has_tmpfile;
static int maybe_openat(int at, const char *path, int flags, unsigned mode);
#define openat maybe_openat
#include "../src/file_atomic.c"
#undef openat

#include <dirent.h>

#include "../src/util.h"
#include "check.h"

static int maybe_openat(int at, const char *path, int flags, unsigned mode) {
    if (!has_tmpfile && (flags & O_TMPFILE) == O_TMPFILE) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return openat(at, path, flags, mode);
}

static char top[] = "/tmp/agentd-atomic-XXXXXX";
static int dir;

static size_t entries(void) {
    DIR *d = opendir(top);
    size_t n = 0;

    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

static bool holds(const char *name, const char *text) {
    char found[64] = "";
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW);

    (void)!read(fd, found, sizeof(found) - 1);
    close(fd);
    return fd >= 0 && strcmp(found, text) == 0;
}

static void files(void) {
    struct stat st, old;
    int fd;

    fd = atomic_begin(dir);
    check(fd >= 0 && entries() == (has_tmpfile ? 0 : 1));
    check(write_all(fd, "one", 3) == 0);
    atomic_abandon();
    check(entries() == 0);
    atomic_abandon();

    fd = atomic_begin(dir);
    check(write_all(fd, "first", 5) == 0);
    atomic_resemble(fd, NULL, 0, 0);
    check(atomic_commit("f") == 0 && entries() == 1 && holds("f", "first"));
    check(fstatat(dir, "f", &st, 0) == 0 && (st.st_mode & 07777) == 0640);

    fd = atomic_begin(dir);
    check(write_all(fd, "second", 6) == 0);
    old = st;
    old.st_mode = S_IFREG | 06751;
    atomic_resemble(fd, &old, 0, 0);
    check(holds("f", "first"));
    check(atomic_commit("f") == 0 && entries() == 1 && holds("f", "second"));
    check(fstatat(dir, "f", &st, 0) == 0 && (st.st_mode & 07777) == 0751);

    fd = atomic_begin(dir);
    atomic_resemble(fd, &old, 1, 0604);
    check(atomic_commit("f") == 0 && fstatat(dir, "f", &st, 0) == 0 && (st.st_mode & 07777) == 0604);
}

static void obstacles(void) {
    struct stat st;

    check(mkdirat(dir, "d", 0755) == 0);
    check(atomic_begin(dir) >= 0 && atomic_commit("d") < 0 && errno == EISDIR);
    atomic_abandon();
    check(entries() == 2);
    check(symlinkat("f", dir, "l") == 0 && atomic_begin(dir) >= 0 && atomic_commit("l") == 0);
    check(fstatat(dir, "l", &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode));
    check(atomic_link(dir, "l", "nowhere") == 0 && atomic_link(dir, "new", "x") == 0);
    check(fstatat(dir, "l", &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode));
    check(atomic_link(dir, "d", "x") < 0 && entries() == 4);
}

int main(void) {
    char command[64];

    umask(027);
    for (has_tmpfile = 0; has_tmpfile < 2; has_tmpfile++) {
        memcpy(top + sizeof(top) - 7, "XXXXXX", 6);
        check(mkdtemp(top) != NULL);
        dir = open(top, O_PATH | O_DIRECTORY);
        files();
        obstacles();
        snprintf(command, sizeof(command), "rm -rf %s", top);
        check(system(command) == 0);
    }
    return report();
}
