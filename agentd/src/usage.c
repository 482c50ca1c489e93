#define _GNU_SOURCE
#include "usage.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "tree.h"
#include "util.h"

/* Less than so is no room: what a write could not have, it did not get. */
#define FULL_BYTES 65536

static const char *const places[] = {"/", "/tmp", "/dev/shm", "/run"};

/* The number in field FIELD of a stat line, counted as proc(5) does; 0 if there is none. P is
 * behind field 2, which may hold anything. */
static uint64_t stat_field(const char *p, const char *end, int field) {
    uint64_t value = 0;
    const char *from;

    for (int at = 2; at < field; at++) {
        p = memchr(p, ' ', (size_t)(end - p));
        if (!p)
            return 0;
        p++;
    }
    from = p;
    while (p < end && *p >= '0' && *p <= '9')
        p++;
    return parse_decimal(from, (size_t)(p - from), UINT64_MAX / 2, &value) ? value : 0;
}

static void add_process(const char *name, uint64_t *ticks, uint64_t *pages) {
    char path[32], text[1024];
    const char *p;
    ssize_t n;

    snprintf(path, sizeof(path), "%.10s/stat", name);
    CLEANUP_CLOSE int fd = openat(tree_proc(), path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    n = fd < 0 ? -1 : read(fd, text, sizeof(text));
    p = n <= 0 ? NULL : memrchr(text, ')', (size_t)n);
    if (!p)
        return;
    /* Its own time, and that of children it has waited for: so nothing counts twice. */
    for (int field = 14; field <= 17; field++)
        *ticks += stat_field(p, text + n, field);
    *pages += stat_field(p, text + n, 24);
}

static void add_processes(struct mp_map *map) {
    uint64_t ticks = 0, pages = 0;
    int fd = openat(tree_proc(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    if (!dir) {
        if (fd >= 0)
            close(fd);
        return;
    }
    while ((entry = readdir(dir))) {
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
            add_process(entry->d_name, &ticks, &pages);
    }
    closedir(dir);
    mp_add_uint(map, "cpu_us", ticks * (1000000 / (uint64_t)sysconf(_SC_CLK_TCK)));
    mp_add_uint(map, "memory_kb", pages * (uint64_t)sysconf(_SC_PAGESIZE) / 1024);
}

void usage_describe(struct mp_map *map) {
    struct statvfs room;

    add_processes(map);
    if (statvfs("/", &room) == 0) {
        mp_add_uint(map, "disk_kb", room.f_blocks * (room.f_frsize / 512) / 2);
        mp_add_uint(map, "disk_used_kb", (room.f_blocks - room.f_bfree) * (room.f_frsize / 512) / 2);
    }
}

unsigned usage_full(void) {
    unsigned full = 0;

    for (size_t i = 0; i < COUNT_OF(places); i++) {
        struct statvfs room;

        if (statvfs(places[i], &room) < 0 || !room.f_blocks)
            continue;
        if (room.f_bavail * room.f_frsize < FULL_BYTES || (room.f_files && !room.f_favail))
            full |= 1U << i;
    }
    return full;
}

void usage_describe_full(unsigned full, struct mp_map *map) {
    char text[64] = "";

    for (size_t i = 0; i < COUNT_OF(places); i++) {
        if (!(full >> i & 1))
            continue;
        if (*text)
            strcat(text, " ");
        strcat(text, places[i]);
    }
    if (*text)
        mp_add_str(map, "full", text);
}
