/* Streams of the host's connection: what is open, and who owns it. */
#ifndef AGENTD_STREAMS_H
#define AGENTD_STREAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "frames.h"
#include "msgpack.h"

#define STREAMS_MAX 1024

struct stream;

/* What an owner does with frames of its stream. A negative result is a breach of the protocol and
 * closes the connection. */
struct stream_ops {
    int (*data)(struct stream *stream, uint8_t channel, const uint8_t *bytes, size_t n);
    int (*credit)(struct stream *stream, uint8_t channel, uint32_t bytes);
    int (*control)(struct stream *stream, const struct mp_value *map);
    /* The host let go of the stream, or the connection is gone; the stream is freed after it. */
    void (*lost)(struct stream *stream);
};

struct stream {
    uint32_t id;
    const struct stream_ops *ops;
    void *owner;
    struct stream *next;
};

/* One frame of the authenticated host; negative: close the connection. */
int streams_frame(const struct frame *frame);
/* The connection is gone: every owner loses its stream. A new connection starts with none. */
void streams_lost(void);

/* A stream that stays open; NULL when there are too many (the caller answers `busy`). */
struct stream *stream_open(uint32_t id, const struct stream_ops *ops, void *owner);
/* DATA on channel 3. */
void stream_control(const struct stream *stream, const struct buf *map);
void stream_credit(const struct stream *stream, uint8_t channel, uint32_t bytes);
/* END or ERROR to the host; the stream is freed, its owner is not told. */
void stream_end(struct stream *stream, const struct buf *map);
void stream_error(struct stream *stream, const char *code, const char *message);
/* Freed without a word; for an OPEN that is answered otherwise. */
void stream_drop(struct stream *stream);

/* For a stream that never became one: the answer to an OPEN. */
void answer_end(uint32_t id, const struct buf *map);
void answer_error(uint32_t id, const char *code, const char *message);

#endif
