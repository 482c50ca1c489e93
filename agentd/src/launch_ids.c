/* User namespaces and their id maps. See launch_ids.h. */
#define _GNU_SOURCE
#include "launch_ids.h"

#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void write_proc(const char *stage, const char *pid, const char *name, const char *text) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%s/%s", pid, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text)) launch_fail(stage, name);
    close(fd);
}

static void wait_byte(int fd) {
    char byte;
    while (read(fd, &byte, 1) < 0 && errno == EINTR) {}
}

/* The child only lives until its namespace is held by our descriptor. */
int ids_make_namespace(const struct id_map *uids, const struct id_map *gids) {
    int ready[2], done[2];
    if (pipe2(ready, O_CLOEXEC) < 0 || pipe2(done, O_CLOEXEC) < 0) launch_fail("pipe", "");
    pid_t child = fork();
    if (child < 0) launch_fail("fork", "");
    if (child == 0) {
        close(done[1]);
        if (unshare(CLONE_NEWUSER) < 0) launch_fail("unshare-user", "");
        if (write(ready[1], "r", 1) != 1) _exit(1);
        wait_byte(done[0]);
        _exit(0);
    }
    close(ready[1]);
    close(done[0]);
    char byte, pid[16], path[64];
    if (read(ready[0], &byte, 1) != 1) _exit(1); /* the child has said why */
    snprintf(pid, sizeof pid, "%d", (int)child);
    write_proc("map-range", pid, "uid_map", uids->text);
    write_proc("map-range", pid, "gid_map", gids->text);
    snprintf(path, sizeof path, "/proc/%s/ns/user", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) launch_fail("map-range", "namespace");
    close(ready[0]);
    close(done[1]);
    waitpid(child, NULL, 0);
    return fd;
}

/* Runs `newuidmap PID inside outside count …`, which may map the user's subuids because it is
 * setuid root and has checked /etc/subuid. Its own words on stderr say more than its status. */
static void run_mapper(const char *program, pid_t target, const char *map) {
    char *words = strdup(map), *argv[64];
    char pid[16];
    size_t n = 0;
    if (!words) launch_fail("memory", "");
    snprintf(pid, sizeof pid, "%d", (int)target);
    argv[n++] = (char *)program;
    argv[n++] = pid;
    for (char *word = strtok(words, " \n"); word && n < 63; word = strtok(NULL, " \n")) argv[n++] = word;
    argv[n] = NULL;
    pid_t child = fork();
    if (child < 0) launch_fail("fork", "");
    if (child == 0) {
        execv(program, argv);
        launch_fail("map-subuid", program);
    }
    int status;
    if (waitpid(child, &status, 0) < 0 || status != 0) {
        errno = EPERM;
        launch_fail("map-subuid", program);
    }
    free(words);
}

/* Forked before L leaves the host's user namespace: newuidmap must run outside of the new one. */
static void map_from_outside(const struct plan *plan, int unshared, pid_t launcher) {
    char byte;
    if (read(unshared, &byte, 1) != 1) _exit(1);
    run_mapper(plan->newuidmap, launcher, plan->outer_uids.text);
    run_mapper(plan->newgidmap, launcher, plan->outer_gids.text);
    _exit(0);
}

void ids_enter_outer(const struct plan *plan) {
    pid_t self = getpid(), mapper = 0;
    int unshared[2] = {-1, -1};
    if (plan->ids == IDS_SUBUID) {
        if (pipe2(unshared, O_CLOEXEC) < 0) launch_fail("pipe", "");
        mapper = fork();
        if (mapper < 0) launch_fail("fork", "");
        if (mapper == 0) {
            close(unshared[1]);
            map_from_outside(plan, unshared[0], self);
        }
        close(unshared[0]);
    }
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET) < 0) launch_fail("unshare-user", "");
    if (plan->ids == IDS_SUBUID) {
        int status;
        if (write(unshared[1], "u", 1) != 1) launch_fail("map-subuid", "mapper is gone");
        close(unshared[1]);
        if (waitpid(mapper, &status, 0) < 0 || status != 0) _exit(1); /* the mapper has said why */
    } else {
        /* An unprivileged single-id map is only allowed once setgroups is given up. */
        write_proc("map-single", "self", "setgroups", "deny");
        write_proc("map-single", "self", "uid_map", plan->outer_uids.text);
        write_proc("map-single", "self", "gid_map", plan->outer_gids.text);
    }
}

void ids_map_inner(const struct plan *plan, pid_t child) {
    char pid[16];
    snprintf(pid, sizeof pid, "%d", (int)child);
    write_proc("map-inner", pid, "uid_map", plan->inner_uids.text);
    write_proc("map-inner", pid, "gid_map", plan->inner_gids.text);
}
