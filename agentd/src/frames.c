#include "frames.h"

#include <string.h>

#include "sys.h"
#include "util.h"

#define PAGE 4096u
/* What a quiet connection may keep. */
#define KEPT (2 * PAGE)

static size_t capacity(uint32_t max_length) {
    size_t needed = (size_t)max_length + 4;

    /* Room for a whole frame and, when frames are large, for a read behind it. */
    if (max_length > FRAME_READ)
        needed += FRAME_READ;
    return (needed + PAGE - 1) & ~(size_t)(PAGE - 1);
}

bool frame_reader_init(struct frame_reader *r, uint32_t max_length) {
    *r = (struct frame_reader){.cap = capacity(max_length), .max_length = max_length};
    r->buf = map_private(r->cap);
    return r->buf != NULL;
}

void frame_reader_free(struct frame_reader *r) {
    if (r->buf)
        munmap(r->buf, r->cap);
    *r = (struct frame_reader){0};
}

uint8_t *frame_reader_room(struct frame_reader *r, size_t *room) {
    if (r->start == r->end)
        r->start = r->end = 0;
    /* Moved to the front only when the room behind gets short, so rarely. A buffer that is full
     * from the front on holds a whole frame, which the caller has taken. */
    if (r->start && r->cap - r->end < FRAME_READ) {
        memmove(r->buf, r->buf + r->start, r->end - r->start);
        r->end -= r->start;
        r->start = 0;
    }
    *room = r->cap - r->end;
    if (*room > FRAME_READ)
        *room = FRAME_READ;
    return r->buf + r->end;
}

void frame_reader_fed(struct frame_reader *r, size_t n) {
    r->end += n;
    if (r->end > r->touched)
        r->touched = r->end;
}

int frame_reader_next(struct frame_reader *r, struct frame *out) {
    const uint8_t *p = r->buf + r->start;
    size_t have = r->end - r->start;
    uint32_t length;

    if (have < 4)
        return 0;
    length = get_le32(p);
    if (length < FRAME_MIN_LENGTH || length > r->max_length)
        return -1;
    if (have - 4 < length)
        return 0;
    *out = (struct frame){
        .stream = get_le32(p + 4),
        .type = p[8],
        .payload = p + FRAME_HEADER,
        .size = length - FRAME_MIN_LENGTH,
    };
    r->start += 4 + (size_t)length;
    return 1;
}

bool frame_reader_widen(struct frame_reader *r, uint32_t max_length) {
    struct frame_reader wide;

    if (!frame_reader_init(&wide, max_length))
        return false;
    memcpy(wide.buf, r->buf + r->start, r->end - r->start);
    frame_reader_fed(&wide, r->end - r->start);
    frame_reader_free(r);
    *r = wide;
    return true;
}

bool frame_reader_trim(struct frame_reader *r) {
    if (r->touched <= KEPT)
        return true;
    if (r->start != r->end)
        return false;
    r->start = r->end = 0;
    (void)madvise(r->buf + KEPT, r->cap - KEPT, MADV_DONTNEED);
    r->touched = KEPT;
    return true;
}

void frame_put_header(uint8_t out[FRAME_HEADER], uint32_t stream, uint8_t type, size_t payload) {
    put_le32(out, (uint32_t)(payload + FRAME_MIN_LENGTH));
    put_le32(out + 4, stream);
    out[8] = type;
}
