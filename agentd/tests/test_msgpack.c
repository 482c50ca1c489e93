/* sources: msgpack.c msgpack_encode.c util.c */
#include "../src/msgpack.h"

#include "check.h"

#define BYTES(...) ((const uint8_t[]){__VA_ARGS__}), sizeof((const uint8_t[]){__VA_ARGS__})

/* Parses from memory of exactly that size, so that a sanitizer sees every byte too far. */
static const char *parse(struct mp_tree *tree, uint8_t **copy, const uint8_t *bytes, size_t n) {
    *copy = malloc(n ? n : 1);
    if (n)
        memcpy(*copy, bytes, n);
    return mp_parse(tree, *copy, n);
}

static bool refused(const uint8_t *bytes, size_t n) {
    struct mp_tree tree;
    uint8_t *copy;
    const char *why = parse(&tree, &copy, bytes, n);

    if (!why)
        mp_free(&tree);
    free(copy);
    return why != NULL;
}

static void scalars(void) {
    static const struct {
        uint8_t bytes[9];
        size_t n;
        enum mp_type type;
        int64_t value;
    } cases[] = {
        {{0x00}, 1, MP_UINT, 0},
        {{0x7f}, 1, MP_UINT, 127},
        {{0xff}, 1, MP_NEGATIVE, -1},
        {{0xe0}, 1, MP_NEGATIVE, -32},
        {{0xcc, 0xff}, 2, MP_UINT, 255},
        {{0xcd, 0x01, 0x00}, 3, MP_UINT, 256},
        {{0xce, 0xff, 0xff, 0xff, 0xff}, 5, MP_UINT, 4294967295},
        {{0xcf, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 9, MP_UINT, INT64_MAX},
        {{0xd0, 0x7f}, 2, MP_UINT, 127},
        {{0xd0, 0x80}, 2, MP_NEGATIVE, -128},
        {{0xd1, 0x80, 0x00}, 3, MP_NEGATIVE, -32768},
        {{0xd2, 0xff, 0xff, 0xff, 0xff}, 5, MP_NEGATIVE, -1},
        {{0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0}, 9, MP_NEGATIVE, INT64_MIN},
        {{0xc0}, 1, MP_NIL, 0},
        {{0xc2}, 1, MP_BOOL, 0},
        {{0xc3}, 1, MP_BOOL, 1},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct mp_tree tree;
        uint8_t *copy;

        check(parse(&tree, &copy, cases[i].bytes, cases[i].n) == NULL);
        check(tree.root->type == cases[i].type);
        if (tree.root->type == MP_UINT)
            check(tree.root->u == (uint64_t)cases[i].value);
        else if (tree.root->type == MP_NEGATIVE)
            check(tree.root->i == cases[i].value);
        else if (tree.root->type == MP_BOOL)
            check(tree.root->boolean == (cases[i].value != 0));
        mp_free(&tree);
        free(copy);
        for (size_t n = 0; n < cases[i].n; n++)
            check(refused(cases[i].bytes, n));
    }
}

static void what_is_outside_the_subset(void) {
    check(refused(BYTES(0xca, 0, 0, 0, 0)));             /* float 32 */
    check(refused(BYTES(0xcb, 0, 0, 0, 0, 0, 0, 0, 0))); /* float 64 */
    check(refused(BYTES(0xc1)));                         /* never used */
    check(refused(BYTES(0xd4, 0, 0)));                   /* fixext 1 */
    check(refused(BYTES(0xc7, 0, 0)));                   /* ext 8 */
    check(refused(BYTES(0x81, 0x01, 0x01)));             /* a key that is a number */
    check(refused(BYTES(0x81, 0xc4, 0x01, 'k', 0x01)));  /* a key that is bin */
    check(refused(BYTES(0x81, 0xc0, 0x01)));             /* a key that is nil */
    check(refused(BYTES(0x82, 0xa1, 'k', 1, 0xa1, 'k', 2)));         /* twice */
    check(refused(BYTES(0x82, 0xa1, 'k', 1, 0xd9, 1, 'k', 2)));      /* in two spellings */
    check(refused(BYTES(0x91, 0x82, 0xa1, 'k', 1, 0xa1, 'k', 2)));   /* further in */
    check(refused(BYTES(0x81, 0xa1, 'm', 0x82, 0xa0, 1, 0xa0, 2))); /* empty keys */
    check(refused(BYTES(0x80, 0x80)));                               /* something behind */
}

static void lengths_that_lie(void) {
    check(refused(BYTES(0xdd, 0xff, 0xff, 0xff, 0xff)));
    check(refused(BYTES(0xdd, 0xff, 0xff, 0xff, 0xff, 0x01)));
    check(refused(BYTES(0xdf, 0xff, 0xff, 0xff, 0xff)));
    check(refused(BYTES(0xdf, 0x80, 0x00, 0x00, 0x00)));
    check(refused(BYTES(0xdb, 0xff, 0xff, 0xff, 0xff)));
    check(refused(BYTES(0xc6, 0xff, 0xff, 0xff, 0xff)));
    check(refused(BYTES(0xc6, 0x00, 0x00, 0x00, 0x02, 'x')));
    check(refused(BYTES(0xdc, 0x00, 0x02, 0x01)));
    check(refused(NULL, 0));
}

static void nesting(void) {
    uint8_t deep[4096];
    struct mp_tree tree;

    for (size_t depth = 1; depth < sizeof(deep); depth = depth < 20 ? depth + 1 : depth * 2) {
        memset(deep, 0x91, depth);
        deep[depth] = 0xc0;
        check(refused(deep, depth + 1) == (depth > MP_MAX_DEPTH));
    }
    memset(deep, 0x91, MP_MAX_DEPTH);
    deep[MP_MAX_DEPTH] = 0x07;
    check(mp_parse(&tree, deep, MP_MAX_DEPTH + 1) == NULL);
    const struct mp_value *v = tree.root;
    for (int i = 0; i < MP_MAX_DEPTH; i++)
        v = &v->items[0];
    check(v->type == MP_UINT && v->u == 7);
    mp_free(&tree);
}

static void many_keys(void) {
    struct buf b = {0};
    char key[16];

    for (unsigned count = MP_MAX_PAIRS; count <= MP_MAX_PAIRS + 1; count++) {
        struct mp_map map;

        b.len = 0;
        map = mp_open(&b);
        for (unsigned i = 0; i < count; i++) {
            snprintf(key, sizeof(key), "k%u", i);
            mp_add_uint(&map, key, i);
        }
        check(refused(b.data, b.len) == (count > MP_MAX_PAIRS));
    }
    buf_free(&b);
}

static void getters(const struct mp_value *map) {
    bool flag = false;
    uint64_t u = 0;
    int64_t i = 0;
    char *text = NULL, **texts = NULL;
    const uint8_t *bin = NULL;
    const struct mp_value *value = NULL;
    size_t n = 0;

    check(mp_get_bool(map, "yes", &flag) == MP_OK && flag);
    check(mp_get_bool(map, "pid", &flag) == MP_WRONG);
    check(mp_get_bool(map, "absent", &flag) == MP_ABSENT && flag);
    check(mp_get_uint(map, "pid", 70000, &u) == MP_OK && u == 70000);
    check(mp_get_uint(map, "pid", 69999, &u) == MP_WRONG);
    check(mp_get_uint(map, "huge", UINT64_MAX, &u) == MP_OK && u == UINT64_MAX);
    check(mp_get_uint(map, "yes", 10, &u) == MP_WRONG);
    check(mp_get_int(map, "pid", 0, 70000, &i) == MP_OK && i == 70000);
    check(mp_get_int(map, "huge", INT64_MIN, INT64_MAX, &i) == MP_WRONG);
    check(mp_get_text(map, "name", &text) == MP_OK && strcmp(text, "grüße") == 0);
    free(text);
    check(mp_get_text(map, "pid", &text) == MP_WRONG);
    check(mp_get_text(map, "nul", &text) == MP_WRONG);
    check(mp_get_bin(map, "nul", &bin, &n) == MP_OK && n == 3 && bin[1] == 0);
    check(mp_get_bin(map, "name", &bin, &n) == MP_WRONG);
    check(mp_get_map(map, "inner", &value) == MP_OK && mp_get(value, "deep") != NULL);
    check(mp_get_map(map, "list", &value) == MP_WRONG);
    check(mp_get_array(map, "list", &value) == MP_OK && value->len == 2);
    check(mp_get_array(map, "inner", &value) == MP_WRONG);
    check(mp_get_texts(map, "list", &texts, &n) == MP_WRONG);
    check(mp_get(map, "name") && !mp_get(map, "nam") && !mp_get(map, "name2"));
    check(!mp_get(mp_get(map, "list"), "x") && !mp_get(NULL, "x"));
    check(mp_equals(mp_get(map, "name"), "grüße") && !mp_equals(mp_get(map, "name"), "g"));
}

static void round_trip(void) {
    struct buf b = {0};
    struct mp_map map = mp_open(&b), inner;
    struct mp_tree tree;

    mp_add_bool(&map, "yes", true);
    mp_add_uint(&map, "pid", 70000);
    mp_add_uint(&map, "huge", UINT64_MAX);
    mp_add_str(&map, "name", "grüße");
    mp_add_bin(&map, "nul", "a\0b", 3);
    inner = mp_add_map(&map, "inner");
    mp_add_str(&inner, "deep", "a string that is longer than thirty-one bytes");
    mp_add_array(&map, "list", 2);
    mp_open(&b);
    mp_open(&b);
    check(mp_parse(&tree, b.data, b.len) == NULL);
    check(tree.root->type == MP_MAP && tree.root->len == 7);
    getters(tree.root);
    mp_free(&tree);
    /* Cut at every byte it is refused, and with any byte changed it is at least survived. */
    for (size_t n = 0; n < b.len; n++)
        check(refused(b.data, n));
    for (size_t at = 0; at < b.len; at++) {
        for (int bit = 0; bit < 8; bit++) {
            b.data[at] ^= (uint8_t)(1 << bit);
            (void)refused(b.data, b.len);
            b.data[at] ^= (uint8_t)(1 << bit);
        }
    }
    check(!refused(b.data, b.len));
    buf_free(&b);
}

static void texts(void) {
    struct mp_tree tree;
    char **found = NULL;
    size_t n = 0;

    check(mp_parse(&tree, BYTES(0x81, 0xa1, 'a', 0x93, 0xa1, 'x', 0xc4, 1, 0xff, 0xa0)) == NULL);
    check(mp_get_texts(tree.root, "a", &found, &n) == MP_OK && n == 3);
    check(strcmp(found[0], "x") == 0 && (uint8_t)found[1][0] == 0xff && !*found[2] && !found[3]);
    mp_free_texts(found);
    mp_free(&tree);
    mp_free_texts(NULL);
}

static void noise(void) {
    uint32_t state = 1;
    uint8_t bytes[64];

    for (int round = 0; round < 200000; round++) {
        size_t n;

        for (size_t i = 0; i < sizeof(bytes); i++) {
            state = state * 1664525 + 1013904223;
            bytes[i] = (uint8_t)(state >> 24);
        }
        n = bytes[63] % 40;
        (void)refused(bytes, n);
    }
    check(true);
}

int main(void) {
    scalars();
    what_is_outside_the_subset();
    lengths_that_lie();
    nesting();
    many_keys();
    round_trip();
    texts();
    noise();
    return report();
}
