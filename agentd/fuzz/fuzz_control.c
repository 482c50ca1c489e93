/* sources: msgpack.c msgpack_encode.c util.c */
/* A target with a fault, which has to be found: one byte behind a value is read. */
#include "../src/msgpack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *copy = memcpy(malloc(size + 1), data, size);
    struct mp_tree tree;

    copy = realloc(copy, size ? size : 1);
    if (!mp_parse(&tree, copy, size)) {
        if (tree.root->type == MP_BIN)
            __asm__ volatile("" : : "r"(tree.root->bytes[tree.root->len]));
        mp_free(&tree);
    }
    free(copy);
    promise(world_allocations() == 0);
    return 0;
}
