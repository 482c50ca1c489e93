/* The tree that a layer becomes while it is unpacked: where its entries go, and what goes for them.
 *
 * Overlay's own form: what is gone from lower layers is a character device 0:0 (which takes no right to
 * make), a directory that hides them all has the attribute user.overlay.opaque. */
#ifndef AGENTD_LAYER_TREE_H
#define AGENTD_LAYER_TREE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "layer_names.h"
#include "util.h"

#define LAYER_OPAQUE_XATTR "user.overlay.opaque"

struct layer_tree {
    int root;
    /* The directory of the entry at hand: archives have one after the other of the same. */
    char parent[LAYER_MAX_PATH + 1];
    int parent_fd; /* -1: none yet; O_PATH */
    bool hands_down_group; /* what is made there gets its group */
    struct buf times; /* of directories, which all that is made in them would change again */
};

void tree_open(struct layer_tree *tree, int root);
/* The directory that PATH is in, made if need be; *NAME is PATH's last part. Links on the way are
 * followed, inside the layer. Refused where the way leads through a file or to nowhere. */
int tree_parent(struct layer_tree *tree, const char *path, const char **name);
/* Removes whatever is there; of a directory all that is in it. True: it was a whiteout. */
bool tree_clear(int at, const char *name, const char *path);
/* Lower layers' NAME is gone. What this layer has there stays. True: a whiteout was made. */
bool tree_whiteout(struct layer_tree *tree, int at, const char *name, const char *path);
void tree_make_opaque(int at, const char *name, const char *path);
bool tree_is_whiteout(const struct stat *st);

/* Remembers the time that directory PATH is to have when all is made. */
void tree_note_time(struct layer_tree *tree, const char *path, int64_t seconds, uint32_t nanoseconds);
void tree_set_times(struct layer_tree *tree);

#endif
