/* The frame of the probe: one process for each try, a bound on its time, one line for its answer. */
#define _GNU_SOURCE
#include "probe.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "util.h"

#define TRY_SECONDS 2
#define NO_PROCESS 75 /* the exit status that asks for another time */
#define PROC_MAGIC 0x9fa0

struct probe_bait probe_bait;
int probe_fds[PROBE_FDS_MAX];
size_t probe_fd_count;

static const struct probe_try *const groups[] = {
    probe_self, probe_calls, probe_files, probe_sockets, probe_agent, probe_limits,
};

void answer_word(struct probe_answer *answer, const char *word) {
    snprintf(answer->word, sizeof answer->word, "%s", word);
}

void answer_result(struct probe_answer *answer, long result) {
    if (result >= 0)
        answer_word(answer, "ok");
    else
        snprintf(answer->word, sizeof answer->word, "errno %d", errno);
}

void answer_values(struct probe_answer *answer) { answer_word(answer, answer->used ? "ok" : "none"); }

void answer_add(struct probe_answer *answer, const char *format, ...) {
    size_t room = PROBE_VALUES_MAX - answer->used;
    va_list list;
    int n;

    va_start(list, format);
    n = vsnprintf(answer->values + answer->used, room, format, list);
    va_end(list);
    /* What does not fit is left out whole: half a path would be another path. */
    if (n >= 0 && (size_t)n < room)
        answer->used += (uint32_t)n + 1;
}

long probe_read(const char *path, char *text, size_t size) {
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);

    if (n < 0)
        return -1;
    while (n > 0 && text[n - 1] == '\n')
        n--;
    text[n] = 0;
    return n;
}

/* A file of ours that hides one of /proc is on another file system. */
static bool is_hidden(const char *path, int fd) {
    struct statfs fs;

    return strncmp(path, "/proc/", 6) == 0 && fstatfs(fd, &fs) == 0 && fs.f_type != PROC_MAGIC;
}

static bool has_entries(int fd) {
    DIR *dir = fdopendir(fd);
    struct dirent *entry;
    bool found = false;

    while (dir && !found && (entry = readdir(dir)))
        found = strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    return found;
}

/* A file that has content, a directory that has entries. */
void try_read(struct probe_answer *answer, const struct probe_try *self) {
    int fd = open(self->path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    ssize_t n = -1;
    char byte;

    if (fd < 0)
        return answer_result(answer, -1);
    if (is_hidden(self->path, fd))
        return answer_word(answer, "none");
    n = read(fd, &byte, 1);
    if (n < 0 && errno == EISDIR)
        n = has_entries(fd);
    if (n < 0)
        answer_result(answer, n);
    else
        answer_word(answer, n ? "ok" : "none");
}

static void try_flags(struct probe_answer *answer, const char *path, int flags) {
    int fd = open(path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

    if (fd >= 0 && is_hidden(path, fd))
        answer_word(answer, "none");
    else
        answer_result(answer, fd);
}

/* What reading would take away from others, or a device: opened and no more. */
void try_open(struct probe_answer *answer, const struct probe_try *self) {
    try_flags(answer, self->path, O_RDONLY);
}

/* Opened for writing; nothing is written. */
void try_open_write(struct probe_answer *answer, const struct probe_try *self) {
    try_flags(answer, self->path, O_WRONLY);
}

/* Waits for CHILD; past its time it is killed. */
static int end_of(pid_t child, bool *late) {
    sigset_t ended;
    struct timespec second = {.tv_sec = TRY_SECONDS};
    int status = 0;

    sigemptyset(&ended);
    sigaddset(&ended, SIGCHLD);
    *late = false;
    for (;;) {
        pid_t got = waitpid(child, &status, WNOHANG | __WALL);

        if (got == child || (got < 0 && errno != EINTR))
            return status;
        if (sigtimedwait(&ended, NULL, &second) < 0 && errno == EAGAIN) {
            *late = true;
            kill(child, SIGKILL);
            while (waitpid(child, &status, __WALL) < 0 && errno == EINTR)
                ;
            return status;
        }
    }
}

/* False if there is no process to make it with. */
static bool make_try(struct probe_answer *answer, const struct probe_try *self) {
    bool late;
    int status;
    pid_t child;

    answer->used = 0;
    answer_word(answer, "none");
    child = fork();
    if (child == 0) {
        sigset_t none;

        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        self->run(answer, self);
        _exit(0);
    }
    if (child < 0)
        return false;
    status = end_of(child, &late);
    if (late)
        answer_word(answer, "timeout");
    else if (WIFSIGNALED(status))
        snprintf(answer->word, sizeof answer->word, "signal %d", WTERMSIG(status));
    return true;
}

/* A guest's names can be any bytes; what is not plain ASCII is a question mark. */
static void add_text(struct buf *line, const char *text) {
    buf_add(line, "\"", 1);
    for (; *text; text++) {
        bool plain = *text >= ' ' && *text <= '~' && *text != '"' && *text != '\\';

        buf_add(line, plain ? text : *text == '\\' ? "/" : "?", 1);
    }
    buf_add(line, "\"", 1);
}

static bool say(const struct probe_answer *answer, const char *name) {
    CLEANUP_BUF struct buf line = {0};

    buf_add(&line, "{\"try\":", 7);
    add_text(&line, name);
    buf_add(&line, ",\"answer\":", 10);
    add_text(&line, answer->word);
    buf_add(&line, ",\"values\":[", 11);
    for (size_t at = 0; at < answer->used; at += strlen(answer->values + at) + 1) {
        if (at)
            buf_add(&line, ",", 1);
        add_text(&line, answer->values + at);
    }
    buf_add(&line, "]}\n", 3);
    return write_all(1, line.data, line.len) == 0;
}

static void note_descriptors(void) {
    for (int fd = 0; fd < 1024 && probe_fd_count < PROBE_FDS_MAX; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            probe_fds[probe_fd_count++] = fd;
}

int probe_main(int argc, char **argv) {
    struct probe_answer *answer;
    bool list = false;
    sigset_t ended;

    note_descriptors();
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--list") == 0)
            list = true;
        else if (strcmp(argv[i], "--abstract") == 0 && i + 1 < argc)
            probe_bait.abstract = argv[++i];
        else if (strcmp(argv[i], "--tcp") == 0 && i + 1 < argc)
            probe_bait.tcp_port = atoi(argv[++i]);
        else if (strcmp(argv[i], "--setuid") == 0 && i + 1 < argc)
            (void)chmod(argv[++i], 04755);
        else {
            dprintf(2, "usage: agentd probe [--list] [--abstract NAME] [--tcp PORT] [--setuid FILE]\n");
            return 2;
        }
    }
    answer = mmap(NULL, sizeof *answer, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (answer == MAP_FAILED)
        die("probe");
    sigemptyset(&ended);
    sigaddset(&ended, SIGCHLD);
    sigprocmask(SIG_BLOCK, &ended, NULL);
    for (size_t group = 0; group < COUNT_OF(groups); group++) {
        for (const struct probe_try *it = groups[group]; it->name; it++) {
            if (list) {
                dprintf(1, "%s\n", it->name);
                continue;
            }
            if (!make_try(answer, it))
                return NO_PROCESS;
            if (!say(answer, it->name))
                return 1;
        }
    }
    return 0;
}
