#define _GNU_SOURCE
#include "ops.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "agent.h"
#include "files.h"
#include "process.h"
#include "spool.h"
#include "streams.h"
#include "tree.h"
#include "usage.h"
#include "util.h"

static void op_ping(uint32_t id, const struct mp_value *map) {
    CLEANUP_BUF struct buf b = {0};
    struct mp_map end = mp_open(&b);

    (void)map;
    mp_add_uint(&end, "now_ms", (uint64_t)now_ms());
    answer_end(id, &b);
}

static uint64_t resident_kb(void) {
    /* "size resident …", in pages */
    char text[128];
    CLEANUP_CLOSE int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text));
    const char *from, *to;
    uint64_t pages;

    if (n <= 0 || !(from = memchr(text, ' ', (size_t)n)))
        return 0;
    from++;
    to = memchr(from, ' ', (size_t)(text + n - from));
    if (!to || !parse_decimal(from, (size_t)(to - from), UINT32_MAX, &pages))
        return 0;
    return pages * (uint64_t)sysconf(_SC_PAGESIZE) / 1024;
}

static void op_stats(uint32_t id, const struct mp_value *map) {
    CLEANUP_BUF struct buf b = {0};
    struct mp_map end = mp_open(&b);

    (void)map;
    mp_add_uint(&end, "procs", tree_count());
    mp_add_uint(&end, "rss_kb", resident_kb());
    mp_add_uint(&end, "spool", spool_kept());
    usage_describe(&end);
    answer_end(id, &b);
}

static void op_shutdown(uint32_t id, const struct mp_value *map) {
    uint64_t grace_ms = 0;

    if (mp_get_uint(map, "grace_ms", UINT32_MAX, &grace_ms) == MP_WRONG)
        answer_error(id, "bad_request", "grace_ms");
    else
        agent_shutdown(id, grace_ms);
}

static const struct {
    const char *name;
    void (*fn)(uint32_t id, const struct mp_value *map);
} ops[] = {
    {"exec", op_exec},     {"attach", op_attach}, {"list", op_list},
    {"signal", op_signal}, {"forget", op_forget}, {"ping", op_ping},
    {"stats", op_stats},   {"tcp", op_tcp},       {"shutdown", op_shutdown},
    {"file.stat", op_file},   {"file.read", op_file},   {"file.write", op_file},
    {"file.list", op_file},   {"file.mkdir", op_file},  {"file.move", op_file},
    {"file.remove", op_file}, {"tree.read", op_file},   {"tree.write", op_file},
    {"file.watch", op_file},
};

void ops_open(uint32_t id, const struct mp_value *map) {
    const struct mp_value *op = mp_get(map, "op");

    if (!op || op->type != MP_STR) {
        answer_error(id, "bad_request", "op");
        return;
    }
    for (size_t i = 0; i < COUNT_OF(ops); i++) {
        if (mp_equals(op, ops[i].name)) {
            ops[i].fn(id, map);
            return;
        }
    }
    answer_error(id, "no_such_op", "no such operation");
}
