#include "streams.h"

#include "conn.h"
#include "ops.h"
#include "util.h"

#define BUCKETS 64

static struct stream *buckets[BUCKETS];
static size_t stream_count;
/* Ids grow, so one number tells a stream that has ended from one that never was. */
static uint32_t highest_id;

static struct stream **find(uint32_t id) {
    struct stream **at = &buckets[id / 2 % BUCKETS];

    while (*at && (*at)->id != id)
        at = &(*at)->next;
    return at;
}

void stream_drop(struct stream *stream) {
    struct stream **at = find(stream->id);

    *at = stream->next;
    stream_count--;
    free(stream);
}

struct stream *stream_open(uint32_t id, const struct stream_ops *ops, void *owner) {
    struct stream *stream;
    struct stream **at;

    if (stream_count >= STREAMS_MAX)
        return NULL;
    stream = xcalloc(1, sizeof(*stream));
    *stream = (struct stream){.id = id, .ops = ops, .owner = owner};
    at = find(id);
    *at = stream;
    stream_count++;
    return stream;
}

void streams_lost(void) {
    for (size_t i = 0; i < BUCKETS; i++) {
        while (buckets[i]) {
            struct stream *stream = buckets[i];

            stream->ops->lost(stream);
            stream_drop(stream);
        }
    }
    highest_id = 0;
}

void stream_control(const struct stream *stream, const struct buf *map) {
    conn_send_data(stream->id, CHANNEL_CONTROL, map->data, map->len);
}

void stream_credit(const struct stream *stream, uint8_t channel, uint32_t bytes) {
    uint8_t payload[5] = {channel};

    put_le32(payload + 1, bytes);
    conn_send(stream->id, FRAME_CREDIT, payload, sizeof(payload));
}

void answer_end(uint32_t id, const struct buf *map) {
    static const uint8_t empty_map = 0x80;

    if (map)
        conn_send(id, FRAME_END, map->data, map->len);
    else
        conn_send(id, FRAME_END, &empty_map, 1);
}

void answer_error(uint32_t id, const char *code, const char *message) {
    CLEANUP_BUF struct buf b = {0};
    struct mp_map map = mp_open(&b);

    mp_add_str(&map, "code", code);
    mp_add_str(&map, "message", message);
    conn_send(id, FRAME_ERROR, b.data, b.len);
}

void stream_end(struct stream *stream, const struct buf *map) {
    answer_end(stream->id, map);
    stream_drop(stream);
}

void stream_error(struct stream *stream, const char *code, const char *message) {
    answer_error(stream->id, code, message);
    stream_drop(stream);
}

static int take_open(const struct frame *frame) {
    struct mp_tree tree;

    if (frame->stream % 2 == 0 || frame->stream <= highest_id)
        return -1;
    highest_id = frame->stream;
    if (mp_parse(&tree, frame->payload, frame->size) != NULL)
        return -1;
    ops_open(frame->stream, tree.root);
    mp_free(&tree);
    return 0;
}

static int take_data(struct stream *stream, const struct frame *frame) {
    uint8_t channel;
    struct mp_tree tree;
    int result;

    if (frame->size < 1)
        return -1;
    channel = frame->payload[0];
    if (channel != CHANNEL_CONTROL)
        return stream->ops->data(stream, channel, frame->payload + 1, frame->size - 1);
    if (mp_parse(&tree, frame->payload + 1, frame->size - 1) != NULL)
        return -1;
    result = tree.root->type == MP_MAP ? stream->ops->control(stream, tree.root) : -1;
    mp_free(&tree);
    return result;
}

int streams_frame(const struct frame *frame) {
    struct stream *stream;

    if (frame->type == FRAME_OPEN)
        return take_open(frame);
    if (frame->type != FRAME_DATA && frame->type != FRAME_CREDIT && frame->type != FRAME_END)
        return -1;
    if (frame->stream % 2 == 0 || frame->stream > highest_id)
        return -1;
    stream = *find(frame->stream);
    if (!stream)
        return 0; /* it crossed our END */
    switch (frame->type) {
    case FRAME_DATA:
        return take_data(stream, frame);
    case FRAME_CREDIT:
        if (frame->size != 5)
            return -1;
        return stream->ops->credit(stream, frame->payload[0], get_le32(frame->payload + 1));
    default:
        stream->ops->lost(stream);
        stream_drop(stream);
        return 0;
    }
}
