/* Staging and building the root filesystem. See launch_mounts.h for the two halves.
 *
 * Targets inside the new root are opened component by component without following any symbolic
 * link: an image is somebody else's data, and a link at /proc or /dev must not move a mount. Nothing
 * of the guest runs yet, so there is no race to lose, only a link to refuse.
 */
#define _GNU_SOURCE
#include "launch_mounts.h"

#include "launch.h"
#include "launch_image.h"
#include "launch_sys.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* Names in the staging tmpfs besides the numbered sources. Short and neutral: the guest can read
 * them in the options of its overlay mounts. */
#define GUEST_DIR "b"      /* B's own tmpfs: the new root's mount point, an empty directory, data */
#define ROOT_DIR "b/r"
#define EMPTY_DIR "b/e"
#define EMPTY_FILE "b/f"
#define UPPER_DIR "u"

static int clone_tree(int dir, const char *path, bool recursive) {
    unsigned flags = OPEN_TREE_CLONE | O_CLOEXEC | (recursive ? AT_RECURSIVE : 0);
    return (int)syscall(SYS_open_tree, dir, path, flags);
}

static int attach_tree(int tree, int target) {
    return (int)syscall(SYS_move_mount, tree, "", target, "",
                        MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
}

static int set_attributes(int tree, uint64_t set, int userns, bool recursive) {
    struct mount_attributes attr = {
        .attr_set = set | (userns >= 0 ? MOUNT_ATTR_IDMAP : 0),
        .propagation = MS_PRIVATE,
        .userns_fd = userns >= 0 ? (uint64_t)userns : 0,
    };
    unsigned flags = AT_EMPTY_PATH | (recursive ? AT_RECURSIVE : 0);
    return (int)syscall(SYS_mount_setattr, tree, "", flags, &attr, sizeof attr);
}

/* ---- first half ---------------------------------------------------------------------------- */

#define VOLUME_DIR "data"
#define NEW_DIR ".new"

/* A volume's own directory, made by the first sandbox that has the volume and from then on there with
 * its owner, or not at all. Its parent is ours: no guest has ever seen it. */
static void make_volume(int at, const struct plan_source *source) {
    struct stat st;
    if (fstatat(at, VOLUME_DIR, &st, AT_SYMLINK_NOFOLLOW) == 0) return;
    if (mkdirat(at, NEW_DIR, 0755) < 0 && errno != EEXIST) launch_fail("volume", source->path);
    /* Whoever else makes it this moment may have been quicker. */
    if ((fchmodat(at, NEW_DIR, 0755, 0) < 0 ||
         (source->owner > 0 && fchownat(at, NEW_DIR, (uid_t)source->owner, (gid_t)source->owner,
                                        AT_SYMLINK_NOFOLLOW) < 0) ||
         syscall(SYS_renameat2, at, NEW_DIR, at, VOLUME_DIR, RENAME_NOREPLACE) < 0) &&
        errno != ENOENT && errno != EEXIST)
        launch_fail("volume", source->path);
}

/* The directory of a volume as a mount that is nowhere yet. */
static int volume_mount(const struct plan_source *source, bool recursive) {
    int at = open(source->path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (at < 0) launch_fail("volume", source->path);
    make_volume(at, source);
    int tree = clone_tree(at, VOLUME_DIR, recursive);
    close(at);
    return tree;
}

static void set_source_attributes(int tree, const struct plan_source *source, int idmap,
                                  bool recursive) {
    uint64_t set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    if (!source->writable) set |= MOUNT_ATTR_RDONLY;
    if (set_attributes(tree, set, idmap, recursive) < 0)
        launch_fail(idmap >= 0 ? "idmap" : "source-attributes", source->path);
}

/* An image's mount has to be somewhere before a directory in it can be mounted: that goes on top. What
 * is below is the staging's, which no guest can reach. */
static void show_volume_in_image(const char *name, const struct plan_source *source, int idmap) {
    int at = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (at < 0) launch_fail("volume", source->path);
    make_volume(at, source);
    int tree = clone_tree(at, VOLUME_DIR, false);
    if (tree < 0) launch_fail("volume", source->path);
    set_source_attributes(tree, source, idmap, false);
    if (attach_tree(tree, at) < 0) launch_fail("volume", source->path);
    close(tree);
    close(at);
}

static int open_source(const struct plan_source *source, bool recursive) {
    if (source->is_image) return image_mount(source->path, source->is_volume);
    if (source->is_volume) return volume_mount(source, recursive);
    return clone_tree(AT_FDCWD, source->path, recursive && !source->is_file);
}

void mounts_stage(const struct plan *plan, int idmap_fd, int project_fd) {
    /* Mounts of the host must not receive ours; ours may still see the host unmount things. */
    if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0) launch_fail("propagation", "");

    /* All sources are opened before the staging tmpfs may cover some of them. In a user namespace
     * the kernel only gives a tree out with the mounts below it; overlays ignore those. */
    bool recursive = idmap_fd < 0;
    int *trees = calloc(plan->source_count, sizeof *trees);
    if (!trees) launch_fail("memory", "");
    for (size_t i = 0; i < plan->source_count; i++) {
        const struct plan_source *source = &plan->sources[i];
        trees[i] = open_source(source, recursive);
        if (trees[i] < 0) launch_fail("source", source->path);
        if (source->is_image && source->is_volume) continue; /* its directory gets them */
        int idmap = source->is_project && project_fd >= 0 ? project_fd : idmap_fd;
        set_source_attributes(trees[i], source, idmap, recursive && !source->is_file);
    }
    if (mount("tmpfs", plan->staging, "tmpfs", MS_NOSUID | MS_NODEV, "size=256k,mode=755") < 0 ||
        chdir(plan->staging) < 0)
        launch_fail("staging", plan->staging);
    for (size_t i = 0; i < plan->source_count; i++) {
        char name[24];
        snprintf(name, sizeof name, "%zu", i);
        int made = plan->sources[i].is_file ? mknod(name, S_IFREG | 0444, 0) : mkdir(name, 0755);
        int at = made < 0 ? -1 : open(name, O_PATH | O_CLOEXEC);
        if (at < 0 || attach_tree(trees[i], at) < 0) launch_fail("staging", plan->sources[i].path);
        close(at);
        if (plan->sources[i].is_image && plan->sources[i].is_volume)
            show_volume_in_image(name, &plan->sources[i], idmap_fd);
        if (plan->upper_owner >= 0 && plan->upper_source == (int64_t)i &&
            chown(name, (uid_t)plan->upper_owner, (gid_t)plan->upper_owner) < 0)
            launch_fail("upper-owner", plan->sources[i].path);
        close(trees[i]);
    }
    free(trees);
    if (mkdir(GUEST_DIR, 0755) < 0 || mkdir(UPPER_DIR, 0755) < 0) launch_fail("staging", "names");
}

/* ---- second half --------------------------------------------------------------------------- */

struct root {
    const struct plan *plan;
    int staging; /* the staging directory */
    int fd;      /* where the new root is (to be) mounted; re-opened after its first mount */
    unsigned data_count;
};

static int open_beneath(int dir, const char *name, int flags) {
    struct open_how_args how = {
        .flags = (uint64_t)(flags | O_CLOEXEC),
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    return (int)syscall(SYS_openat2, dir, name, &how, sizeof how);
}

/* Opens `target` inside the new root, making directories that are missing; with `create` false a
 * missing target gives -1. */
static int open_target(const struct root *root, const char *target, bool create) {
    const char *rest = target;
    while (*rest == '/') rest++;
    if (!*rest) return fcntl(root->fd, F_DUPFD_CLOEXEC, 3);
    int fd = open_beneath(root->fd, rest, O_PATH);
    if (fd >= 0) return fd;
    if (!create && errno == ENOENT) return -1;
    if (errno != ENOENT) launch_fail("target", target);

    int at = fcntl(root->fd, F_DUPFD_CLOEXEC, 3);
    char *copy = strdup(rest);
    if (!copy || at < 0) launch_fail("memory", "");
    for (char *name = strtok(copy, "/"), *next; name; name = next) {
        next = strtok(NULL, "/");
        fd = open_beneath(at, name, O_PATH);
        if (fd < 0 && errno == ENOENT) {
            if (mkdirat(at, name, 0755) < 0) launch_fail("target", target);
            fd = open_beneath(at, name, O_PATH);
        }
        if (fd < 0) launch_fail("target", target);
        close(at);
        at = fd;
    }
    free(copy);
    return at;
}

static const char *fd_path(int fd, char *buffer, size_t size) {
    snprintf(buffer, size, "/proc/self/fd/%d", fd);
    return buffer;
}

static void mount_at(const struct root *root, const char *stage, const char *type, const char *target,
                     unsigned long flags, const char *options) {
    char path[40];
    int at = open_target(root, target, true);
    if (mount(type, fd_path(at, path, sizeof path), type, flags, options) < 0)
        launch_fail(stage, target);
    close(at);
}

static void bind_path(const char *stage, int dir, const char *source, int at,
                      bool recursive, uint64_t attributes) {
    int tree = clone_tree(dir, source, recursive);
    if (tree < 0 || set_attributes(tree, attributes, -1, recursive) < 0 || attach_tree(tree, at) < 0)
        launch_fail(stage, source);
    close(tree);
}

/* True if the upper is new. */
static bool make_upper(const char *base, uint64_t index, char *upper, char *work, size_t size) {
    char parent[48];
    snprintf(parent, sizeof parent, "%s/%llu", base, (unsigned long long)index);
    snprintf(upper, size, "%s/u", parent);
    snprintf(work, size, "%s/w", parent);
    const char *names[] = {parent, upper, work};
    bool made[3];
    for (int i = 0; i < 3; i++) {
        made[i] = mkdir(names[i], 0755) == 0;
        if (!made[i] && errno != EEXIST) launch_fail("upper", names[i]);
    }
    return made[1];
}

/* The upper's own directory is the overlay's: it looks as the topmost lower does. */
static void make_alike(const char *upper, const char *lowers) {
    struct stat st;
    char name[24];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(lowers, ":"), lowers);
    if (stat(name, &st) < 0 || chown(upper, st.st_uid, st.st_gid) < 0 ||
        chmod(upper, st.st_mode & 01777) < 0)
        launch_fail("upper", upper);
}

static void op_overlay(struct root *root, const struct plan_op *op) {
    char base[24] = UPPER_DIR, upper[64], work[64], options[4096], path[40];
    if (root->plan->upper_source >= 0)
        snprintf(base, sizeof base, "%lld", (long long)root->plan->upper_source);
    if (make_upper(base, op->index, upper, work, sizeof upper) && op->alike)
        make_alike(upper, op->lowers);
    int n = snprintf(options, sizeof options, "lowerdir=%s,upperdir=%s,workdir=%s,userxattr",
                     op->lowers, upper, work);
    if (n >= (int)sizeof options) {
        errno = E2BIG;
        launch_fail("overlay", op->target);
    }
    bool is_root = strcmp(op->target, "/") == 0;
    int at = open_target(root, op->target, true);
    if (mount("overlay", fd_path(at, path, sizeof path), "overlay", MS_NOSUID | MS_NODEV, options) < 0)
        launch_fail("overlay", op->target);
    close(at);
    if (is_root) {
        close(root->fd);
        root->fd = openat(root->staging, ROOT_DIR, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (root->fd < 0) launch_fail("overlay", "root");
    }
}

static void op_tmpfs(const struct root *root, const struct plan_op *op) {
    char options[96];
    snprintf(options, sizeof options, "size=%llu,nr_inodes=%llu,mode=%llo",
             (unsigned long long)op->size, (unsigned long long)op->inodes,
             (unsigned long long)op->mode);
    unsigned long flags = MS_NOSUID | MS_NODEV | (op->noexec ? MS_NOEXEC : 0);
    mount_at(root, "tmpfs", "tmpfs", op->target, flags, options);
}

/* A host directory, read-only. An overlay and not a bind: through a bind, even a
 * read-only one, a guest can connect to unix sockets that lie in it. An overlay without an upper
 * wants a second lower; an empty one changes nothing. */
static void op_tree(const struct root *root, const struct plan_op *op) {
    char options[256];
    if (op->lowers)
        snprintf(options, sizeof options, "lowerdir=%s,userxattr", op->lowers);
    else
        snprintf(options, sizeof options, "lowerdir=%llu:" EMPTY_DIR ",userxattr",
                 (unsigned long long)op->index);
    mount_at(root, "tree", "overlay", op->target, MS_RDONLY | MS_NOSUID | MS_NODEV, options);
}

/* A host directory itself, writable as its source is. Sockets in it can be reached: who asks for this
 * has been told. Mounts below a source are the kernel's to keep together with it. */
static void op_bind(const struct root *root, const struct plan_op *op) {
    char name[24];
    snprintf(name, sizeof name, "%llu", (unsigned long long)op->index);
    int at = open_target(root, op->target, true);
    bind_path("bind", root->staging, name, at, true, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    close(at);
}

/* Takes a node of the host's /dev only if it really is that device. */
static void bind_device(const char *name, unsigned major_no, unsigned minor_no, int at) {
    char path[32];
    struct stat st;
    snprintf(path, sizeof path, "/dev/%s", name);
    if (stat(path, &st) < 0 || !S_ISCHR(st.st_mode) || major(st.st_rdev) != major_no ||
        minor(st.st_rdev) != minor_no)
        launch_fail("device", name);
    bind_path("device", AT_FDCWD, path, at, false, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
}

/* /dev holds what programs cannot do without, and becomes read-only: a guest can't grow it. */
static void op_dev(const struct root *root, const struct plan_op *op) {
    static const struct { const char *name; unsigned major_no, minor_no; } devices[] = {
        {"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0},
    };
    static const char *const links[][2] = {
        {"fd", "/proc/self/fd"}, {"stdin", "/proc/self/fd/0"}, {"stdout", "/proc/self/fd/1"},
        {"stderr", "/proc/self/fd/2"}, {"ptmx", "pts/ptmx"},
    };
    char options[96];
    mount_at(root, "dev", "tmpfs", op->target, MS_NOSUID | MS_NOEXEC, "size=64k,nr_inodes=64,mode=755");
    int dev = open_target(root, op->target, false);
    if (dev < 0) launch_fail("dev", "open");
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        const char *name = devices[i].name;
        if (mknodat(dev, name, S_IFREG | 0666, 0) < 0) launch_fail("device", name);
        int at = open_beneath(dev, name, O_PATH);
        if (at < 0) launch_fail("device", name);
        bind_device(name, devices[i].major_no, devices[i].minor_no, at);
        close(at);
    }
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        if (symlinkat(links[i][1], dev, links[i][0]) < 0) launch_fail("dev", links[i][0]);
    if (mkdirat(dev, "pts", 0755) < 0 || mkdirat(dev, "shm", 0755) < 0) launch_fail("dev", "names");
    int n = snprintf(options, sizeof options, "newinstance,ptmxmode=0666,mode=0620,max=1024");
    if (root->plan->devpts_gid >= 0)
        snprintf(options + n, sizeof options - (size_t)n, ",gid=%lld", (long long)root->plan->devpts_gid);
    char pts[64], shm[80], shm_path[64];
    snprintf(pts, sizeof pts, "%s/pts", op->target);
    mount_at(root, "devpts", "devpts", pts, MS_NOSUID | MS_NOEXEC, options);
    snprintf(shm_path, sizeof shm_path, "%s/shm", op->target);
    snprintf(shm, sizeof shm, "size=%llu,nr_inodes=%llu,mode=1777", (unsigned long long)op->size,
             (unsigned long long)op->inodes);
    mount_at(root, "shm", "tmpfs", shm_path, MS_NOSUID | MS_NODEV | MS_NOEXEC, shm);
    close(dev);
    dev = open_target(root, op->target, false);
    if (dev < 0) launch_fail("dev", "open");
    /* Only the tmpfs itself: the mounts on it keep their own flags. */
    struct mount_attributes attr = {.attr_set = MOUNT_ATTR_RDONLY};
    if (syscall(SYS_mount_setattr, dev, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0)
        launch_fail("dev", "read-only");
    close(dev);
}

#define COVER_ATTRIBUTES                                                                           \
    (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)

/* Something of the staging that is to be put over a path: a read-only mount that is nowhere yet. */
static int make_cover(const struct root *root, const char *name) {
    int tree = clone_tree(root->staging, name, false);
    if (tree < 0 || set_attributes(tree, COVER_ATTRIBUTES, -1, false) < 0) launch_fail("mask", name);
    return tree;
}

/* Hides a path behind an empty read-only directory or file. What does not exist on this kernel needs
 * no hiding. */
static void op_mask(const struct root *root, const struct plan_op *op) {
    struct stat st;
    int at = open_target(root, op->target, false);
    if (at < 0) return;
    if (fstatat(at, "", &st, AT_EMPTY_PATH) < 0) launch_fail("mask", op->target);
    int tree = make_cover(root, S_ISDIR(st.st_mode) ? EMPTY_DIR : EMPTY_FILE);
    if (attach_tree(tree, at) < 0) launch_fail("mask", op->target);
    close(tree);
    close(at);
}

static void op_readonly(const struct root *root, const struct plan_op *op) {
    int at = open_target(root, op->target, false);
    if (at < 0) return;
    int tree = (int)syscall(SYS_open_tree, at, "", OPEN_TREE_CLONE | O_CLOEXEC | AT_EMPTY_PATH | AT_RECURSIVE);
    if (tree < 0 || set_attributes(tree, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, -1, true) < 0 ||
        attach_tree(tree, at) < 0)
        launch_fail("read-only", op->target);
    close(tree);
    close(at);
}

/* For mounts that somebody else has made and whose flags we had no say in. */
static void op_nosuid(const struct root *root, const struct plan_op *op) {
    struct mount_attributes attr = {.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC};
    int at = open_target(root, op->target, false);
    if (at < 0) return;
    if (syscall(SYS_mount_setattr, at, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0)
        launch_fail("nosuid", op->target);
    close(at);
}

static void fill_file(const char *stage, const char *what, int fd, const struct plan_op *op) {
    if (fd < 0 || write(fd, op->content, op->content_size) != (ssize_t)op->content_size)
        launch_fail(stage, what);
    close(fd);
}

static int make_data(struct root *root, const struct plan_op *op) {
    char name[24];
    snprintf(name, sizeof name, GUEST_DIR "/d%u", root->data_count++);
    fill_file("data", op->target,
              openat(root->staging, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444), op);
    return make_cover(root, name);
}

/* A read-only file of ours over a path that exists, such as /proc/meminfo. */
static void op_data(struct root *root, const struct plan_op *op) {
    int at = open_target(root, op->target, false);
    if (at < 0) return;
    int tree = make_data(root, op);
    if (attach_tree(tree, at) < 0) launch_fail("data", op->target);
    close(tree);
    close(at);
}

/* A file of the guest's own, in its upper, in place of whatever the image has there. */
static void op_write(const struct root *root, const struct plan_op *op) {
    char *dir = strdup(op->target);
    if (!dir) launch_fail("memory", "");
    char *name = strrchr(dir, '/');
    if (!name || !name[1]) launch_fail("write", op->target);
    *name++ = 0;
    int at = open_target(root, dir, true);
    if (unlinkat(at, name, 0) < 0 && errno != ENOENT) launch_fail("write", op->target);
    fill_file("write", op->target,
              openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, (mode_t)op->mode), op);
    close(at);
    free(dir);
}

/* A file of the bundle, beside the root. */
static void op_stage(const struct root *root, const struct plan_op *op) {
    char name[64];
    snprintf(name, sizeof name, GUEST_DIR "/%s", op->target);
    fill_file("stage", op->target,
              openat(root->staging, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444), op);
}

/* What the guest's own files stand in the way of is left as it is: they are from an earlier start. */
static void make_if_possible(const struct root *root, const char *target) {
    int at = fcntl(root->fd, F_DUPFD_CLOEXEC, 3);
    char *copy = strdup(target);
    if (!copy || at < 0) launch_fail("memory", "");
    for (char *name = strtok(copy, "/"); name && at >= 0; name = strtok(NULL, "/")) {
        int fd = open_beneath(at, name, O_PATH | O_DIRECTORY);
        if (fd < 0 && errno == ENOENT && mkdirat(at, name, 0755) == 0)
            fd = open_beneath(at, name, O_PATH | O_DIRECTORY);
        close(at);
        at = fd;
    }
    if (at >= 0) close(at);
    free(copy);
}

static void op_dir(const struct root *root, const struct plan_op *op) {
    if (op->optional)
        make_if_possible(root, op->target);
    else
        close(open_target(root, op->target, true));
}

static void run_op(struct root *root, const struct plan_op *op) {
    switch (op->kind) {
    case OP_OVERLAY: op_overlay(root, op); break;
    case OP_TMPFS: op_tmpfs(root, op); break;
    case OP_TREE: op_tree(root, op); break;
    case OP_BIND: op_bind(root, op); break;
    case OP_PROC:
        mount_at(root, "proc", "proc", op->target, MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
        break;
    case OP_DEV: op_dev(root, op); break;
    case OP_MASK: op_mask(root, op); break;
    case OP_READONLY: op_readonly(root, op); break;
    case OP_DATA: op_data(root, op); break;
    case OP_WRITE: op_write(root, op); break;
    case OP_DIR: op_dir(root, op); break;
    case OP_STAGE: op_stage(root, op); break;
    case OP_NOSUID: op_nosuid(root, op); break;
    case OP_CGROUP:
        /* Ours alone: the cgroup namespace begins at the sandbox's own group. */
        mount_at(root, "cgroup", op->type, op->target, MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC,
                 op->options);
        break;
    }
}

static struct root build(const struct plan *plan) {
    char options[96];
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) launch_fail("propagation", "guest");
    if (chdir(plan->staging) < 0) launch_fail("staging", "guest");
    if (mount("tmpfs", GUEST_DIR, "tmpfs", MS_NOSUID | MS_NODEV, "size=256k,mode=755") < 0 ||
        mkdir(ROOT_DIR, 0755) < 0 || mkdir(EMPTY_DIR, 0555) < 0 ||
        mknod(EMPTY_FILE, S_IFREG | 0444, 0) < 0)
        launch_fail("staging", "guest tmpfs");
    if (plan->upper_source < 0) {
        snprintf(options, sizeof options, "size=%llu,nr_inodes=%llu,mode=755",
                 (unsigned long long)plan->upper_size, (unsigned long long)plan->upper_inodes);
        if (mount("tmpfs", UPPER_DIR, "tmpfs", MS_NOSUID | MS_NODEV, options) < 0)
            launch_fail("upper", "tmpfs");
    }
    struct root root = {.plan = plan};
    root.staging = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    root.fd = open(ROOT_DIR, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root.staging < 0 || root.fd < 0) launch_fail("staging", "descriptors");
    for (size_t i = 0; i < plan->op_count; i++) run_op(&root, &plan->ops[i]);
    return root;
}

static int open_agent(const struct root *root, int flags) {
    char name[24];
    snprintf(name, sizeof name, "%llu", (unsigned long long)root->plan->agent_source);
    int agent = openat(root->staging, name, flags | O_CLOEXEC);
    if (agent < 0) launch_fail("staging", "agent");
    return agent;
}

int mounts_build_root(const struct plan *plan) {
    struct root root = build(plan);
    int agent = open_agent(&root, O_PATH);

    /* pivot_root onto itself stacks the old root on the new one, from where it is detached with all
     * that was below it: the host's tree and the staging. */
    if (fchdir(root.fd) < 0 || syscall(SYS_pivot_root, ".", ".") < 0) launch_fail("pivot", "");
    if (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0) launch_fail("pivot", "detach");
    close(root.fd);
    close(root.staging);
    return agent;
}

int mounts_build_bundle(const struct plan *plan) {
    struct root root = build(plan);
    int agent = open_agent(&root, O_RDONLY);
    close(root.fd);
    close(root.staging);
    return agent;
}

/* ---- in somebody else's namespace -------------------------------------------------------------- */

/* What may cover a target: a file, or a directory. */
struct covers {
    int file, directory;
};

/* The kernel copies a mount only for who is in its namespace: so all covers are made before we go. */
static struct covers make_covers(struct root *root, const struct plan_op *op) {
    if (op->kind == OP_DATA) return (struct covers){make_data(root, op), -1};
    if (op->kind == OP_MASK)
        return (struct covers){make_cover(root, EMPTY_FILE), make_cover(root, EMPTY_DIR)};
    return (struct covers){-1, -1};
}

static void cover(const struct root *root, const struct plan_op *op, struct covers covers) {
    struct stat st;
    int at = open_target(root, op->target, false);
    if (at < 0) return;
    if (fstatat(at, "", &st, AT_EMPTY_PATH) < 0) launch_fail("late", op->target);
    if (attach_tree(S_ISDIR(st.st_mode) ? covers.directory : covers.file, at) < 0)
        launch_fail("late", op->target);
    close(at);
}

void mounts_finish(const struct plan *plan, pid_t container) {
    char path[40];
    struct root root = {.plan = plan, .fd = -1};
    struct covers *covers = calloc(plan->late_count + 1, sizeof *covers);
    snprintf(path, sizeof path, "/proc/%d/ns/mnt", (int)container);
    int namespace = open(path, O_RDONLY | O_CLOEXEC);
    root.staging = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (!covers || namespace < 0 || root.staging < 0) launch_fail("late", path);
    for (size_t i = 0; i < plan->late_count; i++) covers[i] = make_covers(&root, &plan->late[i]);
    if (setns(namespace, CLONE_NEWNS) < 0) launch_fail("late", "enter");
    root.fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root.fd < 0) launch_fail("late", "root");
    for (size_t i = 0; i < plan->late_count; i++) {
        const struct plan_op *op = &plan->late[i];
        if (op->kind == OP_DATA || op->kind == OP_MASK)
            cover(&root, op, covers[i]);
        else
            run_op(&root, op);
    }
}
