/* Names of entries in the archive of a layer, and what they mean there. */
#ifndef AGENTD_LAYER_NAMES_H
#define AGENTD_LAYER_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#define LAYER_MAX_PATH 4095 /* the kernel takes no longer one in a call */
#define LAYER_MAX_NAME 255
#define LAYER_WHITEOUT ".wh."
#define LAYER_OPAQUE ".wh..wh..opq"

enum layer_name {
    LAYER_PLAIN,
    LAYER_ROOT,      /* the layer's own directory */
    LAYER_REMOVAL,   /* "a/.wh.b": lower layers' a/b is gone; PATH is "a/b" */
    LAYER_EMPTYING,  /* "a/.wh..wh..opq": of a, nothing of lower layers is left; PATH is "a" */
    LAYER_IGNORED,   /* what aufs keeps for itself: ".wh..wh.plnk" and the like */
    LAYER_REFUSED,
};

/* Turns the name of an entry into a path below the layer's root, without "." and empty parts, in PATH
 * (LAYER_MAX_PATH + 1 bytes). Refused, with the reason in *WHY: "..", parts or paths that are too long,
 * a whiteout of nothing, of "." or of "..", and whiteouts with something below them. */
enum layer_name layer_name(const char *name, char *path, const char **why);

/* The same for what a hard link leads to, where whiteouts are names like all others: no layer has a file
 * of such a name. False: refused. */
bool layer_link_name(const char *name, char *path, const char **why);

/* Where the last part of a path begins. */
const char *layer_base(const char *path);

/* NAME without what a terminal or a reader of lines could take amiss, and not too long. */
void layer_clean(const char *name, char *out, size_t room);

#endif
