/* sources: msgpack.c msgpack_encode.c request.c file_request.c frames.c util.c */
/* Frames cut anywhere, their payloads as MessagePack, and what the operations read from that. */
#include "../src/boot.h"
#include "../src/files.h"
#include "../src/frames.h"
#include "../src/msgpack.h"
#include "../src/request.h"
#include "../src/util.h"

struct boot boot;

static void look_at(const struct mp_value *v, int depth) {
    size_t count = v->type == MP_MAP ? 2 * (size_t)v->len : v->len;

    promise(depth <= MP_MAX_DEPTH);
    if (v->type == MP_STR || v->type == MP_BIN) {
        char *copy = mp_text(v);

        promise(!copy == !mp_is_text(v));
        promise(!copy || strlen(copy) == v->len);
        free(copy);
    }
    if (v->type != MP_ARRAY && v->type != MP_MAP)
        return;
    for (size_t i = 0; i < count; i++) {
        promise(v->type != MP_MAP || i % 2 || v->items[i].type == MP_STR);
        look_at(&v->items[i], depth + 1);
    }
}

static void as_exec(const struct mp_value *map) {
    struct request r;

    if (request_parse(map, &r))
        return;
    promise(r.slots[1] && !r.slots[0] && r.cwd && strlen(r.id) == PROCESS_ID_LEN);
    for (char **entry = r.envp; *entry; entry++)
        promise(strchr(*entry, '='));
    promise(r.rows <= UINT16_MAX && r.cols <= UINT16_MAX && r.spool <= boot.spool_max);
    request_free(&r);
}

static void as_file(const struct mp_value *map) {
    struct file_request r;
    char *user;

    if (file_request_parse(map, &r, &user))
        return;
    promise(r.op < FILE_OPS && r.path[0] == '/' && (r.op != FILE_MOVE || r.to[0] == '/'));
    promise(r.limit > 0 && r.mode <= 01777);
    file_request_free(&r);
    free(user);
}

static void take_payload(const uint8_t *bytes, size_t size) {
    /* A copy of exactly this size: one byte beyond it is seen. */
    uint8_t *copy = size ? memcpy(malloc(size), bytes, size) : NULL;
    struct mp_tree tree;

    if (!mp_parse(&tree, copy, size)) {
        look_at(tree.root, 0);
        as_exec(tree.root);
        as_file(tree.root);
        mp_free(&tree);
    } else {
        promise(!tree.root && !tree.nodes);
    }
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct taker t = {data, data + size};
    struct frame_reader reader;
    uint8_t way = take_byte(&t);

    boot = (struct boot){.spool_max = 1000, .single_uid = -1};
    if (way & 1) {
        take_payload(t.at, (size_t)(t.end - t.at));
    } else {
        promise(frame_reader_init(&reader, way & 2 ? FRAME_MAX_HELLO : FRAME_MAX_LENGTH));
        while (!taker_empty(&t)) {
            struct frame frame;
            size_t room, n;
            uint8_t *to = frame_reader_room(&reader, &room);
            size_t step = (size_t)(way >> 2) * 37 + 1;
            const uint8_t *bytes = take_bytes(&t, step < room ? step : room, &n);
            int got;

            promise(room > 0);
            memcpy(to, bytes, n);
            frame_reader_fed(&reader, n);
            while ((got = frame_reader_next(&reader, &frame)) == 1)
                take_payload(frame.payload, frame.size);
            if (got < 0)
                break;
            if (way & 4 && reader.max_length == FRAME_MAX_HELLO)
                promise(frame_reader_widen(&reader, FRAME_MAX_LENGTH));
            (void)frame_reader_trim(&reader);
        }
        frame_reader_free(&reader);
    }
    promise(world_allocations() == 0);
    return 0;
}
