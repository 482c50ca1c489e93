/* MessagePack, the subset of docs/reference/guest-protocol.md: nil, booleans, integers, str, bin,
 * array, and map with str keys.
 *
 * Decoding gives a tree in one allocation; str and bin point into the input, which must outlive it:
 *
 *     struct mp_tree tree;
 *     const char *why = mp_parse(&tree, bytes, size);      // NULL, or what is wrong
 *     const struct mp_value *v = mp_get(tree.root, "key"); // NULL when absent (or no map)
 *     mp_free(&tree);
 *
 * The typed getters of a map's field return MP_ABSENT when the key is not there (and leave the
 * output as it was, so that it can hold a default), MP_OK, or MP_WRONG for another type or range. */
#ifndef AGENTD_MSGPACK_H
#define AGENTD_MSGPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util.h"

#define MP_MAX_DEPTH 8
#define MP_MAX_PAIRS 1024

enum mp_type { MP_NIL, MP_BOOL, MP_UINT, MP_NEGATIVE, MP_STR, MP_BIN, MP_ARRAY, MP_MAP };

struct mp_value {
    enum mp_type type;
    uint32_t len; /* bytes of a str or bin, items of an array, pairs of a map */
    union {
        bool boolean;
        uint64_t u;                   /* MP_UINT */
        int64_t i;                    /* MP_NEGATIVE: below zero */
        const uint8_t *bytes;         /* MP_STR, MP_BIN; not NUL-terminated */
        const struct mp_value *items; /* MP_ARRAY; MP_MAP: key, value, key, value … */
    };
};

struct mp_tree {
    const struct mp_value *root;
    struct mp_value *nodes;
};

/* Exactly one value, nothing after it. On failure TREE is empty and the reason is returned. */
const char *mp_parse(struct mp_tree *tree, const void *bytes, size_t size);
void mp_free(struct mp_tree *tree);

const struct mp_value *mp_get(const struct mp_value *map, const char *key);

enum mp_found { MP_WRONG = -1, MP_ABSENT = 0, MP_OK = 1 };

enum mp_found mp_get_bool(const struct mp_value *map, const char *key, bool *out);
enum mp_found mp_get_uint(const struct mp_value *map, const char *key, uint64_t max, uint64_t *out);
enum mp_found mp_get_int(const struct mp_value *map, const char *key, int64_t min, int64_t max,
                         int64_t *out);
/* str or bin without a NUL inside; *OUT is a fresh string, to be freed. */
enum mp_found mp_get_text(const struct mp_value *map, const char *key, char **out);
enum mp_found mp_get_bin(const struct mp_value *map, const char *key, const uint8_t **out,
                         size_t *len);
/* A fresh, NULL-terminated array of fresh strings; *COUNT of them. */
enum mp_found mp_get_texts(const struct mp_value *map, const char *key, char ***out,
                           size_t *count);
enum mp_found mp_get_array(const struct mp_value *map, const char *key,
                           const struct mp_value **out);
enum mp_found mp_get_map(const struct mp_value *map, const char *key, const struct mp_value **out);

/* The same for a value that is at hand (an array's item). NULL unless str or bin without NUL. */
char *mp_text(const struct mp_value *value);
bool mp_is_text(const struct mp_value *value);
bool mp_equals(const struct mp_value *value, const char *text);
void mp_free_texts(char **texts);

/* Encoding appends to a buffer. A map counts its pairs as they are added:
 *
 *     struct mp_map map = mp_open(&b);
 *     mp_add_uint(&map, "pid", 7);
 *
 * A map inside another is filled before the outer one gets its next pair. */
struct mp_map {
    struct buf *buf;
    size_t count_at; /* where the number of pairs stands, 16 bits big-endian */
};

struct mp_map mp_open(struct buf *b);
struct mp_map mp_add_map(struct mp_map *map, const char *key);
void mp_add_array(struct mp_map *map, const char *key, uint32_t count);
void mp_add_str(struct mp_map *map, const char *key, const char *text);
void mp_add_bin(struct mp_map *map, const char *key, const void *bytes, size_t n);
void mp_add_uint(struct mp_map *map, const char *key, uint64_t value);
void mp_add_bool(struct mp_map *map, const char *key, bool value);

#endif
