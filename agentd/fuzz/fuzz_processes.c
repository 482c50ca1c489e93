/* sources: util.c loop.c */
/* /proc as processes of a guest can make it look: any name, any parent. Who is killed must be below
 * the supervisor in question; a pass must come to an end. */
#include "../src/tree.c"

#include <stdio.h>
#include <sys/stat.h>

#define PROCESSES 24

static pid_t parents[PROCESSES + 2];
static const pid_t supervisors[2] = {2, 3};

static bool is_supervisor(pid_t pid) { return pid == supervisors[0] || pid == supervisors[1]; }

static bool is_below(pid_t pid, pid_t top) {
    for (int steps = 0; steps <= PROCESSES && pid > 1 && pid < PROCESSES + 2; steps++) {
        if (parents[pid] == top)
            return true;
        pid = parents[pid];
    }
    return false;
}

int world_kill(pid_t pid, int sig) {
    promise(pid != 0 && pid != 1 && pid >= -1);
    promise(pid != -1 || sig == SIGSTOP);
    /* A name may lie about the rest of the line only to the reader of a wrong parenthesis. */
    if (sig == SIGKILL)
        promise(pid > 0 && !is_supervisor(pid) && is_below(pid, supervisors[0]));
    return 0;
}

int world_epoll_wait(int fd, struct epoll_event *events, int most, int timeout) {
    (void)fd;
    (void)events;
    (void)most;
    (void)timeout;
    world_leave(0);
}

static void put_process(pid_t pid, struct taker *t) {
    char path[48], line[160];
    size_t n, length = take_byte(t) % 16;
    const uint8_t *name = take_bytes(t, length, &n);
    uint8_t parent = take_byte(t) % (PROCESSES + 2), state = take_byte(t) % 5;
    int size, fd;

    parents[pid] = pid == 1 ? 0 : is_supervisor(pid) ? 1 : parent;
    size = snprintf(line, sizeof(line), "%d (", pid);
    memcpy(line + size, name, n);
    size += (int)n;
    size += snprintf(line + size, sizeof(line) - (size_t)size, ") %c %d 1 1 0 -1 4194560 1 0 0",
                     "RSTZX"[state], parents[pid]);
    snprintf(path, sizeof(path), "/tmp/proc/%d", pid);
    (void)mkdir(path, 0700);
    snprintf(path, sizeof(path), "/tmp/proc/%d/stat", pid);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    promise(fd >= 0 && write_all(fd, line, (size_t)size) == 0);
    close(fd);
}

static void remove_process(pid_t pid) {
    char path[48];

    snprintf(path, sizeof(path), "/tmp/proc/%d/stat", pid);
    (void)unlink(path);
    parents[pid] = -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct taker t = {data, data + size};
    struct tree_kill kill_one = {.supervisor = supervisors[0]};

    if (proc_fd < 0) {
        promise(mkdir("/tmp/proc", 0700) == 0);
        proc_fd = open("/tmp/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        promise(proc_fd >= 0);
        known_supervisor = is_supervisor;
        next_pass.fn = on_next_pass;
    }
    for (pid_t pid = 1; pid < PROCESSES + 2; pid++) {
        if (taker_empty(&t) && pid > 3)
            remove_process(pid);
        else
            put_process(pid, &t);
    }
    promise(tree_count() <= PROCESSES);
    tree_kill_start(&kill_one);
    for (int passes = 0; passes < 3 + PASSES_EAGER; passes++)
        run_passes();
    kill_one.passes = PASSES_MAX - 1;
    run_passes();
    tree_kill_stop(&kill_one);
    timer_stop(&next_pass);
    promise(!kills && world_allocations() <= 1); /* the loop's timers */
    return 0;
}
