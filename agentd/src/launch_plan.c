/* Decodes the launch plan. See launch_plan.h and docs/reference/launch-plan.md. */
#define _GNU_SOURCE
#include "launch_plan.h"

#include "launch.h"
#include "msgpack.h"
#include "util.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void __attribute__((noreturn)) bad_plan(const char *what) {
    errno = EINVAL;
    launch_fail("plan", what);
}

static char *text(const struct mp_value *map, const char *key) {
    char *out = NULL;
    if (mp_get_text(map, key, &out) != MP_OK) bad_plan(key);
    return out;
}

/* NULL where it is not there. */
static char *optional_text(const struct mp_value *map, const char *key) {
    char *out = NULL;
    if (mp_get_text(map, key, &out) == MP_WRONG) bad_plan(key);
    return out;
}

static uint64_t number(const struct mp_value *map, const char *key) {
    uint64_t out = 0;
    if (mp_get_uint(map, key, UINT64_MAX, &out) == MP_WRONG) bad_plan(key);
    return out;
}

static int64_t signed_number(const struct mp_value *map, const char *key) {
    int64_t out = -1;
    if (mp_get_int(map, key, -1, INT64_MAX, &out) == MP_WRONG) bad_plan(key);
    return out;
}

static bool flag(const struct mp_value *map, const char *key) {
    bool out = false;
    if (mp_get_bool(map, key, &out) == MP_WRONG) bad_plan(key);
    return out;
}

static const struct mp_value *array(const struct mp_value *map, const char *key) {
    const struct mp_value *out = NULL;
    if (mp_get_array(map, key, &out) != MP_OK) bad_plan(key);
    return out;
}

static enum id_mode id_mode(const struct mp_value *map) {
    const struct mp_value *ids = mp_get(map, "ids");
    if (ids && mp_equals(ids, "range")) return IDS_RANGE;
    if (ids && mp_equals(ids, "subuid")) return IDS_SUBUID;
    if (ids && mp_equals(ids, "single")) return IDS_SINGLE;
    bad_plan("ids");
}

static enum op_kind op_kind(const struct mp_value *map) {
    static const struct { const char *name; enum op_kind kind; } kinds[] = {
        {"overlay", OP_OVERLAY}, {"tmpfs", OP_TMPFS}, {"tree", OP_TREE}, {"bind", OP_BIND},
        {"proc", OP_PROC},
        {"dev", OP_DEV}, {"mask", OP_MASK}, {"readonly", OP_READONLY}, {"data", OP_DATA},
        {"write", OP_WRITE}, {"dir", OP_DIR}, {"cgroup", OP_CGROUP}, {"stage", OP_STAGE},
        {"nosuid", OP_NOSUID},
    };
    const struct mp_value *op = mp_get(map, "op");
    for (size_t i = 0; op && i < COUNT_OF(kinds); i++)
        if (mp_equals(op, kinds[i].name)) return kinds[i].kind;
    bad_plan("op");
}

static void read_op(const struct mp_value *map, struct plan_op *op) {
    op->kind = op_kind(map);
    op->target = text(map, "target");
    if (op->kind == OP_OVERLAY) op->lowers = text(map, "lowers");
    if (op->kind == OP_TREE) op->lowers = optional_text(map, "lowers");
    if (op->kind == OP_CGROUP) {
        op->type = text(map, "type");
        op->options = text(map, "options");
    }
    op->index = number(map, "index");
    op->size = number(map, "size");
    op->inodes = number(map, "inodes");
    op->mode = number(map, "mode");
    op->noexec = flag(map, "noexec");
    op->optional = flag(map, "optional");
    op->alike = flag(map, "alike");
    if (mp_get_bin(map, "content", &op->content, &op->content_size) == MP_WRONG) bad_plan("content");
}

static struct plan_op *read_ops(const struct mp_value *list, size_t *count) {
    struct plan_op *ops = xcalloc(list->len + 1, sizeof *ops);
    for (uint32_t i = 0; i < list->len; i++) read_op(&list->items[i], &ops[i]);
    *count = list->len;
    return ops;
}

/* Nothing here is freed: the launcher's memory ends with its exec. */
void plan_read(int fd, struct plan *plan) {
    struct buf bytes = {0};
    ssize_t n;
    while ((n = read(fd, buf_room(&bytes, 65536), 65536)) > 0) bytes.len += (size_t)n;
    if (n < 0) launch_fail("plan", "read");
    close(fd);
    struct mp_tree tree;
    const char *why = mp_parse(&tree, bytes.data, bytes.len);
    if (why) bad_plan(why);
    const struct mp_value *map = tree.root;

    memset(plan, 0, sizeof *plan);
    plan->ids = id_mode(map);
    plan->outer_uids.text = text(map, "outer_uids");
    plan->outer_gids.text = text(map, "outer_gids");
    plan->inner_uids.text = text(map, "inner_uids");
    plan->inner_gids.text = text(map, "inner_gids");
    plan->project_uids.text = optional_text(map, "project_uids");
    plan->project_gids.text = optional_text(map, "project_gids");
    plan->newuidmap = text(map, "newuidmap");
    plan->newgidmap = text(map, "newgidmap");
    plan->staging = text(map, "staging");
    plan->hostname = text(map, "hostname");
    plan->nested_userns = flag(map, "nested_userns");
    plan->network = flag(map, "network");
    plan->devpts_gid = signed_number(map, "devpts_gid");
    plan->upper_source = signed_number(map, "upper_source");
    plan->upper_owner = signed_number(map, "upper_owner");
    plan->upper_size = number(map, "upper_size");
    plan->upper_inodes = number(map, "upper_inodes");
    plan->agent_source = number(map, "agent_source");
    plan->agent_uid = number(map, "agent_uid");
    plan->agent_caps = number(map, "agent_caps");
    if (mp_get_bin(map, "boot", &plan->boot, &plan->boot_size) != MP_OK) bad_plan("boot");
    if (mp_get_texts(map, "cgroups", &plan->cgroups, &plan->cgroup_count) != MP_OK) bad_plan("cgroups");

    if (mp_get_texts(map, "engine", &plan->engine, &plan->engine_count) != MP_OK) bad_plan("engine");
    plan->engine_log = text(map, "engine_log");
    plan->engine_source = signed_number(map, "engine_source");
    plan->engine_listens = flag(map, "engine_listens");
    plan->engine_without_groups = flag(map, "engine_without_groups");

    const struct mp_value *sources = array(map, "sources"), *ops = array(map, "ops");
    plan->source_count = sources->len;
    plan->sources = xcalloc(sources->len + 1, sizeof *plan->sources);
    for (uint32_t i = 0; i < sources->len; i++) {
        plan->sources[i].path = text(&sources->items[i], "path");
        plan->sources[i].is_file = flag(&sources->items[i], "file");
        plan->sources[i].writable = flag(&sources->items[i], "writable");
        plan->sources[i].is_image = flag(&sources->items[i], "image");
        plan->sources[i].is_volume = flag(&sources->items[i], "volume");
        plan->sources[i].owner = signed_number(&sources->items[i], "owner");
        plan->sources[i].is_project = flag(&sources->items[i], "project");
    }
    plan->ops = read_ops(ops, &plan->op_count);
    plan->late = read_ops(array(map, "late"), &plan->late_count);
}
