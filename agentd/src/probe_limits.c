/* What bounds us: as control groups, resource limits and file systems say it. */
#define _GNU_SOURCE
#include "probe.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <unistd.h>

/* The first of the files that are there: PATH holds them with a space between. */
static void try_group_file(struct probe_answer *answer, const struct probe_try *self) {
    char paths[512], *rest = paths, *path, text[256];

    snprintf(paths, sizeof paths, "%s", self->path);
    while ((path = strsep(&rest, " "))) {
        if (probe_read(path, text, sizeof text) < 0)
            continue;
        answer_add(answer, "%s", text);
        if (!self->number)
            break;
    }
    answer_values(answer);
}

static void try_resource(struct probe_answer *answer, const struct probe_try *self) {
    struct rlimit limit;
    int result = getrlimit((int)self->number, &limit);

    if (result == 0) {
        if (limit.rlim_max == RLIM_INFINITY)
            answer_add(answer, "unlimited");
        else
            answer_add(answer, "%llu", (unsigned long long)limit.rlim_max);
    }
    answer_result(answer, result);
}

/* Of this process: one more than it may. */
static void try_raise(struct probe_answer *answer, const struct probe_try *self) {
    struct rlimit limit;

    if (getrlimit((int)self->number, &limit) < 0 || limit.rlim_max == RLIM_INFINITY)
        return answer_word(answer, "none");
    limit.rlim_max++;
    answer_result(answer, setrlimit((int)self->number, &limit));
}

/* Of this process, which ends at once: out of the OOM killer's sight. */
static void try_hide_from_oom(struct probe_answer *answer, const struct probe_try *self) {
    int fd = open(self->path, O_WRONLY | O_CLOEXEC);

    answer_result(answer, fd < 0 ? fd : write(fd, "-1000", 5));
}

/* Whom the OOM killer would take first: our score, then PID 1's. */
static void try_oom_order(struct probe_answer *answer, const struct probe_try *self) {
    char ours[32], agents[32];

    (void)self;
    if (probe_read("/proc/self/oom_score_adj", ours, sizeof ours) < 0 ||
        probe_read("/proc/1/oom_score_adj", agents, sizeof agents) < 0)
        return answer_result(answer, -1);
    answer_add(answer, "%s", ours);
    answer_add(answer, "%s", agents);
    answer_values(answer);
}

static void try_size(struct probe_answer *answer, const struct probe_try *self) {
    struct statfs fs, root;

    if (statfs(self->path, &fs) < 0 || statfs("/", &root) < 0)
        return answer_result(answer, -1);
    if (memcmp(&fs.f_fsid, &root.f_fsid, sizeof fs.f_fsid) == 0 && fs.f_type == root.f_type)
        return answer_word(answer, "none"); /* no file system of its own */
    answer_add(answer, "%llu", (unsigned long long)fs.f_blocks * (unsigned long long)fs.f_frsize);
    answer_add(answer, "%llu", (unsigned long long)fs.f_files);
    answer_values(answer);
}

#define GROUPS "/sys/fs/cgroup"

const struct probe_try probe_limits[] = {
    {"limit.memory", try_group_file,
     GROUPS "/memory/memory.limit_in_bytes " GROUPS "/memory.max", 0, {0}},
    {"limit.pids", try_group_file, GROUPS "/pids/pids.max " GROUPS "/pids.max", 0, {0}},
    {"limit.cpus", try_group_file,
     GROUPS "/cpu/cpu.cfs_quota_us " GROUPS "/cpu/cpu.cfs_period_us " GROUPS "/cpu.max", 1, {0}},
    {"limit.processes_of_user", try_resource, NULL, RLIMIT_NPROC, {0}},
    {"limit.open_files", try_resource, NULL, RLIMIT_NOFILE, {0}},
    {"limit.core", try_resource, NULL, RLIMIT_CORE, {0}},
    {"limit.raise_open_files", try_raise, NULL, RLIMIT_NOFILE, {0}},
    {"limit.raise_locked_memory", try_raise, NULL, RLIMIT_MEMLOCK, {0}},
    {"limit.oom_hide", try_hide_from_oom, "/proc/self/oom_score_adj", 0, {0}},
    {"limit.oom_order", try_oom_order, NULL, 0, {0}},
    {"limit.tmp", try_size, "/tmp", 0, {0}},
    {"limit.shm", try_size, "/dev/shm", 0, {0}},
    {"limit.run", try_size, "/run", 0, {0}},
    {0},
};
