/* sources: boot.c msgpack.c msgpack_encode.c util.c */
/* The boot configuration: taken whole, or agentd ends with a word. */
#include "../src/boot.h"
#include "../src/sys.h"
#include "../src/util.h"

static void body(void *context) { boot_read(*(int *)context); }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int fd = world_input(data, size);

    if (world_runs(body, &fd)) {
        promise(boot.token && boot.umask <= 0777);
        promise(boot.single_uid >= -1 && boot.single_uid < UINT32_MAX);
        promise(boot.oom_score_adj >= -1000 && boot.oom_score_adj <= 1000);
        promise(boot.seccomp_count <= SYS_BPF_MAXINSNS && !boot.seccomp == !boot.seccomp_count);
    } else {
        promise(world_status == 70);
    }
    world_free_all();
    return 0;
}
