/* sources: layer_names.c */
#include "../src/layer_names.h"

#include <stdlib.h>

#include "check.h"

static char path[LAYER_MAX_PATH + 1];
static const char *why;

static bool is(const char *name, enum layer_name kind, const char *expected) {
    return layer_name(name, path, &why) == kind && !strcmp(path, expected);
}

static bool refused(const char *name, const char *reason) {
    return layer_name(name, path, &why) == LAYER_REFUSED && !strcmp(why, reason);
}

static void plain_names(void) {
    check(is("a", LAYER_PLAIN, "a"));
    check(is("a/b/c", LAYER_PLAIN, "a/b/c"));
    check(is("/etc/passwd", LAYER_PLAIN, "etc/passwd"));
    check(is("./././a//b/./c/", LAYER_PLAIN, "a/b/c"));
    check(is("...", LAYER_PLAIN, "..."));
    check(is("a/..b/c..", LAYER_PLAIN, "a/..b/c.."));
    check(is(".wh", LAYER_PLAIN, ".wh"));
    check(is("a.wh.b", LAYER_PLAIN, "a.wh.b"));
    check(is("./", LAYER_ROOT, ""));
    check(is(".", LAYER_ROOT, ""));
    check(is("///", LAYER_ROOT, ""));
}

static void ways_out(void) {
    check(refused("..", "dotdot"));
    check(refused("../a", "dotdot"));
    check(refused("a/../b", "dotdot"));
    check(refused("a/..", "dotdot"));
    check(refused("/../a", "dotdot"));
    check(refused("./..//a", "dotdot"));
    check(refused("", "empty-name"));
}

static void whiteouts(void) {
    check(is(".wh.a", LAYER_REMOVAL, "a"));
    check(is("d/.wh.a", LAYER_REMOVAL, "d/a"));
    check(is("d/.wh.a/", LAYER_REMOVAL, "d/a"));
    check(is(".wh..a", LAYER_REMOVAL, ".a"));
    check(is(".wh....", LAYER_REMOVAL, "..."));
    check(is("d/e/.wh..wh..opq", LAYER_EMPTYING, "d/e"));
    check(is(".wh..wh..opq", LAYER_EMPTYING, ""));
    check(layer_name(".wh..wh.plnk", path, &why) == LAYER_IGNORED);
    check(layer_name(".wh..wh.plnk/1.2", path, &why) == LAYER_IGNORED);
    check(layer_name("d/.wh..wh.aufs", path, &why) == LAYER_IGNORED);
    check(layer_name("d/.wh..wh..opq/x", path, &why) == LAYER_IGNORED);
    check(refused(".wh.", "whiteout"));
    check(refused("d/.wh.", "whiteout"));
    check(refused(".wh..", "whiteout"));
    check(refused(".wh...", "whiteout"));
    check(refused(".wh.a/b", "whiteout"));
    check(refused("d/.wh.a/b/c", "whiteout"));
    check(refused(".wh.../etc/passwd", "whiteout"));
}

static void lengths(void) {
    char name[LAYER_MAX_PATH + 300];

    memset(name, 'x', sizeof name);
    name[255] = 0;
    check(is(name, LAYER_PLAIN, name));
    name[255] = 'x';
    name[256] = 0;
    check(refused(name, "long-path"));
    for (size_t i = 0; i < sizeof name - 1; i++)
        name[i] = i % 2 ? '/' : 'x';
    name[LAYER_MAX_PATH] = 0;
    check(layer_name(name, path, &why) == LAYER_PLAIN && strlen(path) == LAYER_MAX_PATH);
    name[LAYER_MAX_PATH] = '/';
    name[LAYER_MAX_PATH + 1] = 'x';
    name[LAYER_MAX_PATH + 2] = 0;
    check(refused(name, "long-path"));
}

static void links(void) {
    check(layer_link_name("/a/./b", path, &why) && !strcmp(path, "a/b"));
    check(layer_link_name(".wh.a", path, &why) && !strcmp(path, ".wh.a"));
    check(!layer_link_name("../a", path, &why) && !strcmp(why, "dotdot"));
    check(!layer_link_name("", path, &why));
    check(!layer_link_name("/", path, &why));
}

static void cleaning(void) {
    char out[12];

    layer_clean("a\n\x1b[31m\x7f", out, sizeof out);
    check(!strcmp(out, "a??[31m?"));
    layer_clean("0123456789abcdef", out, sizeof out);
    check(strlen(out) < sizeof out && !strcmp(out + strlen(out) - 3, "..."));
}

int main(void) {
    plain_names();
    ways_out();
    whiteouts();
    lengths();
    links();
    cleaning();
    return report();
}
