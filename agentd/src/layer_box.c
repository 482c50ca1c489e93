/* See layer_box.h. */
#define _GNU_SOURCE
#include "layer_box.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "caps.h"
#include "launch.h"
#include "launch_ids.h"
#include "launch_sys.h"
#include "layer_filter.h"
#include "layer_names.h"
#include "msgpack.h"
#include "sys.h"
#include "util.h"

/* What remembers names and times of a layer grows with it, up to here. */
#define MOST_MEMORY (UINT64_C(1) << 30)
/* Ten million files take a few minutes; names that lead through forty links each, for ever. */
#define MOST_SECONDS 1800

enum { TAR_FD = 0, STATUS_FD = 1, ERROR_FD = 2 };

/* CHOWN, DAC_OVERRIDE, FOWNER, FSETID */
#define CAPS_TO_WRITE (SYS_CAP_BIT(0) | SYS_CAP_BIT(1) | SYS_CAP_BIT(3) | SYS_CAP_BIT(4))
/* DAC_OVERRIDE, of a root that is read-only. Not DAC_READ_SEARCH, which opens files by their handles,
 * wherever they are. */
#define CAPS_TO_READ SYS_CAP_BIT(1)

void box_refuse(const char *why, const char *name) {
    char clean[360], detail[440];

    layer_clean(name, clean, sizeof clean);
    snprintf(detail, sizeof detail, "%s %s", why, clean);
    errno = 0;
    launch_fail("archive", detail);
}

void box_fail(const char *name) {
    int saved = errno;
    char clean[360];

    layer_clean(name, clean, sizeof clean);
    errno = saved;
    launch_fail("files", clean);
}

void box_report(const char *line) {
    if (write_all(STATUS_FD, line, strlen(line)) < 0) _exit(1);
}

static void __attribute__((noreturn)) bad_plan(const char *key) {
    errno = EINVAL;
    launch_fail("plan", key);
}

static void read_plan(int fd, struct box *box, struct plan *ids, char **path) {
    struct buf bytes = {0};
    struct mp_tree tree;
    ssize_t n;
    while ((n = read(fd, buf_room(&bytes, 4096), 4096)) > 0) bytes.len += (size_t)n;
    if (n < 0) launch_fail("plan", "read");
    const char *why = mp_parse(&tree, bytes.data, bytes.len);
    if (why) bad_plan(why);
    const struct mp_value *map = tree.root, *mode = mp_get(map, "ids");

    if (mode && mp_equals(mode, "range")) ids->ids = IDS_RANGE;
    else if (mode && mp_equals(mode, "subuid")) ids->ids = IDS_SUBUID;
    else if (mode && mp_equals(mode, "single")) ids->ids = IDS_SINGLE;
    else bad_plan("ids");
    if (mp_get_text(map, "path", path) != MP_OK) bad_plan("path");
    if (mp_get_text(map, "outer_uids", &ids->outer_uids.text) != MP_OK) bad_plan("outer_uids");
    if (mp_get_text(map, "outer_gids", &ids->outer_gids.text) != MP_OK) bad_plan("outer_gids");
    if (mp_get_text(map, "newuidmap", &ids->newuidmap) != MP_OK) bad_plan("newuidmap");
    if (mp_get_text(map, "newgidmap", &ids->newgidmap) != MP_OK) bad_plan("newgidmap");
    if (mp_get_uint(map, "max_bytes", INT64_MAX, &box->max_bytes) != MP_OK) bad_plan("max_bytes");
    if (mp_get_uint(map, "max_entries", UINT32_MAX, &box->max_entries) != MP_OK)
        bad_plan("max_entries");
    if (mp_get_texts(map, "exclude", &box->exclude, &box->exclude_count) != MP_OK)
        bad_plan("exclude");
    if (mp_get_bool(map, "sync", &box->sync) != MP_OK) bad_plan("sync");
    box->ids = ids->ids;
}

/* The directory becomes the root, and nothing else is mounted. It is bound alone: what may be mounted
 * below it stays out. */
static void make_root(const char *path, bool writable) {
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) launch_fail("propagation", "");
    int tree = (int)syscall(SYS_open_tree, AT_FDCWD, path,
                            OPEN_TREE_CLONE | O_CLOEXEC | AT_SYMLINK_NOFOLLOW);
    if (tree < 0) launch_fail("layer", path);
    struct mount_attributes attributes = {
        .attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC |
                    (writable ? 0 : MOUNT_ATTR_RDONLY),
    };
    if (syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attributes, sizeof attributes) < 0 ||
        syscall(SYS_move_mount, tree, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        launch_fail("layer-mount", path);
    if (fchdir(tree) < 0 || syscall(SYS_pivot_root, ".", ".") < 0) launch_fail("pivot", "");
    if (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0) launch_fail("pivot", "detach");
    close(tree);
}

static void close_others(int tar, int status) {
    tar = launch_move_high(tar);
    status = launch_move_high(status);
    if (dup2(tar, TAR_FD) < 0 || dup2(status, STATUS_FD) < 0 || dup2(status, ERROR_FD) < 0)
        launch_fail("descriptors", "");
    launch_set_status_fd(STATUS_FD);
    close_from(ERROR_FD + 1);
}

/* Without CAP_SETUID or anything to execute, what is given up here does not come back. */
static void give_up_rights(const struct box *box, uint64_t caps) {
    struct rlimit memory = {.rlim_cur = MOST_MEMORY, .rlim_max = MOST_MEMORY};
    struct rlimit time = {.rlim_cur = MOST_SECONDS, .rlim_max = MOST_SECONDS + 5};
    if (box->ids != IDS_SINGLE && setgroups(0, NULL) < 0) launch_fail("capabilities", "groups");
    if (!caps_limit_bounding(0) || !caps_set(caps)) launch_fail("capabilities", "");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) launch_fail("no-new-privs", "");
    if (setrlimit(RLIMIT_AS, &memory) < 0 || setrlimit(RLIMIT_CPU, &time) < 0)
        launch_fail("capabilities", "limits");
}

void box_enter(char **argv, bool writable, struct box *box) {
    int plan_fd = atoi(argv[2]), status = atoi(argv[3]), tar = atoi(argv[4]);
    struct plan ids = {0};
    char *path;

    launch_set_status_fd(status);
    if (fcntl(status, F_SETFD, FD_CLOEXEC) < 0 || fcntl(tar, F_SETFD, FD_CLOEXEC) < 0)
        launch_fail("descriptors", "not open");
    *box = (struct box){.tar = TAR_FD};
    read_plan(plan_fd, box, &ids, &path);
    if (box->ids != IDS_RANGE)
        ids_enter_outer(&ids);
    else if (unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC) < 0)
        launch_fail("unshare-mount", "");
    make_root(path, writable);
    close_others(tar, status);
    give_up_rights(box, writable ? CAPS_TO_WRITE : CAPS_TO_READ);
    umask(0);
    box->root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (box->root < 0) launch_fail("layer", "open");
    if (!layer_filter_install()) launch_fail("filter", "");
}
