/* sources: probe.c util.c */
/* The frame of the probe with tries of our own: whatever one does, its line comes, and the next. */
#define _GNU_SOURCE
#include "../src/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static void works(struct probe_answer *answer, const struct probe_try *self) {
    answer_add(answer, "%s", self->path);
    answer_values(answer);
}

static void fails(struct probe_answer *answer, const struct probe_try *self) {
    errno = (int)self->number;
    answer_result(answer, -1);
}

static void dies(struct probe_answer *answer, const struct probe_try *self) {
    answer_add(answer, "before");
    raise((int)self->number);
}

/* Also against whoever only asks it to end. */
static void hangs(struct probe_answer *answer, const struct probe_try *self) {
    (void)answer, (void)self;
    signal(SIGTERM, SIG_IGN);
    for (;;)
        pause();
}

static void floods(struct probe_answer *answer, const struct probe_try *self) {
    (void)self;
    for (int i = 0; i < 100000; i++)
        answer_add(answer, "%0100d", i);
    answer_values(answer);
}

const struct probe_try probe_self[] = {
    {"a.works", works, "text", 0, {0}},
    {"a.fails", fails, NULL, EACCES, {0}},
    {"a.killed", dies, NULL, SIGSYS, {0}},
    {"a.bytes", works, "q\"b\\c\n\x01\xff", 0, {0}},
    {"a.hangs", hangs, NULL, 0, {0}},
    {0},
};
const struct probe_try probe_calls[] = {{"b.floods", floods, NULL, 0, {0}}, {0}};
const struct probe_try probe_files[] = {
    {"c.dir", try_read, "/", 0, {0}},
    {"c.none", try_read, "/dev/null", 0, {0}},
    {"c.missing", try_read, "/no/such/file", 0, {0}},
    {"c.write", try_open_write, "/dev/null", 0, {0}},
    {0},
};
const struct probe_try probe_sockets[] = {{"d.last", works, "end", 0, {0}}, {0}};
const struct probe_try probe_agent[] = {{0}};
const struct probe_try probe_limits[] = {{0}};

static char output[1 << 20];

/* What the probe writes, into `output`; its exit status. */
static int run(int argc, char **argv) {
    int pipe_fds[2], status = -1;
    size_t n = 0;
    ssize_t got;
    pid_t child;

    if (pipe(pipe_fds) < 0 || (child = fork()) < 0)
        return -1;
    if (child == 0) {
        dup2(pipe_fds[1], 1);
        _exit(probe_main(argc, argv));
    }
    close(pipe_fds[1]);
    while ((got = read(pipe_fds[0], output + n, sizeof output - 1 - n)) > 0)
        n += (size_t)got;
    output[n] = 0;
    close(pipe_fds[0]);
    waitpid(child, &status, 0);
    return status;
}

static int has(const char *text) { return strstr(output, text) != NULL; }

int main(void) {
    char *plain[] = {"agentd", "probe", NULL}, *list[] = {"agentd", "probe", "--list", NULL};
    char *wrong[] = {"agentd", "probe", "--nonsense", NULL};
    size_t lines = 0;

    check(run(2, plain) == 0);
    check(has("{\"try\":\"a.works\",\"answer\":\"ok\",\"values\":[\"text\"]}\n"));
    check(has("{\"try\":\"a.fails\",\"answer\":\"errno 13\",\"values\":[]}\n"));
    check(has("{\"try\":\"a.killed\",\"answer\":\"signal 31\",\"values\":[\"before\"]}\n"));
    check(has("\"values\":[\"q?b/c???\"]}\n"));
    check(has("{\"try\":\"a.hangs\",\"answer\":\"timeout\",\"values\":[]}\n"));
    check(has("{\"try\":\"b.floods\",\"answer\":\"ok\",\"values\":[\"000"));
    check(strlen(output) < 2 * PROBE_VALUES_MAX);
    check(has("{\"try\":\"c.dir\",\"answer\":\"ok\","));
    check(has("{\"try\":\"c.none\",\"answer\":\"none\","));
    check(has("{\"try\":\"c.missing\",\"answer\":\"errno 2\","));
    check(has("{\"try\":\"c.write\",\"answer\":\"ok\","));
    check(has("{\"try\":\"d.last\",\"answer\":\"ok\",\"values\":[\"end\"]}\n"));
    for (const char *at = output; (at = strchr(at, '\n')); at++)
        lines++;
    check(lines == 11);
    check(run(3, list) == 0);
    check(strncmp(output, "a.works\na.fails\n", 16) == 0 && !has("{"));
    check(WEXITSTATUS(run(3, wrong)) == 2);
    return report();
}
