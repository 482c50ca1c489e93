/* Walking a directory tree that a guest has made and may change meanwhile.
 *
 * Its depth costs memory but neither stack nor descriptors: only the deepest directories are open,
 * and the way back up is "..", which has to be the directory that it was on the way down. No link
 * is ever followed. */
#ifndef AGENTD_FILE_LEVELS_H
#define AGENTD_FILE_LEVELS_H

#include <stddef.h>
#include <sys/types.h>

#include "util.h"

struct level {
    int fd; /* -1: closed for now */
    dev_t dev;
    ino_t ino;
    struct buf text;
    char **names; /* sorted */
    size_t count, next;
    size_t path_len; /* of the directory's own path */
};

/* All zero is one that has not entered anything. */
struct levels {
    struct level *list;
    size_t depth, room;
    struct buf path;
};

/* Goes down to the directory NAME in AT, with the names that are there now; more than MAX of them
 * is EOVERFLOW. 0, or -1 and errno. */
int levels_enter(struct levels *l, int at, const char *name, size_t max);
/* The next name of the directory it is in; NULL when there is none. */
const char *levels_next(struct levels *l);
/* The directory it is in. */
int levels_fd(const struct levels *l);
/* Goes up. -1 and ESTALE when the tree is another one now. */
int levels_leave(struct levels *l);
void levels_free(struct levels *l);

/* The path of NAME in the directory it is in, relative to where it began; valid until the next
 * call. */
const char *levels_path(struct levels *l, const char *name);

#endif
