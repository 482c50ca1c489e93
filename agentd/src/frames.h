/* Frames of the guest protocol: u32 length | u32 stream | u8 type | payload, little-endian. */
#ifndef AGENTD_FRAMES_H
#define AGENTD_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRAME_MIN_LENGTH 5u
#define FRAME_MAX_LENGTH 1048576u
/* Before the handshake is complete nothing longer is taken. */
#define FRAME_MAX_HELLO 4096u
#define FRAME_HEADER 9u
/* One read from the socket asks for so much. */
#define FRAME_READ 65536u

enum frame_type {
    FRAME_HELLO = 1,
    FRAME_OPEN = 2,
    FRAME_DATA = 3,
    FRAME_CREDIT = 4,
    FRAME_END = 5,
    FRAME_ERROR = 6,
};

enum channel { CHANNEL_IN = 0, CHANNEL_OUT = 1, CHANNEL_ERR = 2, CHANNEL_CONTROL = 3 };

struct frame {
    uint32_t stream;
    uint8_t type;
    const uint8_t *payload; /* valid until the reader is fed again */
    size_t size;
};

/* Takes bytes as they come and gives frames; memory is bounded by MAX_LENGTH. */
struct frame_reader {
    uint8_t *buf;
    size_t cap;
    size_t start;
    size_t end;
    size_t touched; /* high-water mark, for frame_reader_trim */
    uint32_t max_length;
};

/* false: no memory. The buffer is not inherited by children. */
bool frame_reader_init(struct frame_reader *r, uint32_t max_length);
void frame_reader_free(struct frame_reader *r);
/* Where to read to, and how much; invalidates the last frame. Never zero bytes. */
uint8_t *frame_reader_room(struct frame_reader *r, size_t *room);
void frame_reader_fed(struct frame_reader *r, size_t n);
/* 1: *OUT is a frame; 0: more bytes are needed; -1: no frame of this protocol. */
int frame_reader_next(struct frame_reader *r, struct frame *out);
/* Takes longer frames from now on and keeps what was read so far. */
bool frame_reader_widen(struct frame_reader *r, uint32_t max_length);
/* Gives memory back that a burst has left; true when there is nothing more to give. */
bool frame_reader_trim(struct frame_reader *r);

void frame_put_header(uint8_t out[FRAME_HEADER], uint32_t stream, uint8_t type, size_t payload);

#endif
