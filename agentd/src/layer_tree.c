/* See layer_tree.h. */
#define _GNU_SOURCE
#include "layer_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "file_levels.h"
#include "layer_box.h"

#define AS_PARENT (O_PATH | O_DIRECTORY | O_CLOEXEC)

void tree_open(struct layer_tree *tree, int root) {
    *tree = (struct layer_tree){.root = root, .parent_fd = -1};
}

static void forget_parent(struct layer_tree *tree) {
    if (tree->parent_fd >= 0)
        close(tree->parent_fd);
    tree->parent_fd = -1;
}

bool tree_is_whiteout(const struct stat *st) {
    return S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0);
}

void tree_make_opaque(int at, const char *name, const char *path) {
    CLEANUP_CLOSE int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0 || fsetxattr(fd, LAYER_OPAQUE_XATTR, "y", 1, 0) < 0)
        box_fail(path);
}

/* One step of the way to a directory, made where nothing is. */
static int step(struct layer_tree *tree, int at, const char *name, const char *path) {
    struct stat st;
    int fd = openat(at, name, AS_PARENT);

    if (fd >= 0)
        return fd;
    if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
        box_fail(path);
    bool hidden = false;
    if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        hidden = tree_is_whiteout(&st);
        if (!hidden)
            box_refuse(S_ISLNK(st.st_mode) ? "parent-link" : "parent-file", path);
        if (unlinkat(at, name, 0) < 0)
            box_fail(path);
    }
    if (mkdirat(at, name, 0755) < 0)
        box_fail(path);
    if (hidden)
        tree_make_opaque(at, name, path);
    tree_note_time(tree, path, 0, 0);
    fd = openat(at, name, AS_PARENT | O_NOFOLLOW);
    if (fd < 0)
        box_fail(path);
    return fd;
}

static int walk(struct layer_tree *tree, const char *path) {
    char way[LAYER_MAX_PATH + 1];
    int at = tree->root;

    for (size_t from = 0, len; path[from]; from += len + (path[from + len] == '/')) {
        char name[LAYER_MAX_NAME + 1];
        int next;

        len = strcspn(path + from, "/");
        memcpy(name, path + from, len);
        name[len] = 0;
        memcpy(way, path, from + len);
        way[from + len] = 0;
        next = step(tree, at, name, way);
        if (at != tree->root)
            close(at);
        at = next;
    }
    return at;
}

int tree_parent(struct layer_tree *tree, const char *path, const char **name) {
    size_t len;
    struct stat st;

    *name = layer_base(path);
    len = *name > path ? (size_t)(*name - path) - 1 : 0;
    if (tree->parent_fd >= 0 && strlen(tree->parent) == len && !memcmp(tree->parent, path, len))
        return tree->parent_fd;
    forget_parent(tree);
    memcpy(tree->parent, path, len);
    tree->parent[len] = 0;
    tree->parent_fd = openat(tree->root, len ? tree->parent : ".", AS_PARENT);
    if (tree->parent_fd < 0)
        tree->parent_fd = walk(tree, tree->parent);
    if (fstat(tree->parent_fd, &st) < 0)
        box_fail(path);
    tree->hands_down_group = st.st_mode & S_ISGID;
    return tree->parent_fd;
}

/* Everything in directory NAME, however deep; nobody else is at work here. */
static void empty(int at, const char *name, const char *path) {
    struct levels l = {0};

    if (levels_enter(&l, at, name, SIZE_MAX) < 0)
        box_fail(path);
    for (;;) {
        const char *next = levels_next(&l);

        if (next) {
            if (unlinkat(levels_fd(&l), next, 0) < 0 && levels_enter(&l, levels_fd(&l), next, SIZE_MAX) < 0)
                box_fail(path);
            continue;
        }
        if (l.depth == 1)
            break;
        if (levels_leave(&l) < 0)
            box_fail(path);
        next = l.list[l.depth - 1].names[l.list[l.depth - 1].next - 1];
        if (unlinkat(levels_fd(&l), next, AT_REMOVEDIR) < 0)
            box_fail(path);
    }
    levels_free(&l);
}

bool tree_clear(int at, const char *name, const char *path) {
    struct stat st;

    if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno != ENOENT)
            box_fail(path);
        return false;
    }
    if (!S_ISDIR(st.st_mode)) {
        if (unlinkat(at, name, 0) < 0)
            box_fail(path);
        return tree_is_whiteout(&st);
    }
    if (unlinkat(at, name, AT_REMOVEDIR) < 0) {
        empty(at, name, path);
        if (unlinkat(at, name, AT_REMOVEDIR) < 0)
            box_fail(path);
    }
    return false;
}

bool tree_whiteout(struct layer_tree *tree, int at, const char *name, const char *path) {
    struct stat st;

    if (mknodat(at, name, S_IFCHR, makedev(0, 0)) == 0) {
        if (tree->hands_down_group && fchownat(at, name, 0, 0, AT_SYMLINK_NOFOLLOW) < 0)
            box_fail(path);
        return true;
    }
    if (errno != EEXIST || fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        box_fail(path);
    if (S_ISDIR(st.st_mode))
        tree_make_opaque(at, name, path);
    return false;
}

void tree_note_time(struct layer_tree *tree, const char *path, int64_t seconds, uint32_t nanoseconds) {
    buf_add(&tree->times, &seconds, sizeof(seconds));
    buf_add(&tree->times, &nanoseconds, sizeof(nanoseconds));
    buf_add(&tree->times, path, strlen(path) + 1);
}

/* What has become something else since is left alone. */
void tree_set_times(struct layer_tree *tree) {
    const uint8_t *at = tree->times.data;

    while (at < tree->times.data + tree->times.len) {
        int64_t seconds;
        uint32_t nanoseconds;
        const char *path;
        struct stat st;

        memcpy(&seconds, at, sizeof(seconds));
        memcpy(&nanoseconds, at + sizeof(seconds), sizeof(nanoseconds));
        path = (const char *)at + sizeof(seconds) + sizeof(nanoseconds);
        at = (const uint8_t *)path + strlen(path) + 1;
        if (!*path)
            path = ".";
        const struct timespec times[2] = {{seconds, nanoseconds}, {seconds, nanoseconds}};
        if (fstatat(tree->root, path, &st, AT_SYMLINK_NOFOLLOW) < 0) {
            if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)
                continue;
            box_fail(path);
        }
        if (S_ISDIR(st.st_mode) && utimensat(tree->root, path, times, AT_SYMLINK_NOFOLLOW) < 0)
            box_fail(path);
    }
    buf_free(&tree->times);
}
