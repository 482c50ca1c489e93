/* The keeper K, which takes B's place where an OCI runtime makes the guest's namespaces.
 *
 * K is PID 1 of a pid namespace of its own, in the outer user namespace and without any right on the
 * host. It builds the root like B does, but leaves it where it is, in a mount namespace that nobody
 * else sees; the bundle lies beside it. Then it runs the runtime, which starts the container and goes.
 *
 *   L ── K ── runc … (gone) ──▶ agentd                 reparented to K
 *          └─ runsc … (gone) ─▶ runsc-sandbox, runsc-gofer
 *
 * K stays, as the one process that is the whole sandbox to the host: killing it ends every process of
 * the runtime and of the guest, whatever state the runtime thinks they are in, and takes the mounts
 * along. The other way round K ends as soon as one of those two or three does: half a sandbox is none.
 */
#define _GNU_SOURCE
#include "launch_engine.h"

#include "launch.h"
#include "launch_mounts.h"
#include "launch_sys.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* In the directory that is the runtime's, `engine_source`. */
#define SOCKET_DIR "socket"
#define SOCKET_NAME "s"
/* In the bundle. */
#define PID_FILE "b/pid"
#define POLL_NS 2000000L
#define KEEPER_NAME "agentd-keeper"

/* The runtime's last words, from the log that the plan told it to write: one JSON map a line. */
static const char *last_words(const char *log) {
    static char text[4096];
    int fd = open(log, O_RDONLY | O_CLOEXEC);
    off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    off_t from = size > (off_t)sizeof text - 1 ? size - (off_t)(sizeof text - 1) : 0;
    ssize_t n = fd < 0 ? 0 : pread(fd, text, sizeof text - 1, from);
    text[n > 0 ? n : 0] = 0;
    if (fd >= 0) close(fd);
    for (char *end = strrchr(text, '\n'); end && !end[1]; end = strrchr(text, '\n')) *end = 0;
    char *line = strrchr(text, '\n');
    return line ? line + 1 : text;
}

/* agentd's descriptors are the native ones, 3 and 4, and its binary as 5, for the runtime to execute; a
 * runtime that lets none of these in hands stdin on. */
static pid_t start_runtime(const struct plan *plan, int boot, int listen_fd, int agent) {
    unsigned kept = plan->engine_listens ? 3 : 6;
    pid_t pid = fork();
    if (pid != 0) {
        if (pid < 0) launch_fail("fork", "");
        return pid;
    }
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int stdin_fd = plan->engine_listens ? boot : null;
    if (null < 0 || dup2(stdin_fd, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0)
        launch_fail("descriptors", "runtime");
    if (!plan->engine_listens && (dup2(listen_fd, 3) < 0 || dup2(boot, 4) < 0 || dup2(agent, 5) < 0))
        launch_fail("descriptors", "agent");
    if (syscall(SYS_close_range, kept, ~0U, 4U /* CLOSE_RANGE_CLOEXEC */) < 0)
        launch_fail("descriptors", "close_range");
    char *const env[] = {(char *)"PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL};
    execve(plan->engine[0], plan->engine, env);
    launch_fail("engine-exec", plan->engine[0]);
}

static void wait_for_runtime(const struct plan *plan, pid_t runtime) {
    int status = 0;
    while (waitpid(runtime, &status, 0) < 0)
        if (errno != EINTR) launch_fail("engine", "wait");
    if (status == 0) return;
    errno = 0;
    launch_fail("engine", last_words(plan->engine_log));
}

/* An agentd that was handed no listening socket makes one, in a directory that the runtime shows it.
 * Once it listens there the socket gets its place outside and the directory goes: the socket lives on,
 * and there is nothing left that a guest could delete it from, or fill. */
static void take_socket(const struct plan *plan) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char dir[24];
    snprintf(dir, sizeof dir, "%lld", (long long)plan->engine_source);
    if (chdir(dir) < 0) launch_fail("engine-socket", "directory");
    snprintf(address.sun_path, sizeof address.sun_path, SOCKET_DIR "/" SOCKET_NAME);
    for (pid_t gone;;) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0) launch_fail("engine-socket", "socket");
        int connected = connect(fd, (struct sockaddr *)&address, sizeof address);
        int why = errno;
        close(fd);
        if (connected == 0) break;
        if (why != ENOENT && why != ECONNREFUSED) {
            errno = why;
            launch_fail("engine-socket", "connect");
        }
        while ((gone = waitpid(-1, NULL, WNOHANG)) > 0) {}
        if (gone < 0) { /* nobody is left to make it */
            errno = 0;
            launch_fail("engine-agent", last_words(plan->engine_log));
        }
        nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    }
    /* It belongs to agentd's id; whoever may enter the directory on the host may connect. */
    if (rename(SOCKET_DIR "/" SOCKET_NAME, SOCKET_NAME) < 0 || rmdir(SOCKET_DIR) < 0 ||
        chmod(SOCKET_NAME, 0666) < 0)
        launch_fail("engine-socket", "take");
    if (chdir("..") < 0) launch_fail("engine-socket", "directory");
}

/* The guest's user namespace exists by now; what a guest made below it would be counted here too. */
static void forbid_user_namespaces(void) {
    int fd = open("/proc/sys/user/max_user_namespaces", O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "0", 1) != 1) launch_fail("nested-user", "keeper");
    close(fd);
}

static void drop_everything(void) {
    struct cap_header header = {.version = CAPABILITY_VERSION_3, .pid = 0};
    struct cap_data none[2] = {{0, 0, 0}, {0, 0, 0}};
    if (syscall(SYS_capset, &header, none) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        launch_fail("capabilities", "keeper");
}

/* Where the container is one process, it was written down by the runtime: others that come to us are
 * helpers of the runtime's on their way out. */
static pid_t container_pid(void) {
    char text[16] = "";
    int fd = open(PID_FILE, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, text, sizeof text - 1) <= 0 || atoi(text) <= 1) launch_fail("engine", "pid");
    close(fd);
    return atoi(text);
}

/* By a child, because there is no way back out of the container. */
static void finish_container(const struct plan *plan, pid_t container) {
    int status = 0;
    pid_t child = fork();
    if (child < 0) launch_fail("fork", "");
    if (child == 0) {
        mounts_finish(plan, container);
        _exit(0);
    }
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) launch_fail("late", "wait");
    if (status != 0) _exit(1); /* it has said why */
}

/* K executes itself once more, as the program that waits. A process's memory belongs to the user namespace
 * that it was executed in: to that of the host until now, and from here on to the outer one. So the host
 * side, whoever it is, can find by this process the namespaces that it owns (network.c). */
static void __attribute__((noreturn)) become_waiter(int agent, pid_t main_pid) {
    char pid[16];
    snprintf(pid, sizeof pid, "%d", (int)main_pid);
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; fd++)
        if (null < 0 || dup2(null, fd) < 0) launch_fail("descriptors", "keeper");
    if (syscall(SYS_close_range, 3U, ~0U, 4U /* CLOSE_RANGE_CLOEXEC */) < 0)
        launch_fail("descriptors", "close_range");
    char *const argv[] = {(char *)KEEPER_NAME, (char *)"keep", pid, NULL}, *const env[] = {NULL};
    syscall(SYS_execveat, agent, "", argv, env, AT_EMPTY_PATH);
    launch_fail("keeper", "");
}

/* Until that process ends; 0: until any does, because the container is several. */
int keep_main(int argc, char **argv) {
    pid_t gone, main_pid = argc == 3 ? atoi(argv[2]) : -1;
    if (main_pid < 0 || getpid() != 1 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0) return 2;
    (void)prctl(PR_SET_NAME, KEEPER_NAME, 0, 0, 0);
    if (main_pid == 0)
        while (waitpid(-1, NULL, WNOHANG) > 0) {}
    do
        gone = waitpid(-1, NULL, 0);
    while (gone < 0 ? errno == EINTR : main_pid != 0 && gone != main_pid);
    return 0;
}

void keeper_main(const struct plan *plan, int listen_fd) {
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0) launch_fail("capabilities", "dumpable");
    (void)prctl(PR_SET_NAME, KEEPER_NAME, 0, 0, 0);
    /* The runtime talks to the kernel by the pids of this namespace. */
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        launch_fail("proc", "keeper");
    int agent = launch_move_high(mounts_build_bundle(plan));
    /* A runtime that brings its own kernel asks how much memory that may have; for any other a covered
     * /proc would be a reason for the kernel to refuse the guest's. */
    if (plan->engine_listens &&
        mount("b/meminfo", "/proc/meminfo", NULL, MS_BIND, NULL) < 0) launch_fail("proc", "meminfo");
    if (plan->engine_without_groups &&
        mount("tmpfs", "/sys/fs/cgroup", "tmpfs", MS_RDONLY, "size=4k") < 0 && errno != ENOENT)
        launch_fail("engine-groups", "");
    int boot = launch_move_high(launch_boot_descriptor(plan));
    pid_t runtime = start_runtime(plan, boot, launch_move_high(listen_fd), agent);
    wait_for_runtime(plan, runtime);
    pid_t main_pid = plan->engine_listens ? 0 : container_pid();
    if (plan->engine_listens)
        take_socket(plan);
    else
        finish_container(plan, main_pid);
    if (!plan->nested_userns) forbid_user_namespaces();
    drop_everything();
    become_waiter(agent, main_pid);
}
