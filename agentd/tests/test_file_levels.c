/* sources: file_levels.c util.c */
#define _GNU_SOURCE
#include "../src/file_levels.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

static char top[] = "/tmp/agentd-levels-XXXXXX";
static int dir;

/* Goes down through directories named "d" as far as there are some. */
static size_t descend(struct levels *l) {
    size_t depth = 0;
    const char *name;

    check(levels_enter(l, dir, ".", SIZE_MAX) == 0);
    while ((name = levels_next(l)) && strcmp(name, "d") == 0) {
        require(levels_enter(l, levels_fd(l), name, SIZE_MAX) == 0);
        depth++;
    }
    return depth;
}

static size_t open_descriptors(void) {
    size_t n = 0;

    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void down_and_up(size_t depth) {
    struct levels l = {0};
    size_t before = open_descriptors();
    int at = dup(dir);

    for (size_t i = 0; i < depth; i++) {
        int deeper;

        require(mkdirat(at, "d", 0755) == 0);
        deeper = openat(at, "d", O_RDONLY | O_DIRECTORY);
        close(at);
        at = deeper;
    }
    close(at);
    check(descend(&l) == depth && l.depth == depth + 1);
    check(open_descriptors() <= before + 4);
    check(strlen(levels_path(&l, "x")) == 2 * depth + 1);
    while (l.depth > 1) {
        require(levels_leave(&l) == 0);
        require(levels_next(&l) == NULL);
        require(unlinkat(levels_fd(&l), "d", AT_REMOVEDIR) == 0);
    }
    check(levels_leave(&l) == 0 && l.depth == 0);
    levels_free(&l);
    check(open_descriptors() == before);
}

static void sorted_names(void) {
    struct levels l = {0};
    const char *names[] = {"B", "a", "a b", "b", "\xff"};

    for (size_t i = 0; i < 5; i++)
        close(openat(dir, names[4 - i], O_CREAT | O_WRONLY, 0600));
    check(levels_enter(&l, dir, ".", 4) < 0 && errno == EOVERFLOW && l.depth == 0);
    check(levels_enter(&l, dir, ".", 5) == 0);
    for (size_t i = 0; i < 5; i++) {
        const char *name = levels_next(&l);

        check(name && strcmp(name, names[i]) == 0 && strcmp(levels_path(&l, name), name) == 0);
        check(unlinkat(dir, names[i], 0) == 0);
    }
    check(levels_next(&l) == NULL);
    levels_free(&l);
}

static void a_tree_that_moves(void) {
    struct levels l = {0};
    int left = 0;

    check(mkdirat(dir, "other", 0755) == 0);
    check(system("cd $TOP && mkdir -p d/d/d/d/d/d/d/d/d/d") == 0);
    check(descend(&l) == 10);
    /* Away from where the way back up leads to. */
    check(system("mv $TOP/d/d/d $TOP/other/") == 0);
    while (l.depth > 1 && (left = levels_leave(&l)) == 0)
        continue;
    check(left < 0 && errno == ESTALE && l.depth > 1);
    levels_free(&l);
    check(system("rm -r $TOP/d $TOP/other") == 0);
}

static void no_directories(void) {
    struct levels l = {0};

    check(symlinkat("/", dir, "link") == 0 && mkfifoat(dir, "fifo", 0600) == 0);
    check(levels_enter(&l, dir, "link", SIZE_MAX) < 0 && l.depth == 0);
    check(levels_enter(&l, dir, "fifo", SIZE_MAX) < 0 && errno == ENOTDIR);
    check(levels_enter(&l, dir, "none", SIZE_MAX) < 0 && errno == ENOENT);
    levels_free(&l);
    check(unlinkat(dir, "link", 0) == 0 && unlinkat(dir, "fifo", 0) == 0);
}

int main(void) {
    check(mkdtemp(top) != NULL && setenv("TOP", top, 1) == 0);
    dir = open(top, O_PATH | O_DIRECTORY);
    down_and_up(1);
    down_and_up(3);
    down_and_up(5);
    down_and_up(5000);
    sorted_names();
    a_tree_that_moves();
    no_directories();
    check(rmdir(top) == 0);
    return report();
}
