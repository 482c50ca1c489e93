/* sources: path_search.c */
#include "../src/path_search.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>

#include "check.h"

/* A file system of names and what executing them says. Success is 0, which execve never returns. */
struct world {
    const char *files[8];
    int results[8];
    char tried[1024];
};

static int attempt(void *context, const char *file) {
    struct world *w = context;

    if (strlen(w->tried) + strlen(file) + 2 < sizeof(w->tried)) {
        strcat(w->tried, file);
        strcat(w->tried, " ");
    }
    for (int i = 0; i < 8 && w->files[i]; i++) {
        if (strcmp(w->files[i], file) == 0)
            return w->results[i];
    }
    return ENOENT;
}

static int search(struct world *w, const char *file, const char *path) {
    w->tried[0] = '\0';
    return path_search(file, path, attempt, w);
}

static void order(void) {
    struct world w = {.files = {"/b/x", "/c/x"}, .results = {0, 0}};

    check(search(&w, "x", "/a:/b:/c") == 0);
    check(strcmp(w.tried, "/a/x /b/x ") == 0);
    check(search(&w, "y", "/a:/b") == ENOENT);
    check(strcmp(w.tried, "/a/y /b/y ") == 0);
}

static void a_slash_means_itself(void) {
    struct world w = {.files = {"./x"}, .results = {0}};

    check(search(&w, "./x", "/a") == 0);
    check(search(&w, "/bin/x", "/a") == ENOENT && strcmp(w.tried, "/bin/x ") == 0);
    check(search(&w, "a/", "/a") == ENOENT && strcmp(w.tried, "a/ ") == 0);
}

static void empty_entries_are_the_current_directory(void) {
    struct world w = {{0}, {0}, {0}};

    check(search(&w, "x", "") == ENOENT && strcmp(w.tried, "x ") == 0);
    check(search(&w, "x", ":/a") == ENOENT && strcmp(w.tried, "x /a/x ") == 0);
    check(search(&w, "x", "/a:") == ENOENT && strcmp(w.tried, "/a/x x ") == 0);
    check(search(&w, "x", "/a::/b") == ENOENT && strcmp(w.tried, "/a/x x /b/x ") == 0);
}

static void what_is_reported(void) {
    struct world denied = {.files = {"/a/x", "/c/x"}, .results = {EACCES, 0}};
    struct world only_denied = {.files = {"/a/x", "/b/x"}, .results = {EACCES, ENOTDIR}};
    struct world not_a_directory = {.files = {"/a/x", "/b/x"}, .results = {ENOTDIR, ENOTDIR}};
    struct world too_long = {.files = {"/a/x", "/b/x"}, .results = {E2BIG, 0}};

    check(search(&denied, "x", "/a:/b:/c") == 0);
    check(search(&only_denied, "x", "/a:/b") == EACCES);
    check(search(&not_a_directory, "x", "/a:/b") == ENOENT);
    check(search(&too_long, "x", "/a:/b") == E2BIG && strcmp(too_long.tried, "/a/x ") == 0);
}

static void lengths(void) {
    struct world w = {.files = {"/b/x"}, .results = {0}};
    char *path = malloc(2 * PATH_MAX + 16);
    char name[NAME_MAX + 2];

    memset(path, 'd', PATH_MAX);
    strcpy(path + PATH_MAX, ":/b");
    check(search(&w, "x", path) == 0 && strcmp(w.tried, "/b/x ") == 0);
    memset(path, 'd', PATH_MAX - 1);
    path[PATH_MAX - 1] = '\0';
    memset(name, 'n', sizeof(name));
    name[NAME_MAX] = '\0';
    check(search(&w, name, path) == ENOENT);
    name[NAME_MAX] = 'n';
    name[NAME_MAX + 1] = '\0';
    check(search(&w, name, path) == ENAMETOOLONG);
    check(search(&w, "", "/b") == ENOENT && !*w.tried);
    free(path);
}

int main(void) {
    order();
    a_slash_means_itself();
    empty_entries_are_the_current_directory();
    what_is_reported();
    lengths();
    return report();
}
