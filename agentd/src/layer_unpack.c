/* `agentd unpack`: a tar stream becomes the directory of a layer. See layer_box.h and layer_tree.h.
 *
 * A later entry wins over an earlier one of the same name, as in every tar. Owners are those of the
 * archive, unless there is one id only; modes and times too. Of the attributes only user.* stay, and of
 * those not what overlay keeps for itself. Devices are left out and counted. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "launch.h"
#include "layer_box.h"
#include "layer_tree.h"
#include "tar_read.h"
#include "util.h"

/* A link to a link to a file that comes later: so often all late ones are tried again. */
#define LINK_ROUNDS 8
#define WIDEST_USUAL_ID 65535

struct unpacking {
    struct box box;
    struct tar_reader tar;
    struct layer_tree tree;
    uint64_t entries, bytes, whiteouts, devices, wide_ids, xattrs_dropped;
    struct tar_entry top; /* what the archive says of the layer's own directory */
    bool has_top;
    struct buf late; /* hard links whose target has not come yet: two texts each */
    size_t *late_at, late_count, late_room;
};

/* 0 is whoever unpacks. Also where nothing else can be: with one id. */
static bool has_owner(struct unpacking *u, const struct tar_entry *e) {
    if (u->box.ids == IDS_SINGLE)
        return false;
    if (e->uid > UINT32_MAX - 1 || e->gid > UINT32_MAX - 1)
        box_refuse("id", e->path);
    u->wide_ids += e->uid > WIDEST_USUAL_ID || e->gid > WIDEST_USUAL_ID;
    return e->uid || e->gid || u->tree.hands_down_group;
}

static __attribute__((noreturn)) void no_owner(const struct tar_entry *e) {
    if (errno == EINVAL)
        box_refuse("unmapped-id", e->path);
    box_fail(e->path);
}

static void times_of(const struct tar_entry *e, struct timespec times[2]) {
    times[0] = times[1] = (struct timespec){e->mtime, e->mtime_ns};
}

static bool is_kept(const char *name) {
    return !strncmp(name, "user.", 5) && strncmp(name, "user.overlay.", 13) != 0;
}

static void set_xattrs(struct unpacking *u, int fd, const struct tar_entry *e) {
    for (size_t i = 0; i < e->xattr_count; i++) {
        const struct tar_xattr *x = &e->xattrs[i];

        if (fd < 0 || !is_kept(x->name)) {
            u->xattrs_dropped++;
        } else if (fsetxattr(fd, x->name, x->value, x->size, 0) < 0) {
            if (errno == E2BIG || errno == ERANGE || errno == ENOSPC)
                box_refuse("xattr", e->path);
            if (errno != EOPNOTSUPP)
                box_fail(e->path);
            u->xattrs_dropped++;
        }
    }
}

static void write_at(int fd, const uint8_t *bytes, size_t n, const struct tar_entry *e) {
    if (write_all(fd, bytes, n) < 0)
        box_fail(e->path);
}

static void write_segments(struct unpacking *u, int fd, const struct tar_entry *e) {
    if (ftruncate(fd, (off_t)e->size) < 0)
        box_fail(e->path);
    const uint8_t *bytes = NULL;
    size_t there = 0;

    for (size_t i = 0; i < e->segment_count; i++) {
        uint64_t left = e->segments[i].size;

        if (left && lseek(fd, (off_t)e->segments[i].offset, SEEK_SET) < 0)
            box_fail(e->path);
        while (left) {
            size_t n;

            if (!there) {
                ssize_t got = tar_data(&u->tar, &bytes);

                if (got <= 0)
                    box_refuse(got < 0 ? u->tar.why : "sparse", e->path);
                there = (size_t)got;
            }
            n = left < there ? (size_t)left : there;
            write_at(fd, bytes, n, e);
            bytes += n;
            there -= n;
            left -= n;
        }
    }
}

static void write_content(struct unpacking *u, int fd, const struct tar_entry *e) {
    const uint8_t *bytes;
    ssize_t n;

    if (e->sparse) {
        write_segments(u, fd, e);
        return;
    }
    while ((n = tar_data(&u->tar, &bytes)) > 0) write_at(fd, bytes, (size_t)n, e);
    if (n < 0)
        box_refuse(u->tar.why, e->path);
}

static void make_file(struct unpacking *u, int at, const char *name, const char *path,
                      const struct tar_entry *e) {
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    struct timespec times[2];
    int fd;

    if (e->size > u->box.max_bytes - u->bytes)
        box_refuse("bytes", e->path);
    u->bytes += e->size;
    fd = openat(at, name, flags, e->mode & 0777);
    if (fd < 0 && errno == EEXIST) {
        tree_clear(at, name, path);
        fd = openat(at, name, flags, e->mode & 0777);
    }
    if (fd < 0)
        box_fail(e->path);
    write_content(u, fd, e);
    if (has_owner(u, e) && fchown(fd, (uid_t)e->uid, (gid_t)e->gid) < 0)
        no_owner(e);
    /* After content and owner, which both take these bits away. */
    if (e->mode & 07000 && fchmod(fd, e->mode) < 0)
        box_fail(e->path);
    set_xattrs(u, fd, e);
    times_of(e, times);
    if (futimens(fd, times) < 0 || close(fd) < 0)
        box_fail(e->path);
}

static void shape_directory(struct unpacking *u, int at, const char *name, const char *path,
                            const struct tar_entry *e) {
    CLEANUP_CLOSE int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0 || (has_owner(u, e) && fchown(fd, (uid_t)e->uid, (gid_t)e->gid) < 0))
        no_owner(e);
    if (fchmod(fd, e->mode) < 0)
        box_fail(e->path);
    set_xattrs(u, fd, e);
    tree_note_time(&u->tree, path, e->mtime, e->mtime_ns);
}

static void make_directory(struct unpacking *u, int at, const char *name, const char *path,
                           const struct tar_entry *e) {
    struct stat st;

    if (mkdirat(at, name, 0700) < 0) {
        if (errno != EEXIST || fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            box_fail(e->path);
        if (!S_ISDIR(st.st_mode)) {
            bool hidden = tree_clear(at, name, path);

            if (mkdirat(at, name, 0700) < 0)
                box_fail(e->path);
            if (hidden)
                tree_make_opaque(at, name, path);
        }
    }
    shape_directory(u, at, name, path, e);
}

/* Of what has no descriptor. */
static void shape(struct unpacking *u, int at, const char *name, const struct tar_entry *e) {
    struct timespec times[2];

    if (has_owner(u, e) && fchownat(at, name, (uid_t)e->uid, (gid_t)e->gid, AT_SYMLINK_NOFOLLOW) < 0)
        no_owner(e);
    set_xattrs(u, -1, e);
    times_of(e, times);
    if (utimensat(at, name, times, AT_SYMLINK_NOFOLLOW) < 0)
        box_fail(e->path);
}

static void make_symlink(struct unpacking *u, int at, const char *name, const char *path,
                         const struct tar_entry *e) {
    if (!*e->link || strlen(e->link) > LAYER_MAX_PATH)
        box_refuse("link", e->path);
    if (symlinkat(e->link, at, name) < 0) {
        if (errno != EEXIST)
            box_fail(e->path);
        tree_clear(at, name, path);
        if (symlinkat(e->link, at, name) < 0)
            box_fail(e->path);
    }
    shape(u, at, name, e);
}

static void make_fifo(struct unpacking *u, int at, const char *name, const char *path,
                      const struct tar_entry *e) {
    tree_clear(at, name, path);
    if (mkfifoat(at, name, e->mode & 0777) < 0)
        box_fail(e->path);
    shape(u, at, name, e);
}

/* False: there is nothing (yet) to link to. */
static bool link_to(struct unpacking *u, int at, const char *name, const char *path,
                    const char *target) {
    struct stat st, there;

    if (fstatat(u->tree.root, target, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
            box_fail(path);
        return false;
    }
    if (tree_is_whiteout(&st))
        return false;
    if (S_ISDIR(st.st_mode))
        box_refuse("link-directory", path);
    if (fstatat(at, name, &there, AT_SYMLINK_NOFOLLOW) == 0) {
        if (there.st_ino == st.st_ino && there.st_dev == st.st_dev)
            return true;
        tree_clear(at, name, path);
    }
    if (linkat(u->tree.root, target, at, name, 0) < 0) {
        if (errno == ENOENT)
            return false; /* it was in what has just been cleared */
        box_fail(path);
    }
    return true;
}

static void make_link(struct unpacking *u, int at, const char *name, const char *path,
                      const struct tar_entry *e) {
    char target[LAYER_MAX_PATH + 1];
    const char *why;

    if (!layer_link_name(e->link, target, &why))
        box_refuse(!strcmp(why, "dotdot") ? "link-dotdot" : "link", e->path);
    if (link_to(u, at, name, path, target))
        return;
    tree_clear(at, name, path);
    if (u->late_count == u->late_room) {
        u->late_room = u->late_room ? 2 * u->late_room : 64;
        u->late_at = xrealloc(u->late_at, u->late_room * sizeof(*u->late_at));
    }
    u->late_at[u->late_count++] = u->late.len;
    buf_add(&u->late, path, strlen(path) + 1);
    buf_add(&u->late, target, strlen(target) + 1);
}

/* True: it is a link now, or something else has come there since. */
static bool link_late(struct unpacking *u, size_t i, bool last) {
    const char *path = (const char *)u->late.data + u->late_at[i], *target = path + strlen(path) + 1;
    const char *name;
    struct stat st;
    int at = tree_parent(&u->tree, path, &name);

    if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !tree_is_whiteout(&st))
        return true;
    if (link_to(u, at, name, path, target))
        return true;
    if (last)
        box_refuse("link-missing", path);
    return false;
}

/* Forwards and backwards in turn, since a link may lead to another that is late too. */
static void make_late_links(struct unpacking *u) {
    for (int round = 0; u->late_count; round++) {
        size_t kept = 0;

        for (size_t i = 0; i < u->late_count; i++)
            if (!link_late(u, i, round == LINK_ROUNDS))
                u->late_at[kept++] = u->late_at[i];
        u->late_count = kept;
        for (size_t i = 0; i < kept / 2; i++) {
            size_t other = u->late_at[i];

            u->late_at[i] = u->late_at[kept - 1 - i];
            u->late_at[kept - 1 - i] = other;
        }
    }
}

static void make_plain(struct unpacking *u, const char *path, const struct tar_entry *e) {
    const char *name;
    int at;

    if (e->type == TAR_DEVICE) {
        u->devices++;
        return;
    }
    at = tree_parent(&u->tree, path, &name);
    switch (e->type) {
    case TAR_FILE: make_file(u, at, name, path, e); break;
    case TAR_DIRECTORY: make_directory(u, at, name, path, e); break;
    case TAR_SYMLINK: make_symlink(u, at, name, path, e); break;
    case TAR_HARD_LINK: make_link(u, at, name, path, e); break;
    case TAR_FIFO: make_fifo(u, at, name, path, e); break;
    case TAR_DEVICE: break;
    }
}

/* Owner and mode of the layer's own directory come last: until then it is open to the user, who may
 * have to find it abandoned and remove it. */
static void note_top(struct unpacking *u, const struct tar_entry *e) {
    if (e->type != TAR_DIRECTORY)
        box_refuse("root", e->path);
    u->top = (struct tar_entry){.path = "/", .mode = e->mode, .uid = e->uid, .gid = e->gid};
    u->has_top = true;
    set_xattrs(u, u->tree.root, e);
    tree_note_time(&u->tree, "", e->mtime, e->mtime_ns);
}

static void shape_top(struct unpacking *u) {
    if (!u->has_top)
        return;
    if (has_owner(u, &u->top) && fchown(u->tree.root, (uid_t)u->top.uid, (gid_t)u->top.gid) < 0)
        no_owner(&u->top);
    if (fchmod(u->tree.root, u->top.mode) < 0)
        box_fail("/");
}

static void make_entry(struct unpacking *u, const struct tar_entry *e) {
    char path[LAYER_MAX_PATH + 1], inside[LAYER_MAX_PATH + 3];
    const char *why = "", *name;
    int at;

    if (++u->entries > u->box.max_entries)
        box_refuse("entries", e->path);
    switch (layer_name(e->path, path, &why)) {
    case LAYER_REFUSED: box_refuse(why, e->path);
    case LAYER_IGNORED: return;
    case LAYER_PLAIN: make_plain(u, path, e); return;
    case LAYER_ROOT: note_top(u, e); return;
    case LAYER_REMOVAL:
        at = tree_parent(&u->tree, path, &name);
        u->whiteouts += tree_whiteout(&u->tree, at, name, path);
        return;
    case LAYER_EMPTYING:
        snprintf(inside, sizeof inside, "%s%s.", path, *path ? "/" : "");
        at = tree_parent(&u->tree, inside, &name);
        tree_make_opaque(at, ".", path);
        u->whiteouts++;
        return;
    }
}

int unpack_main(int argc, char **argv) {
    static struct unpacking u;
    struct tar_entry entry;
    char line[256];
    int found;

    if (argc != 5) return 2;
    box_enter(argv, true, &u.box);
    if (fchown(u.box.root, 0, 0) < 0 || fchmod(u.box.root, 0755) < 0) box_fail("/");
    tree_open(&u.tree, u.box.root);
    tree_note_time(&u.tree, "", 0, 0);
    tar_open(&u.tar, u.box.tar);
    while ((found = tar_next(&u.tar, &entry)) > 0) make_entry(&u, &entry);
    if (found < 0) box_refuse(u.tar.why, entry.path);
    make_late_links(&u);
    shape_top(&u);
    tree_set_times(&u.tree);
    if (u.box.sync && syncfs(u.box.root) < 0) box_fail("/");
    snprintf(line, sizeof line,
             "R entries=%llu bytes=%llu whiteouts=%llu devices=%llu wide_ids=%llu xattrs=%llu ended=%d\n",
             (unsigned long long)u.entries, (unsigned long long)u.bytes,
             (unsigned long long)u.whiteouts, (unsigned long long)u.devices,
             (unsigned long long)u.wide_ids, (unsigned long long)u.xattrs_dropped, u.tar.ended);
    box_report(line);
    return 0;
}
