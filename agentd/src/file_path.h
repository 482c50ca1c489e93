/* Names to descriptors, for file workers.
 *
 * A path of a request means what it means to the user whose rights the worker has: symbolic links
 * are followed as the kernel does it, inside the sandbox's root. Only "magic" links (the entries of
 * /proc/PID/fd, exe, cwd, root) are refused: they are the worker's own, not the user's. */
#ifndef AGENTD_FILE_PATH_H
#define AGENTD_FILE_PATH_H

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

/* All return a descriptor (or 0) or -1 and errno. */

/* O_PATH: nothing is opened yet, so neither a FIFO nor a device notices. */
int path_open(int at, const char *path, int flags);
/* The same file for reading or writing. A file that is no regular one is `special`, which is not an
 * errno: the worker ends with it, or with EISDIR. */
int path_reopen(int fd, int flags, const char *path);

/* A name in a directory: what creating, moving and removing work on. */
struct place {
    int dir; /* O_PATH */
    char name[NAME_MAX + 1];
};
/* ERANGE: the path is "/" (or leads there by its last component being "." or ".."). */
int place_open(int at, const char *path, struct place *out);
/* The last component is followed too while it is a link, to a name that need not exist. */
int place_follow(const char *path, struct place *out);

/* The directory PATH, made with all its parents where missing; an O_PATH descriptor. The last one
 * gets MODE exactly, or what the umask leaves when HAS_MODE is not set. */
int path_make(const char *path, bool has_mode, mode_t mode, bool *made);
/* Makes PATH's parent directory, for `parents`. */
int path_make_parent(const char *path);

/* For names that come from the other side. A relative path, every component of which is a name. */
bool path_is_clean(const char *path);
/* Opens a clean path (or "": ROOT itself) below ROOT as a directory, never through a link; with
 * MAKE, directories that are missing are made. */
int path_beneath(int root, const char *path, bool make);

#endif
