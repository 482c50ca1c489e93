/* Mounts, /proc, /sys and devices: what is there, what has content, what can be opened for writing. */
#define _GNU_SOURCE
#include "probe.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { NO_NOSUID, NO_NODEV, WRITABLE, HOST_PATHS };

struct mount_line {
    char *root, *point, *options, *type, *source, *super;
};

/* 36 35 98:0 /root /point options [optional…] - type source super */
static bool parse_mount(char *text, struct mount_line *m) {
    char *rest = strstr(text, " - ");

    if (!rest)
        return false;
    *rest = 0;
    rest += 3;
    m->type = strsep(&rest, " ");
    m->source = strsep(&rest, " ");
    m->super = strsep(&rest, "\n");
    for (int i = 0; i < 3 && text; i++)
        strsep(&text, " ");
    m->root = strsep(&text, " ");
    m->point = strsep(&text, " ");
    m->options = strsep(&text, " ");
    return m->options && m->super;
}

static bool has_word(const char *list, const char *word) {
    size_t n = strlen(word);

    for (const char *at = list; (at = strstr(at, word)); at += n)
        if ((at == list || at[-1] == ',') && (at[n] == ',' || at[n] == 0))
            return true;
    return false;
}

static void try_mounts(struct probe_answer *answer, const struct probe_try *self) {
    FILE *file = fopen("/proc/self/mountinfo", "re");
    char *text = NULL;
    size_t size = 0;

    if (!file)
        return answer_result(answer, -1);
    while (getline(&text, &size, file) > 0) {
        struct mount_line m;

        if (!parse_mount(text, &m))
            continue;
        if (self->number == NO_NOSUID && !has_word(m.options, "nosuid"))
            answer_add(answer, "%s", m.point);
        if (self->number == NO_NODEV && !has_word(m.options, "nodev"))
            answer_add(answer, "%s", m.point);
        if (self->number == WRITABLE && has_word(m.options, "rw") && has_word(m.super, "rw"))
            answer_add(answer, "%s %s", m.point, m.type);
        if (self->number == HOST_PATHS &&
            (strchr(m.root + 1, '/') || *m.source == '/' || strstr(m.super, "dir=/")))
            answer_add(answer, "%s %s %s %s %s", m.point, m.type, m.root, m.source, m.super);
    }
    answer_values(answer);
}

/* Every file below a directory that can be opened for writing. */
static void find_writable(struct probe_answer *answer, const char *path, int depth, int *left) {
    DIR *dir = depth ? opendir(path) : NULL;
    struct dirent *entry;

    while (dir && *left > 0 && (entry = readdir(dir))) {
        char below[1024];
        int fd;

        if (entry->d_name[0] == '.' ||
            snprintf(below, sizeof below, "%s/%s", path, entry->d_name) >= (int)sizeof below)
            continue;
        --*left;
        if (entry->d_type == DT_DIR) {
            find_writable(answer, below, depth - 1, left);
            continue;
        }
        if (entry->d_type != DT_REG)
            continue;
        fd = open(below, O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0) {
            answer_add(answer, "%s", below);
            close(fd);
        }
    }
    if (dir)
        closedir(dir);
}

static void try_writable_below(struct probe_answer *answer, const struct probe_try *self) {
    int left = 8192;

    find_writable(answer, self->path, 8, &left);
    answer_values(answer);
}

static void list_nodes(struct probe_answer *answer, const char *path, int depth) {
    DIR *dir = depth ? opendir(path) : NULL;
    struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        char below[512];
        struct stat st;

        if (entry->d_name[0] == '.' ||
            snprintf(below, sizeof below, "%s/%s", path, entry->d_name) >= (int)sizeof below ||
            lstat(below, &st) < 0)
            continue;
        if (S_ISDIR(st.st_mode) && strcmp(below, "/dev/shm") != 0)
            list_nodes(answer, below, depth - 1);
        else if (S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode))
            answer_add(answer, "%s %c %u:%u", below, S_ISCHR(st.st_mode) ? 'c' : 'b',
                       major(st.st_rdev), minor(st.st_rdev));
    }
    if (dir)
        closedir(dir);
}

static void try_nodes(struct probe_answer *answer, const struct probe_try *self) {
    list_nodes(answer, self->path, 3);
    answer_values(answer);
}

/* A second /dev/null, where the sandbox keeps temporary files, and gone at once. */
static void try_mknod(struct probe_answer *answer, const struct probe_try *self) {
    char path[64];
    long result;

    snprintf(path, sizeof path, "%s/.probe-node-%d", self->path, (int)getpid());
    result = mknod(path, S_IFCHR | 0600, makedev(1, 3));
    answer_result(answer, result);
    if (result == 0)
        unlink(path);
}

#define READ(name, path) {name, try_read, path, 0, {0}}
#define OPEN(name, path) {name, try_open, path, 0, {0}}
#define WRITE(name, path) {name, try_open_write, path, 0, {0}}

const struct probe_try probe_files[] = {
    {"mount.suid", try_mounts, NULL, NO_NOSUID, {0}},
    {"mount.device", try_mounts, NULL, NO_NODEV, {0}},
    {"mount.writable", try_mounts, NULL, WRITABLE, {0}},
    {"mount.host_paths", try_mounts, NULL, HOST_PATHS, {0}},
    READ("proc.kcore", "/proc/kcore"),
    READ("proc.kallsyms", "/proc/kallsyms"),
    OPEN("proc.kmsg", "/proc/kmsg"),
    READ("proc.keys", "/proc/keys"),
    READ("proc.key_users", "/proc/key-users"),
    READ("proc.timer_list", "/proc/timer_list"),
    READ("proc.sched_debug", "/proc/sched_debug"),
    READ("proc.config", "/proc/config.gz"),
    READ("proc.modules", "/proc/modules"),
    READ("proc.cmdline", "/proc/cmdline"),
    READ("proc.iomem", "/proc/iomem"),
    READ("proc.interrupts", "/proc/interrupts"),
    READ("proc.slabinfo", "/proc/slabinfo"),
    READ("proc.vmallocinfo", "/proc/vmallocinfo"),
    READ("proc.diskstats", "/proc/diskstats"),
    READ("proc.partitions", "/proc/partitions"),
    READ("proc.swaps", "/proc/swaps"),
    READ("proc.locks", "/proc/locks"),
    READ("proc.kpagecount", "/proc/kpagecount"),
    READ("proc.pressure", "/proc/pressure"),
    READ("proc.acpi", "/proc/acpi"),
    READ("proc.bus", "/proc/bus"),
    READ("proc.fs", "/proc/fs"),
    READ("proc.irq", "/proc/irq"),
    READ("proc.scsi", "/proc/scsi"),
    READ("proc.tty_drivers", "/proc/tty/driver"),
    WRITE("proc.sysrq", "/proc/sysrq-trigger"),
    WRITE("proc.core_pattern", "/proc/sys/kernel/core_pattern"),
    WRITE("proc.modprobe", "/proc/sys/kernel/modprobe"),
    WRITE("proc.binfmt", "/proc/sys/fs/binfmt_misc/register"),
    WRITE("proc.max_user_namespaces", "/proc/sys/user/max_user_namespaces"),
    {"proc.sys_writable", try_writable_below, "/proc/sys", 0, {0}},
    READ("sys.kernel", "/sys/kernel"),
    READ("sys.class", "/sys/class"),
    READ("sys.devices", "/sys/devices"),
    READ("sys.module", "/sys/module"),
    READ("sys.firmware", "/sys/firmware"),
    READ("sys.efivars", "/sys/firmware/efi/efivars"),
    READ("sys.debugfs", "/sys/kernel/debug"),
    READ("sys.tracefs", "/sys/kernel/tracing"),
    READ("sys.bpf", "/sys/fs/bpf"),
    WRITE("sys.power", "/sys/power/state"),
    WRITE("sys.uevent_helper", "/sys/kernel/uevent_helper"),
    {"sys.cgroup_writable", try_writable_below, "/sys/fs/cgroup", 0, {0}},
    {"device.nodes", try_nodes, "/dev", 0, {0}},
    {"device.mknod", try_mknod, "/tmp", 0, {0}},
    OPEN("device.mem", "/dev/mem"),
    OPEN("device.kmem", "/dev/kmem"),
    OPEN("device.port", "/dev/port"),
    OPEN("device.kmsg", "/dev/kmsg"),
    OPEN("device.kvm", "/dev/kvm"),
    OPEN("device.fuse", "/dev/fuse"),
    OPEN("device.tun", "/dev/net/tun"),
    OPEN("device.loop_control", "/dev/loop-control"),
    OPEN("device.loop0", "/dev/loop0"),
    OPEN("device.mapper", "/dev/mapper/control"),
    OPEN("device.vsock", "/dev/vsock"),
    OPEN("device.vhost_vsock", "/dev/vhost-vsock"),
    OPEN("device.vhost_net", "/dev/vhost-net"),
    OPEN("device.uinput", "/dev/uinput"),
    OPEN("device.userfaultfd", "/dev/userfaultfd"),
    OPEN("device.dri", "/dev/dri/card0"),
    OPEN("device.sda", "/dev/sda"),
    OPEN("device.vda", "/dev/vda"),
    OPEN("device.nvme", "/dev/nvme0n1"),
    {0},
};
