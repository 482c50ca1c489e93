/* The launcher's processes, in the order in which they live.
 *
 * L, the launcher, is a child of the host side. It enters the *outer* namespaces: a user namespace
 * and a network namespace that belongs to it. Whoever is in the guest's own user namespace below
 * has no capability over that network namespace, so a guest can never change its rules.
 *
 * B, the guest's first process, is cloned by L with CLONE_PARENT, so that it is the host side's
 * child too and the host side can wait for it, and with the guest's user, mount, pid, ipc, uts and
 * cgroup namespaces. It builds the root, gives up what agentd does not need, and executes agentd.
 * L ends as soon as B is mapped: no process is paid per sandbox but PID 1.
 *
 * Where the plan names an OCI runtime, B is the keeper instead (launch_engine.c).
 *
 * If L dies before it let B go on, B reads end of file and ends: nothing is left behind.
 */
#define _GNU_SOURCE
#include "launch.h"

#include "launch_engine.h"
#include "launch_ids.h"
#include "launch_mounts.h"
#include "launch_plan.h"
#include "launch_sys.h"
#include "network.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define GUEST_NAMESPACES                                                                          \
    (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP)

/* Around an OCI runtime, which makes the guest's own inside them. */
#define KEEPER_NAMESPACES (CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP)

static int status_fd = -1;

void launch_set_status_fd(int fd) { status_fd = fd; }

void launch_fail(const char *stage, const char *detail) {
    int saved = errno;
    char line[512];
    int n = snprintf(line, sizeof line, "E %d %s %s\n", saved, stage, detail ? detail : "");
    if (n > (int)sizeof line - 1) n = (int)sizeof line - 1;
    if (status_fd < 0 || write(status_fd, line, (size_t)n) < 0) dprintf(2, "agentd: %s", line);
    _exit(1);
}

static void write_file(const char *stage, const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0) launch_fail(stage, path);
    close(fd);
}

/* System V objects outlive their makers, and memory that no process owns can't be freed by the OOM
 * killer, which would come to agentd: few of them, and no segment without a process. Only root of
 * the namespace may; a sandbox of one id that is not root has no memory limit to defend. */
static void bound_ipc(void) {
    static const char *const settings[][2] = {
        {"/proc/sys/kernel/shm_rmid_forced", "1"},
        {"/proc/sys/kernel/msgmni", "128"},
        {"/proc/sys/kernel/sem", "250 8192 32 128"},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        int fd = open(settings[i][0], O_WRONLY | O_CLOEXEC);
        if (fd < 0 && (errno == EACCES || errno == ENOENT)) continue;
        if (fd < 0 || write(fd, settings[i][1], strlen(settings[i][1])) < 0)
            launch_fail("ipc", settings[i][0]);
        close(fd);
    }
}

static void join_cgroups(const struct plan *plan) {
    for (size_t i = 0; i < plan->cgroup_count; i++) write_file("cgroup", plan->cgroups[i], "0");
}

/* After this L is root of the outer user namespace and alone in its network namespace; the staged
 * mounts are made on the way, by whoever may make them: idmapped ones by host root before it enters
 * the user namespace, all others inside it. */
static void enter_outer_and_stage(const struct plan *plan) {
    if (plan->ids != IDS_RANGE) {
        ids_enter_outer(plan);
        mounts_stage(plan, -1, -1);
        return;
    }
    int user_ns = ids_make_namespace(&plan->outer_uids, &plan->outer_gids);
    int project_ns = plan->project_uids.text && plan->project_gids.text
                         ? ids_make_namespace(&plan->project_uids, &plan->project_gids)
                         : -1;
    if (unshare(CLONE_NEWNS) < 0) launch_fail("unshare-mount", "");
    mounts_stage(plan, user_ns, project_ns);
    if (project_ns >= 0) close(project_ns);
    if (setns(user_ns, CLONE_NEWUSER) < 0) launch_fail("enter-user", "");
    if (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
        launch_fail("enter-user", "ids");
    /* Changing ids made us undumpable, so that /proc of us and of B would belong to host root and
     * we could not write B's maps. Nobody but the host sees us or B yet. */
    if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0) launch_fail("enter-user", "dumpable");
    close(user_ns);
    if (unshare(CLONE_NEWNET) < 0) launch_fail("unshare-net", "");
}

/* Writes "pid start\n", as /proc/PID/stat has them, to a file of the sandbox's directory. Only then may
 * B go on: whoever comes after a host side that was killed this moment can find it and end it. */
static void record_guest(int record_fd, pid_t guest) {
    char path[40], stat[1024], line[64];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)guest);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, stat, sizeof stat - 1);
    if (size <= 0) launch_fail("record", path);
    close(fd);
    stat[size] = 0;
    /* The name, field 2, may hold anything; the start time is field 22. */
    char *field = strrchr(stat, ')');
    for (int i = 2; field && i < 22; i++) field = strchr(field + 1, ' ');
    if (!field) launch_fail("record", "stat");
    int n = snprintf(line, sizeof line, "%d %llu\n", (int)guest, strtoull(field + 1, NULL, 10));
    if (write(record_fd, line, (size_t)n) != n) launch_fail("record", "write");
}

/* The host side is our parent: without it nobody would ever know of what we make. It may have died
 * before the kernel took note of our wish, hence the second look. */
static void die_with_parent(pid_t parent) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0) launch_fail("parent", "");
    if (getppid() != parent) _exit(1);
}

static void drop_bounding_set(uint64_t keep) {
    for (int cap = 0; cap < 64; cap++)
        if (!(keep >> cap & 1) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0 && errno != EINVAL)
            launch_fail("capabilities", "bounding set");
}

static void set_capabilities(uint64_t caps) {
    struct cap_header header = {.version = CAPABILITY_VERSION_3, .pid = 0};
    struct cap_data data[2];
    for (int half = 0; half < 2; half++) {
        uint32_t bits = (uint32_t)(caps >> (32 * half));
        data[half] = (struct cap_data){.effective = bits, .permitted = bits, .inheritable = bits};
    }
    if (syscall(SYS_capset, &header, data) < 0) launch_fail("capabilities", "set");
    for (int cap = 0; cap < 64; cap++)
        if ((caps >> cap & 1) && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0) < 0)
            launch_fail("capabilities", "ambient");
}

/* From namespace root to agentd's own id. Ambient capabilities carry the few it keeps over the
 * exec whatever that id is; agentd clears them as one of its first acts. */
static void become_agent(const struct plan *plan) {
    drop_bounding_set(plan->agent_caps);
    if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0) launch_fail("capabilities", "keep");
    uid_t id = (uid_t)plan->agent_uid;
    if (setresgid(id, id, id) < 0 || setresuid(id, id, id) < 0) launch_fail("agent-id", "");
    set_capabilities(plan->agent_caps);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) launch_fail("no-new-privs", "");
}

int launch_boot_descriptor(const struct plan *plan) {
    int fd = (int)syscall(SYS_memfd_create, "boot", 1U /* MFD_CLOEXEC */);
    if (fd < 0 || write(fd, plan->boot, plan->boot_size) != (ssize_t)plan->boot_size ||
        lseek(fd, 0, SEEK_SET) < 0)
        launch_fail("boot", "memfd");
    return fd;
}

int launch_move_high(int fd) {
    int high = fcntl(fd, F_DUPFD_CLOEXEC, 16);
    if (high < 0) launch_fail("descriptors", "");
    close(fd);
    return high;
}

/* B. Nothing of the host is named after the root is built; what the launcher knew dies in the exec. */
static void __attribute__((noreturn)) guest_main(const struct plan *plan, int go, int listen_fd) {
    char byte;
    if (read(go, &byte, 1) != 1) _exit(1); /* L is gone: so are we */
    setsid();
    umask(022);
    if (sethostname(plan->hostname, strlen(plan->hostname)) < 0 || setdomainname("(none)", 6) < 0)
        launch_fail("hostname", plan->hostname);
    if (plan->engine_count) keeper_main(plan, listen_fd);
    /* In a single-id namespace this is a no-op; with subuids it leaves the user's own id. */
    if (plan->ids != IDS_SINGLE &&
        (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0))
        launch_fail("guest-ids", "");
    if (!plan->nested_userns)
        write_file("nested-user", "/proc/sys/user/max_user_namespaces", "0");
    bound_ipc();
    int boot = launch_move_high(launch_boot_descriptor(plan));
    int agent = launch_move_high(mounts_build_root(plan));
    listen_fd = launch_move_high(listen_fd);
    status_fd = launch_move_high(status_fd);
    (void)syscall(SYS_keyctl, 1 /* KEYCTL_JOIN_SESSION_KEYRING */, NULL, 0, 0, 0);

    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; fd++)
        if (null < 0 || (fd != null && dup2(null, fd) < 0)) launch_fail("descriptors", "stdio");
    if (dup2(listen_fd, 3) < 0 || dup2(boot, 4) < 0) launch_fail("descriptors", "");
    if (syscall(SYS_close_range, 5U, ~0U, 4U /* CLOSE_RANGE_CLOEXEC */) < 0)
        launch_fail("descriptors", "close_range");

    become_agent(plan);
    char *const argv[] = {(char *)"agentd", NULL}, *const env[] = {NULL};
    syscall(SYS_execveat, agent, "", argv, env, AT_EMPTY_PATH);
    launch_fail("exec-agent", "");
}

static pid_t clone_guest(const struct plan *plan, int listen_fd, int *go_out) {
    int go[2];
    if (pipe2(go, O_CLOEXEC) < 0) launch_fail("pipe", "");
    unsigned long namespaces = plan->engine_count ? KEEPER_NAMESPACES : GUEST_NAMESPACES;
    pid_t pid = (pid_t)syscall(SYS_clone, namespaces | CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
    if (pid < 0) launch_fail("clone-guest", "");
    if (pid == 0) {
        close(go[1]);
        guest_main(plan, go[0], listen_fd);
    }
    close(go[0]);
    *go_out = go[1];
    return pid;
}

int launch_main(int argc, char **argv) {
    if (argc != 7 && argc != 8) {
        dprintf(2, "usage: agentd launch PLAN_FD STATUS_FD LISTEN_FD RECORD_FD [NETWORK_FD] PARENT_PID\n");
        return 2;
    }
    int plan_fd = atoi(argv[2]), listen_fd = atoi(argv[4]), record_fd = atoi(argv[5]);
    int network_fd = argc == 8 ? atoi(argv[6]) : -1;
    pid_t parent = atoi(argv[argc - 1]);
    status_fd = atoi(argv[3]);
    if (fcntl(status_fd, F_SETFD, FD_CLOEXEC) < 0 || fcntl(listen_fd, F_SETFD, FD_CLOEXEC) < 0 ||
        fcntl(record_fd, F_SETFD, FD_CLOEXEC) < 0 ||
        (network_fd >= 0 && fcntl(network_fd, F_SETFD, FD_CLOEXEC) < 0))
        launch_fail("descriptors", "not open");
    die_with_parent(parent);
    struct plan plan;
    plan_read(plan_fd, &plan);
    join_cgroups(&plan);
    enter_outer_and_stage(&plan);
    network_set_up_loopback();
    if (plan.network) {
        network_open(network_fd);
        close(network_fd);
    }
    die_with_parent(parent); /* a change of ids has forgotten it */

    int go;
    pid_t guest = clone_guest(&plan, listen_fd, &go);
    char line[32];
    int n = snprintf(line, sizeof line, "P %d\n", (int)guest);
    if (write(status_fd, line, (size_t)n) != n) return 1; /* nobody listens: B sees the end of L */
    record_guest(record_fd, guest);
    if (!plan.engine_count) ids_map_inner(&plan, guest);
    if (write(go, "g", 1) != 1) return 1;
    return 0;
}
