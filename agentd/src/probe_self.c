/* Who we are: ids, groups, capabilities, the filter, namespaces, inherited descriptors, and what of
 * the machine's names we see. */
#define _GNU_SOURCE
#include "probe.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "sys.h"
#include "util.h"

#ifndef PR_GET_NO_NEW_PRIVS
#define PR_GET_NO_NEW_PRIVS 39
#endif
#ifndef PR_CAP_AMBIENT_IS_SET
#define PR_CAP_AMBIENT_IS_SET 1
#endif
#define NS_GET_USERNS _IO(0xb7, 0x1)
#define NS_GET_PARENT _IO(0xb7, 0x2)

/* The content of a small file, line by line. */
static void try_content(struct probe_answer *answer, const struct probe_try *self) {
    char text[4096], *rest = text, *line;

    if (probe_read(self->path, text, sizeof text) < 0)
        return answer_result(answer, -1);
    while ((line = strsep(&rest, "\n")))
        if (*line)
            answer_add(answer, "%s", line);
    answer_values(answer);
}

static void try_groups(struct probe_answer *answer, const struct probe_try *self) {
    gid_t groups[256];
    int count = getgroups((int)COUNT_OF(groups), groups);

    (void)self;
    if (count < 0)
        return answer_result(answer, count);
    for (int i = 0; i < count; i++)
        answer_add(answer, "%u", groups[i]);
    answer_values(answer);
}

enum { EFFECTIVE, PERMITTED, INHERITABLE, BOUNDING, AMBIENT };

static void try_capabilities(struct probe_answer *answer, const struct probe_try *self) {
    struct sys_cap_header header = {.version = SYS_CAPABILITY_VERSION_3};
    struct sys_cap_data data[2] = {{0}, {0}};
    uint64_t mask = 0;

    if (syscall(SYS_capget, &header, data) < 0)
        return answer_result(answer, -1);
    for (int cap = 0; cap < 64; cap++) {
        const struct sys_cap_data *half = &data[cap / 32];
        int held;

        switch (self->number) {
        case EFFECTIVE: held = half->effective >> cap % 32 & 1; break;
        case PERMITTED: held = half->permitted >> cap % 32 & 1; break;
        case INHERITABLE: held = half->inheritable >> cap % 32 & 1; break;
        case BOUNDING: held = prctl(PR_CAPBSET_READ, cap, 0, 0, 0); break;
        default: held = prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, cap, 0, 0);
        }
        if (held == 1)
            mask |= SYS_CAP_BIT(cap);
    }
    if (mask)
        answer_add(answer, "%llx", (unsigned long long)mask);
    answer_values(answer);
}

/* A capability nobody here has: raising it in this process must fail. */
static void try_raise(struct probe_answer *answer, const struct probe_try *self) {
    struct sys_cap_header header = {.version = SYS_CAPABILITY_VERSION_3};
    struct sys_cap_data data[2] = {{.effective = 1u << 21, .permitted = 1u << 21}, {0}};

    (void)self;
    answer_result(answer, syscall(SYS_capset, &header, data));
}

static void try_prctl(struct probe_answer *answer, const struct probe_try *self) {
    int value = prctl((int)self->number, 0, 0, 0, 0);

    if (value >= 0)
        answer_add(answer, "%d", value);
    answer_result(answer, value);
}

static void try_become_root(struct probe_answer *answer, const struct probe_try *self) {
    (void)self;
    if (getuid() == 0)
        return answer_word(answer, "none");
    answer_result(answer, syscall(SYS_setresuid, 0, 0, 0));
}

/* Root's run of this file made it set-user-id: does that count for the next user? */
static void try_setuid_file(struct probe_answer *answer, const struct probe_try *self) {
    struct stat st;

    (void)self;
    if (stat("/proc/self/exe", &st) < 0)
        return answer_result(answer, -1);
    if ((st.st_mode & S_ISUID) && st.st_uid != getuid() && geteuid() == st.st_uid)
        answer_add(answer, "%u became %u", getuid(), geteuid());
    answer_values(answer);
}

static void try_namespace(struct probe_answer *answer, const struct probe_try *self) {
    char path[64], link[128];
    ssize_t n;

    snprintf(path, sizeof path, "/proc/self/ns/%s", self->path);
    n = readlink(path, link, sizeof link - 1);
    if (n < 0)
        return answer_result(answer, n);
    link[n] = 0;
    answer_add(answer, "%s", link);
    answer_values(answer);
}

/* A descriptor of the namespace above, or of the one that owns a namespace of ours. */
static void try_namespace_above(struct probe_answer *answer, const struct probe_try *self) {
    int fd = open(self->path, O_RDONLY | O_CLOEXEC);

    answer_result(answer, fd < 0 ? fd : ioctl(fd, (unsigned long)self->number));
}

static void try_descriptors(struct probe_answer *answer, const struct probe_try *self) {
    (void)self;
    for (size_t i = 0; i < probe_fd_count; i++) {
        char path[64], link[512];
        ssize_t n;

        if (probe_fds[i] <= 2)
            continue;
        snprintf(path, sizeof path, "/proc/self/fd/%d", probe_fds[i]);
        n = readlink(path, link, sizeof link - 1);
        link[n < 0 ? 0 : n] = 0;
        answer_add(answer, "%d %s", probe_fds[i], link);
    }
    answer_values(answer);
}

/* Processes whose parent is none we can see: the kernel's own, or of a namespace above. */
static void try_processes(struct probe_answer *answer, const struct probe_try *self) {
    DIR *dir = opendir("/proc");
    struct dirent *entry;

    (void)self;
    if (!dir)
        return answer_result(answer, -1);
    while ((entry = readdir(dir))) {
        char path[300], text[512], *behind;
        long pid = strtol(entry->d_name, NULL, 10);

        snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
        if (pid <= 1 || probe_read(path, text, sizeof text) < 0 || !(behind = strrchr(text, ')')))
            continue;
        if (strncmp(behind, ") ", 2) == 0 && strncmp(behind + 3, " 0 ", 3) == 0)
            answer_add(answer, "%.*s)", (int)(behind - text), text);
    }
    answer_values(answer);
}

static void try_hostname(struct probe_answer *answer, const struct probe_try *self) {
    struct utsname names;

    (void)self;
    if (uname(&names) < 0)
        return answer_result(answer, -1);
    answer_add(answer, "%s", names.nodename);
    answer_values(answer);
}

const struct probe_try probe_self[] = {
    {"identity.uid_map", try_content, "/proc/self/uid_map", 0, {0}},
    {"identity.gid_map", try_content, "/proc/self/gid_map", 0, {0}},
    {"identity.groups", try_groups, NULL, 0, {0}},
    {"identity.effective", try_capabilities, NULL, EFFECTIVE, {0}},
    {"identity.permitted", try_capabilities, NULL, PERMITTED, {0}},
    {"identity.inheritable", try_capabilities, NULL, INHERITABLE, {0}},
    {"identity.bounding", try_capabilities, NULL, BOUNDING, {0}},
    {"identity.ambient", try_capabilities, NULL, AMBIENT, {0}},
    {"identity.raise_capability", try_raise, NULL, 0, {0}},
    {"identity.no_new_privs", try_prctl, NULL, PR_GET_NO_NEW_PRIVS, {0}},
    {"identity.seccomp", try_prctl, NULL, PR_GET_SECCOMP, {0}},
    {"identity.become_root", try_become_root, NULL, 0, {0}},
    {"identity.setuid_file", try_setuid_file, NULL, 0, {0}},
    {"namespace.user", try_namespace, "user", 0, {0}},
    {"namespace.mnt", try_namespace, "mnt", 0, {0}},
    {"namespace.pid", try_namespace, "pid", 0, {0}},
    {"namespace.net", try_namespace, "net", 0, {0}},
    {"namespace.ipc", try_namespace, "ipc", 0, {0}},
    {"namespace.uts", try_namespace, "uts", 0, {0}},
    {"namespace.cgroup", try_namespace, "cgroup", 0, {0}},
    {"namespace.time", try_namespace, "time", 0, {0}},
    {"namespace.parent", try_namespace_above, "/proc/self/ns/user", (long)NS_GET_PARENT, {0}},
    {"namespace.net_owner", try_namespace_above, "/proc/self/ns/net", (long)NS_GET_USERNS, {0}},
    {"namespace.processes", try_processes, NULL, 0, {0}},
    {"descriptor.inherited", try_descriptors, NULL, 0, {0}},
    {"machine.hostname", try_hostname, NULL, 0, {0}},
    {"machine.boot_id", try_content, "/proc/sys/kernel/random/boot_id", 0, {0}},
    {"machine.machine_id", try_content, "/etc/machine-id", 0, {0}},
    {"machine.version", try_content, "/proc/version", 0, {0}},
    {0},
};
