/* `agentd pack`: the tree of a layer, of an overlay's upper or of any directory becomes a tar stream.
 * See layer_box.h.
 *
 * The same tree gives the same bytes: names sorted, numbers for owners, times in seconds. Whiteouts and
 * opaque directories become the files that archives have for them. A guest may have made the tree: no
 * link is followed, no depth recursed into, and a file that could pass for a whiteout is refused. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "file_levels.h"
#include "layer_box.h"
#include "layer_tree.h"
#include "tar_write.h"
#include "util.h"

#define XATTR_LIST 65536u
#define XATTR_VALUE 65536u

/* A file that has other names, and the first one under which it was written. */
struct seen {
    dev_t dev;
    ino_t ino;
    char *path; /* NULL: a free place */
};

struct packing {
    struct box box;
    struct tar_writer tar;
    struct levels levels;
    uint64_t entries, bytes, left_out;
    struct seen *seen; /* a hash table, a power of two */
    size_t seen_count, seen_room;
    struct tar_xattr *xattrs;
    size_t xattr_room;
    struct buf values;
};

static __attribute__((noreturn)) void broken(void) { box_fail("the archive"); }

static void put_entry(struct packing *p, const struct tar_entry *e) {
    if (++p->entries > p->box.max_entries)
        box_refuse("entries", e->path);
    if (tar_put_entry(&p->tar, e) < 0)
        broken();
}

static struct seen *place_of(struct packing *p, const struct stat *st) {
    size_t mask = p->seen_room - 1;
    size_t at = (size_t)((uint64_t)st->st_ino * UINT64_C(0x9E3779B97F4A7C15) >> 20) & mask;

    while (p->seen[at].path && (p->seen[at].ino != st->st_ino || p->seen[at].dev != st->st_dev))
        at = (at + 1) & mask;
    return &p->seen[at];
}

static void grow_seen(struct packing *p) {
    struct seen *old = p->seen;
    size_t room = p->seen_room;

    p->seen_room = room ? 2 * room : 1024;
    p->seen = xcalloc(p->seen_room, sizeof(*p->seen));
    for (size_t i = 0; i < room; i++) {
        struct stat st = {.st_dev = old[i].dev, .st_ino = old[i].ino};

        if (old[i].path)
            *place_of(p, &st) = old[i];
    }
    free(old);
}

/* The path under which this file is in the archive already, or NULL: then it is remembered. */
static const char *first_name(struct packing *p, const struct stat *st, const char *path) {
    struct seen *place;

    if (st->st_nlink < 2)
        return NULL;
    if (2 * p->seen_count >= p->seen_room)
        grow_seen(p);
    place = place_of(p, st);
    if (place->path)
        return place->path;
    *place = (struct seen){st->st_dev, st->st_ino, xmemdup_text(path, strlen(path))};
    p->seen_count++;
    return NULL;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct tar_xattr *)a)->name, ((const struct tar_xattr *)b)->name);
}

/* Into ENTRY those that users may set and overlay has not; true: it is an opaque directory. */
static bool take_xattrs(struct packing *p, int fd, struct tar_entry *entry) {
    static char names[XATTR_LIST];
    static uint8_t value[XATTR_VALUE];
    ssize_t size = flistxattr(fd, names, sizeof names);
    bool opaque = false;
    size_t count = 0;

    if (size < 0 && errno != EOPNOTSUPP)
        box_fail(entry->path);
    p->values.len = 0;
    for (const char *name = names; name < names + size; name += strlen(name) + 1) {
        bool ours = !strncmp(name, "user.overlay.", 13);
        ssize_t n;

        if (strncmp(name, "user.", 5) != 0 || (ours && strcmp(name, LAYER_OPAQUE_XATTR) != 0))
            continue;
        n = fgetxattr(fd, name, value, sizeof value);
        if (n < 0)
            box_fail(entry->path);
        if (ours) {
            opaque = n == 1 && value[0] == 'y';
            continue;
        }
        if (count == p->xattr_room) {
            p->xattr_room = p->xattr_room ? 2 * p->xattr_room : 16;
            p->xattrs = xrealloc(p->xattrs, p->xattr_room * sizeof(*p->xattrs));
        }
        p->xattrs[count++] = (struct tar_xattr){.name = name, .size = (size_t)n};
        buf_add(&p->values, value, (size_t)n);
    }
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        p->xattrs[i].value = p->values.data + at;
        at += p->xattrs[i].size;
    }
    if (count)
        qsort(p->xattrs, count, sizeof(*p->xattrs), by_name);
    entry->xattrs = p->xattrs;
    entry->xattr_count = count;
    return opaque;
}

static struct tar_entry described(const struct packing *p, enum tar_type type, const char *path,
                                  const struct stat *st) {
    bool one_id = p->box.ids == IDS_SINGLE;

    return (struct tar_entry){
        .type = type,
        .path = path,
        .link = "",
        .mode = st->st_mode & 07777,
        .uid = one_id ? 0 : st->st_uid,
        .gid = one_id ? 0 : st->st_gid,
        .mtime = st->st_mtim.tv_sec,
    };
}

static void put_content(struct packing *p, int fd, const struct tar_entry *e) {
    uint64_t left = e->size;

    while (left) {
        size_t room;
        uint8_t *to = tar_room(&p->tar, &room);
        ssize_t n = read(fd, to, left < room ? (size_t)left : room);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            box_fail(e->path);
        if (n == 0)
            box_refuse("changed", e->path);
        if (tar_advance(&p->tar, (size_t)n) < 0)
            broken();
        left -= (uint64_t)n;
    }
    if (tar_pad(&p->tar, e->size) < 0)
        broken();
}

static void put_file(struct packing *p, const char *name, const char *path, const struct stat *st) {
    /* O_NONBLOCK: by now it may be a FIFO. */
    CLEANUP_CLOSE int fd = openat(levels_fd(&p->levels), name,
                                  O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct tar_entry e = described(p, TAR_FILE, path, st);
    struct stat now;

    if (fd < 0 || fstat(fd, &now) < 0)
        box_fail(path);
    if (now.st_ino != st->st_ino || now.st_size != st->st_size)
        box_refuse("changed", path);
    e.size = (uint64_t)st->st_size;
    if (e.size > p->box.max_bytes - p->bytes)
        box_refuse("bytes", path);
    p->bytes += e.size;
    take_xattrs(p, fd, &e);
    put_entry(p, &e);
    put_content(p, fd, &e);
}

/* A file of a name that means something to whoever unpacks it; PATH is of the directory it is in. */
static void put_mark(struct packing *p, const char *path, const char *prefix, const char *name) {
    static const struct stat nobody;
    char mark[2 * LAYER_MAX_PATH];
    struct tar_entry e;

    snprintf(mark, sizeof mark, "%s%s%s%s", path, *path ? "/" : "", prefix, name);
    if (strlen(layer_base(mark)) > LAYER_MAX_NAME || strlen(mark) > LAYER_MAX_PATH)
        box_refuse("long-path", mark);
    e = described(p, TAR_FILE, mark, &nobody);
    put_entry(p, &e);
}

static void put_directory(struct packing *p, int fd, const char *path, const struct stat *st) {
    char shown[LAYER_MAX_PATH + 3];
    struct tar_entry e;

    snprintf(shown, sizeof shown, "%s/", *path ? path : ".");
    e = described(p, TAR_DIRECTORY, shown, st);
    bool opaque = take_xattrs(p, fd, &e);
    put_entry(p, &e);
    if (opaque)
        put_mark(p, path, LAYER_OPAQUE, "");
}

static void enter(struct packing *p, const char *name, const char *path, const struct stat *st) {
    char own[LAYER_MAX_PATH + 1];
    struct stat now;

    strcpy(own, path);
    if (levels_enter(&p->levels, levels_fd(&p->levels), name, p->box.max_entries - p->entries) < 0) {
        if (errno == EOVERFLOW)
            box_refuse("entries", own);
        box_fail(own);
    }
    if (fstat(levels_fd(&p->levels), &now) < 0)
        box_fail(own);
    if (now.st_ino != st->st_ino)
        box_refuse("changed", own);
    put_directory(p, levels_fd(&p->levels), own, st);
}

static void put_symlink(struct packing *p, const char *name, const char *path, const struct stat *st) {
    char target[LAYER_MAX_PATH + 2];
    struct tar_entry e = described(p, TAR_SYMLINK, path, st);
    ssize_t n = readlinkat(levels_fd(&p->levels), name, target, sizeof target - 1);

    if (n < 0)
        box_fail(path);
    target[n] = 0;
    e.link = target;
    put_entry(p, &e);
}

static void put_node(struct packing *p, const char *name, const char *path, const struct stat *st) {
    const char *first = first_name(p, st, path);
    struct tar_entry e;

    if (first) {
        e = described(p, TAR_HARD_LINK, path, st);
        e.link = first;
        put_entry(p, &e);
    } else if (S_ISREG(st->st_mode)) {
        put_file(p, name, path, st);
    } else if (S_ISLNK(st->st_mode)) {
        put_symlink(p, name, path, st);
    } else {
        e = described(p, TAR_FIFO, path, st);
        put_entry(p, &e);
    }
}

/* A path of the list is left out with all below it; one that ends with "/" stays, without what is in
 * it. */
static bool is_excluded(const struct packing *p, const char *path) {
    for (size_t i = 0; i < p->box.exclude_count; i++) {
        const char *out = p->box.exclude[i];
        size_t len = strlen(out);

        if (len && out[len - 1] == '/' ? !strncmp(path, out, len) : !strcmp(path, out))
            return true;
    }
    return false;
}

static void put_name(struct packing *p, const char *name) {
    char path[LAYER_MAX_PATH + 1];
    const char *whole = levels_path(&p->levels, name);
    struct stat st;

    if (strlen(whole) > LAYER_MAX_PATH)
        box_refuse("long-path", whole);
    strcpy(path, whole);
    if (is_excluded(p, path))
        return;
    if (!strncmp(name, LAYER_WHITEOUT, strlen(LAYER_WHITEOUT)))
        box_refuse("reserved-name", path);
    if (fstatat(levels_fd(&p->levels), name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        box_fail(path);
    if (S_ISDIR(st.st_mode)) {
        enter(p, name, path, &st);
    } else if (tree_is_whiteout(&st)) {
        const char *base = layer_base(path);

        path[base > path ? base - path - 1 : 0] = 0;
        put_mark(p, path, LAYER_WHITEOUT, name);
    } else if (S_ISREG(st.st_mode) || S_ISLNK(st.st_mode) || S_ISFIFO(st.st_mode)) {
        put_node(p, name, path, &st);
    } else {
        p->left_out++;
    }
}

int pack_main(int argc, char **argv) {
    static struct packing p;
    struct stat st;
    char line[128];

    if (argc != 5) return 2;
    box_enter(argv, false, &p.box);
    tar_writer_open(&p.tar, p.box.tar);
    if (levels_enter(&p.levels, p.box.root, ".", p.box.max_entries) < 0) {
        if (errno == EOVERFLOW) box_refuse("entries", "/");
        box_fail("/");
    }
    if (fstat(p.box.root, &st) < 0) box_fail("/");
    put_directory(&p, p.box.root, "", &st);
    while (p.levels.depth) {
        const char *name = levels_next(&p.levels);

        if (name)
            put_name(&p, name);
        else if (levels_leave(&p.levels) < 0)
            box_refuse("changed", "/");
    }
    if (tar_finish(&p.tar) < 0) broken();
    snprintf(line, sizeof line, "R entries=%llu bytes=%llu left_out=%llu\n",
             (unsigned long long)p.entries, (unsigned long long)p.bytes,
             (unsigned long long)p.left_out);
    box_report(line);
    return 0;
}
