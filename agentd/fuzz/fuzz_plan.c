/* sources: launch_plan.c msgpack.c msgpack_encode.c util.c */
/* The launch plan: taken whole, or refused as "plan". */
#include "../src/launch.h"
#include "../src/launch_plan.h"
#include "../src/util.h"

struct reading {
    int fd;
    struct plan plan;
};

void launch_fail(const char *stage, const char *detail) {
    promise(!strcmp(stage, "plan") && detail);
    world_leave(1);
}

static void body(void *context) {
    struct reading *r = context;

    plan_read(r->fd, &r->plan);
}

static void look_at(const struct plan *plan) {
    uint8_t sum = 0;

    promise(plan->hostname && plan->staging && plan->outer_uids.text && plan->newgidmap);
    promise(plan->upper_source >= -1 && plan->upper_owner >= -1 && plan->devpts_gid >= -1);
    for (size_t i = 0; i < plan->boot_size; i++)
        sum ^= plan->boot[i];
    for (size_t i = 0; i < plan->cgroup_count; i++)
        promise(plan->cgroups[i]);
    for (size_t i = 0; i < plan->source_count; i++)
        promise(plan->sources[i].path);
    for (size_t i = 0; i < plan->op_count; i++) {
        const struct plan_op *op = &plan->ops[i];

        promise(op->target && (op->kind != OP_OVERLAY || op->lowers));
        promise(op->kind != OP_CGROUP || (op->type && op->options));
        for (size_t k = 0; k < op->content_size; k++)
            sum ^= op->content[k];
    }
    __asm__ volatile("" : : "r"(sum));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct reading r = {.fd = world_input(data, size)};
    int fd = r.fd;

    if (world_runs(body, &r))
        look_at(&r.plan);
    close(fd);
    world_free_all();
    return 0;
}
