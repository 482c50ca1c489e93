/* sources: util.c */
#define _GNU_SOURCE
#include <stdlib.h>
#include <unistd.h>

/* Every test runs twice: with openat2, and on a kernel that does not have it. */
static int has_openat2;
static long maybe_syscall(long number, int at, const char *path, void *how, size_t size);
#define syscall maybe_syscall
#include "../src/file_path.c"
#undef syscall

#include "check.h"

static long maybe_syscall(long number, int at, const char *path, void *how, size_t size) {
    if (has_openat2)
        return syscall(number, at, path, how, size);
    errno = ENOSYS;
    return -1;
}

void worker_fail(int err, const char *path) {
    printf("worker_fail %d %s\n", err, path);
    exit(1);
}

void worker_refuse(const char *code, const char *why, const char *path) {
    printf("worker_refuse %s %s %s\n", code, why, path);
    exit(1);
}

static char top[] = "/tmp/agentd-path-XXXXXX";
static int root;

static const char *in(const char *name) {
    static char path[2][128];
    static int turn;

    turn = !turn;
    snprintf(path[turn], sizeof(path[turn]), "%s/%s", top, name);
    return path[turn];
}

static bool is_same(int fd, const char *path) {
    struct stat a, b;
    bool same = fd >= 0 && fstat(fd, &a) == 0 && stat(in(path), &b) == 0 && a.st_ino == b.st_ino &&
                a.st_dev == b.st_dev;

    if (fd >= 0)
        close(fd);
    return same;
}

static void clean_paths(void) {
    char name[300];

    check(path_is_clean("a") && path_is_clean("a/b") && path_is_clean("...") &&
          path_is_clean("a/..b") && path_is_clean(".a"));
    check(!path_is_clean("") && !path_is_clean("/") && !path_is_clean("/a") && !path_is_clean("a/"));
    check(!path_is_clean(".") && !path_is_clean("..") && !path_is_clean("a/../b") &&
          !path_is_clean("a/.") && !path_is_clean("./a") && !path_is_clean("a//b"));
    memset(name, 'x', sizeof(name));
    name[255] = '\0';
    check(path_is_clean(name));
    name[255] = 'x';
    name[256] = '\0';
    check(!path_is_clean(name));
}

static void beneath(void) {
    struct stat st;

    check(is_same(path_beneath(root, "", false), "."));
    check(is_same(path_beneath(root, "real/deep", false), "real/deep"));
    check(path_beneath(root, "missing", false) < 0 && errno == ENOENT);
    check(is_same(path_beneath(root, "made/of/three", true), "made/of/three"));
    check(path_beneath(root, "link", false) < 0 && (errno == ELOOP || errno == ENOTDIR));
    check(path_beneath(root, "link/deep", true) < 0 && (errno == ELOOP || errno == ENOTDIR));
    check(path_beneath(root, "out/new", true) < 0 && (errno == ELOOP || errno == ENOTDIR));
    check(stat("/tmp/new", &st) < 0);
    check(path_beneath(root, "file", false) < 0 && errno == ENOTDIR);
    check(path_beneath(root, "file/x", true) < 0 && errno == ENOTDIR);
}

static void making(void) {
    struct stat st;
    bool made;
    int fd = path_make(in("p/q/r"), true, 0701, &made);

    check(made && fd >= 0 && fstat(fd, &st) == 0 && (st.st_mode & 07777) == 0701);
    close(fd);
    check(stat(in("p/q"), &st) == 0 && (st.st_mode & 07777) == 0755);
    fd = path_make(in("p/q"), true, 0777, &made);
    check(fd >= 0 && !made);
    close(fd);
    check(is_same(path_make(in("link/below"), false, 0, &made), "real/below") && made);
    check(is_same(path_make(in("p/../p/./x"), false, 0, &made), "p/x") && made);
    check(path_make(in("file"), false, 0, &made) < 0 && errno == ENOTDIR);
    check(path_make(in("dangling/x"), false, 0, &made) < 0 && !made);
    check(is_same(path_make("/", false, 0, &made), "../..") && !made);
    check(path_make_parent(in("u/v/w")) == 0 && stat(in("u/v"), &st) == 0 &&
          stat(in("u/v/w"), &st) < 0);
}

static bool leads(const char *path, const char *dir, const char *name) {
    struct place place;

    return place_follow(path, &place) == 0 && strcmp(place.name, name) == 0 &&
           is_same(place.dir, dir);
}

static void places(void) {
    struct place place;

    check(leads(in("file"), ".", "file") && leads(in("file///"), ".", "file"));
    check(leads(in("new"), ".", "new"));
    check(leads(in("to_file"), "real", "inner"));
    check(leads(in("dangling"), ".", "nowhere"));
    check(leads(in("link/inner"), "real", "inner"));
    check(place_follow(in("loop"), &place) < 0 && errno == ELOOP);
    check(place_follow(in("missing/x"), &place) < 0 && errno == ENOENT);
    check(place_open(AT_FDCWD, "/", &place) < 0 && errno == ERANGE);
    check(place_open(AT_FDCWD, in("."), &place) < 0 && errno == ERANGE);
    check(place_open(AT_FDCWD, in("real/.."), &place) < 0 && errno == ERANGE);
    check(place_open(AT_FDCWD, in("to_file"), &place) == 0 && !strcmp(place.name, "to_file"));
}

static void set_up(void) {
    root = open(top, O_PATH | O_DIRECTORY);
    check(mkdir(in("real"), 0755) == 0 && mkdir(in("real/deep"), 0755) == 0);
    close(open(in("file"), O_CREAT | O_WRONLY, 0600));
    close(open(in("real/inner"), O_CREAT | O_WRONLY, 0600));
    check(symlink("real", in("link")) == 0 && symlink("/tmp", in("out")) == 0);
    check(symlink("link/inner", in("to_file")) == 0 && symlink("nowhere", in("dangling")) == 0);
    check(symlink("loop", in("loop")) == 0);
}

int main(void) {
    char command[64];

    umask(022);
    for (has_openat2 = 0; has_openat2 < 2; has_openat2++) {
        memcpy(top + sizeof(top) - 7, "XXXXXX", 6);
        check(mkdtemp(top) != NULL);
        set_up();
        clean_paths();
        beneath();
        making();
        places();
        snprintf(command, sizeof(command), "rm -rf %s", top);
        check(system(command) == 0);
    }
    return report();
}
