/* Removes a directory that a guest has shaped.
 *
 *   agentd remove PLAN_FD STATUS_FD
 *
 * The plan's only source is the directory; its id maps say who owns what is inside. A guest may have
 * made it as deep as it liked, unreadable, and full of links: so nothing is followed, no recursion
 * depends on its depth (a directory that is not empty is moved up to the top and dealt with there),
 * and outside of host root the work is done in a user namespace whose root owns every id of the guest.
 */
#define _GNU_SOURCE
#include "launch.h"
#include "launch_ids.h"
#include "launch_plan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static DIR *open_directory(int at, const char *name) {
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir && fd >= 0) close(fd);
    return dir;
}

static bool is_dot(const char *name) { return !strcmp(name, ".") || !strcmp(name, ".."); }

/* Removes `name`, or moves it to the top under a fresh name if it is a directory with something in
 * it. The names of a guest's own can't clash for ever: a taken name is just another number away. */
static void remove_or_lift(int at, const char *name, int top, unsigned long *serial) {
    if (unlinkat(at, name, 0) == 0 || errno == ENOENT) return;
    if (unlinkat(at, name, AT_REMOVEDIR) == 0) return;
    if (at == top) {
        if (errno != ENOTEMPTY && errno != EEXIST) launch_fail("remove", name);
        return; /* the caller empties it */
    }
    char fresh[40];
    do {
        snprintf(fresh, sizeof fresh, "agentkernel-%lu", (*serial)++);
        if (renameat(at, name, top, fresh) == 0) return;
    } while (errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR || errno == EISDIR);
    launch_fail("remove", name);
}

static void empty_directory(int at, const char *name, int top, unsigned long *serial) {
    DIR *dir = open_directory(at, name);
    if (!dir) launch_fail("remove", name);
    struct dirent *entry;
    while ((entry = readdir(dir)))
        if (!is_dot(entry->d_name)) remove_or_lift(dirfd(dir), entry->d_name, top, serial);
    closedir(dir);
}

int remove_main(int argc, char **argv) {
    if (argc != 4) return 2;
    launch_set_status_fd(atoi(argv[3]));
    struct plan plan;
    plan_read(atoi(argv[2]), &plan);
    if (plan.source_count != 1) return 2;
    const char *path = plan.sources[0].path;
    if (plan.ids != IDS_RANGE) ids_enter_outer(&plan);

    unsigned long serial = 0;
    for (;;) {
        DIR *top = open_directory(AT_FDCWD, path);
        if (!top) {
            if (errno == ENOENT) return 0;
            launch_fail("remove", path);
        }
        struct dirent *entry;
        bool found = false;
        while ((entry = readdir(top))) {
            if (is_dot(entry->d_name)) continue;
            found = true;
            struct stat st;
            if (fstatat(dirfd(top), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
                empty_directory(dirfd(top), entry->d_name, dirfd(top), &serial);
            remove_or_lift(dirfd(top), entry->d_name, dirfd(top), &serial);
        }
        closedir(top);
        if (!found) break;
    }
    if (rmdir(path) < 0 && errno != ENOENT) launch_fail("remove", path);
    return 0;
}
