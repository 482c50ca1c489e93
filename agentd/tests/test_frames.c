/* sources: frames.c util.c */
#include "../src/frames.h"

#include "../src/util.h"
#include "check.h"

static void feed(struct frame_reader *r, const uint8_t *bytes, size_t n) {
    while (n) {
        size_t room;
        uint8_t *to = frame_reader_room(r, &room);
        size_t take = n < room ? n : room;

        require(room > 0);
        memcpy(to, bytes, take);
        frame_reader_fed(r, take);
        bytes += take;
        n -= take;
    }
}

static size_t put(uint8_t *out, uint32_t stream, uint8_t type, const char *payload) {
    size_t n = strlen(payload);

    frame_put_header(out, stream, type, n);
    memcpy(out + FRAME_HEADER, payload, n);
    return FRAME_HEADER + n;
}

static bool is(const struct frame *f, uint32_t stream, uint8_t type, const char *payload) {
    return f->stream == stream && f->type == type && f->size == strlen(payload) &&
           memcmp(f->payload, payload, f->size) == 0;
}

static void split_at_every_byte(void) {
    uint8_t bytes[256];
    size_t n = put(bytes, 1, FRAME_OPEN, "first");

    n += put(bytes + n, 0xfffffffe, FRAME_END, "");
    n += put(bytes + n, 7, FRAME_DATA, "the third one is longer");
    for (size_t cut = 0; cut <= n; cut++) {
        for (size_t second = cut; second <= n; second += 3) {
            struct frame_reader r;
            struct frame f[3];
            char payloads[3][32];
            int got = 0;
            const size_t ends[3] = {cut, second, n};
            size_t at = 0;

            check(frame_reader_init(&r, FRAME_MAX_HELLO));
            for (int i = 0; i < 3; i++) {
                feed(&r, bytes + at, ends[i] - at);
                at = ends[i];
                while (got < 3 && frame_reader_next(&r, &f[got]) == 1) {
                    memcpy(payloads[got], f[got].payload, f[got].size);
                    f[got].payload = (uint8_t *)payloads[got];
                    got++;
                }
            }
            check(got == 3 && is(&f[0], 1, FRAME_OPEN, "first") &&
                  is(&f[1], 0xfffffffe, FRAME_END, "") &&
                  is(&f[2], 7, FRAME_DATA, "the third one is longer"));
            frame_reader_free(&r);
        }
    }
}

static int first_of(uint32_t max, uint32_t length) {
    struct frame_reader r;
    struct frame f;
    uint8_t bytes[9] = {0};
    int result;

    check(frame_reader_init(&r, max));
    put_le32(bytes, length);
    feed(&r, bytes, sizeof(bytes));
    result = frame_reader_next(&r, &f);
    frame_reader_free(&r);
    return result;
}

static void bad_lengths(void) {
    check(first_of(FRAME_MAX_LENGTH, 0) == -1);
    check(first_of(FRAME_MAX_LENGTH, 4) == -1);
    check(first_of(FRAME_MAX_LENGTH, 5) == 1);
    check(first_of(FRAME_MAX_LENGTH, FRAME_MAX_LENGTH) == 0);
    check(first_of(FRAME_MAX_LENGTH, FRAME_MAX_LENGTH + 1) == -1);
    check(first_of(FRAME_MAX_LENGTH, 0xffffffff) == -1);
    check(first_of(FRAME_MAX_HELLO, FRAME_MAX_HELLO) == 0);
    check(first_of(FRAME_MAX_HELLO, FRAME_MAX_HELLO + 1) == -1);
}

/* The largest frames, one after the other, in pieces of every awkward size. */
static void large_frames(void) {
    size_t n = 4 + FRAME_MAX_LENGTH;
    uint8_t *bytes = xcalloc(1, n);
    size_t steps[] = {1000003, 65536, 65535, 4097};

    put_le32(bytes, FRAME_MAX_LENGTH);
    bytes[8] = FRAME_DATA;
    for (size_t i = FRAME_HEADER; i < n; i++)
        bytes[i] = (uint8_t)(i * 31 >> 3);
    for (size_t s = 0; s < COUNT_OF(steps); s++) {
        struct frame_reader r;
        struct frame f;
        int got = 0;
        size_t at = 0, total = 5 * n;

        check(frame_reader_init(&r, FRAME_MAX_LENGTH));
        while (at < total) {
            size_t take = steps[s] < total - at ? steps[s] : total - at;

            if (take > n - at % n)
                take = n - at % n;
            feed(&r, bytes + at % n, take);
            at += take;
            while (frame_reader_next(&r, &f) == 1) {
                got++;
                check(f.size == FRAME_MAX_LENGTH - 5 &&
                      memcmp(f.payload, bytes + FRAME_HEADER, f.size) == 0);
            }
        }
        check(got == 5);
        check(frame_reader_trim(&r));
        feed(&r, bytes, n);
        check(!frame_reader_trim(&r));
        check(frame_reader_next(&r, &f) == 1 && f.payload[5] == bytes[FRAME_HEADER + 5]);
        frame_reader_free(&r);
    }
    free(bytes);
}

static void widening_keeps_what_was_read(void) {
    struct frame_reader r;
    struct frame f;
    uint8_t bytes[64];
    size_t n = put(bytes, 0, FRAME_HELLO, "one");

    n += put(bytes + n, 1, FRAME_OPEN, "two");
    check(frame_reader_init(&r, FRAME_MAX_HELLO));
    feed(&r, bytes, n - 2);
    check(frame_reader_next(&r, &f) == 1 && is(&f, 0, FRAME_HELLO, "one"));
    check(frame_reader_widen(&r, FRAME_MAX_LENGTH));
    check(frame_reader_next(&r, &f) == 0);
    feed(&r, bytes + n - 2, 2);
    check(frame_reader_next(&r, &f) == 1 && is(&f, 1, FRAME_OPEN, "two"));
    frame_reader_free(&r);
}

int main(void) {
    split_at_every_byte();
    bad_lengths();
    large_frames();
    widening_keeps_what_was_read();
    return report();
}
