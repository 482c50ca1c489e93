/* The encoding half of msgpack.h. */
#include <string.h>

#include "msgpack.h"

static void put_be(struct buf *b, uint8_t head, uint64_t value, size_t n) {
    uint8_t *p = buf_room(b, n + 1);

    *p++ = head;
    for (size_t i = 0; i < n; i++)
        *p++ = (uint8_t)(value >> (8 * (n - 1 - i)));
    b->len += n + 1;
}

static void put_str(struct buf *b, const char *text) {
    size_t n = strlen(text);

    if (n < 32)
        put_be(b, (uint8_t)(0xa0 | n), 0, 0);
    else
        put_be(b, 0xdb, n, 4);
    buf_add(b, text, n);
}

static void add_key(struct mp_map *map, const char *key) {
    uint8_t *count = map->buf->data + map->count_at;

    if (++count[1] == 0)
        count[0]++;
    put_str(map->buf, key);
}

struct mp_map mp_open(struct buf *b) {
    /* Always the 16-bit form: the length is not known yet. */
    put_be(b, 0xde, 0, 2);
    return (struct mp_map){.buf = b, .count_at = b->len - 2};
}

struct mp_map mp_add_map(struct mp_map *map, const char *key) {
    add_key(map, key);
    return mp_open(map->buf);
}

void mp_add_array(struct mp_map *map, const char *key, uint32_t count) {
    add_key(map, key);
    put_be(map->buf, 0xdd, count, 4);
}

void mp_add_str(struct mp_map *map, const char *key, const char *text) {
    add_key(map, key);
    put_str(map->buf, text);
}

void mp_add_bin(struct mp_map *map, const char *key, const void *bytes, size_t n) {
    add_key(map, key);
    put_be(map->buf, 0xc6, n, 4);
    buf_add(map->buf, bytes, n);
}

void mp_add_uint(struct mp_map *map, const char *key, uint64_t value) {
    struct buf *b = map->buf;

    add_key(map, key);
    if (value < 0x80)
        put_be(b, (uint8_t)value, 0, 0);
    else if (value <= UINT8_MAX)
        put_be(b, 0xcc, value, 1);
    else if (value <= UINT16_MAX)
        put_be(b, 0xcd, value, 2);
    else if (value <= UINT32_MAX)
        put_be(b, 0xce, value, 4);
    else
        put_be(b, 0xcf, value, 8);
}

void mp_add_bool(struct mp_map *map, const char *key, bool value) {
    add_key(map, key);
    put_be(map->buf, value ? 0xc3 : 0xc2, 0, 0);
}
