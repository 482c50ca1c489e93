/* How much of the disk directories take that guests have shaped.
 *
 *   agentd measure PLAN_FD STATUS_FD RESULT_FD
 *
 * The plan's sources are what is to be measured; its id maps say who owns what is inside, so that
 * everything can be read. One line each goes to RESULT_FD: bytes, entries, 1 if that is all or 0 if there
 * is more. Nothing is followed or opened but directories, and no other file system is entered; what is
 * not there takes nothing. A file with several names counts once over all of them.
 */
#define _GNU_SOURCE
#include "launch.h"
#include "launch_ids.h"
#include "launch_plan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A guest may nest as deep as it likes; each level is a descriptor here. */
#define LEVELS 256

struct total {
    uint64_t bytes, entries;
    bool complete;
};

static void count(struct total *total, const struct stat *st) {
    uint64_t names = S_ISDIR(st->st_mode) || st->st_nlink == 0 ? 1 : (uint64_t)st->st_nlink;
    total->bytes += (uint64_t)st->st_blocks * 512 / names;
    total->entries++;
}

/* NULL: gone meanwhile, another file system, or closed to us, which is not all then. */
static DIR *enter(int at, const char *name, dev_t device, struct total *total) {
    struct stat st;
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP) total->complete = false;
        return NULL;
    }
    DIR *dir = fstat(fd, &st) == 0 && st.st_dev == device ? fdopendir(fd) : NULL;
    if (!dir) close(fd);
    return dir;
}

static void walk(DIR *top, dev_t device, struct total *total) {
    DIR *levels[LEVELS] = {top};
    int depth = 0;
    while (depth >= 0) {
        struct dirent *entry = readdir(levels[depth]);
        struct stat st;
        if (!entry) {
            closedir(levels[depth--]);
            continue;
        }
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        int here = dirfd(levels[depth]);
        if (fstatat(here, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) continue;
        count(total, &st);
        if (!S_ISDIR(st.st_mode)) continue;
        if (depth + 1 == LEVELS) {
            total->complete = false;
            continue;
        }
        DIR *below = enter(here, entry->d_name, device, total);
        if (below) levels[++depth] = below;
    }
}

static void measure(const char *path, struct total *total) {
    struct stat st;
    if (lstat(path, &st) < 0) {
        if (errno != ENOENT) total->complete = false;
        return;
    }
    count(total, &st);
    if (!S_ISDIR(st.st_mode)) return;
    DIR *top = enter(AT_FDCWD, path, st.st_dev, total);
    if (top) walk(top, st.st_dev, total);
}

int measure_main(int argc, char **argv) {
    if (argc != 5) return 2;
    launch_set_status_fd(atoi(argv[3]));
    int results = atoi(argv[4]);
    struct plan plan;
    plan_read(atoi(argv[2]), &plan);
    if (plan.ids != IDS_RANGE) ids_enter_outer(&plan);
    for (size_t i = 0; i < plan.source_count; i++) {
        struct total total = {.complete = true};
        measure(plan.sources[i].path, &total);
        if (dprintf(results, "%llu %llu %d\n", (unsigned long long)total.bytes,
                    (unsigned long long)total.entries, total.complete) < 0)
            launch_fail("measure", "results");
    }
    return 0;
}
