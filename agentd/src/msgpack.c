#include "msgpack.h"

#include <string.h>

/* Decoding goes over the input twice: once to check all of it and count the values, then to build
 * the tree in an allocation of exactly that size. The second pass can therefore not fail. */
struct cursor {
    const uint8_t *at;
    const uint8_t *end;
    const char *why;
};

static bool fail(struct cursor *c, const char *why) {
    c->why = why;
    return false;
}

static bool take_be(struct cursor *c, size_t n, uint64_t *out) {
    uint64_t value = 0;

    if ((size_t)(c->end - c->at) < n)
        return fail(c, "truncated");
    for (size_t i = 0; i < n; i++)
        value = value << 8 | *c->at++;
    *out = value;
    return true;
}

static bool take_integer(struct cursor *c, size_t n, bool is_signed, struct mp_value *v) {
    uint64_t raw;

    if (!take_be(c, n, &raw))
        return false;
    v->type = MP_UINT;
    v->u = raw;
    if (is_signed && raw >> (8 * n - 1) & 1) {
        v->type = MP_NEGATIVE;
        v->i = n == 8 ? (int64_t)raw : (int64_t)(raw | ~UINT64_C(0) << (8 * n));
    }
    return true;
}

static bool take_length(struct cursor *c, size_t n, enum mp_type type, struct mp_value *v) {
    uint64_t len;

    if (!take_be(c, n, &len))
        return false;
    v->type = type;
    v->len = (uint32_t)len;
    return true;
}

/* The first byte and, of a str or bin, the content; of an array or map only the length. */
static bool take_head(struct cursor *c, struct mp_value *v) {
    uint64_t byte;
    bool ok;

    if (!take_be(c, 1, &byte))
        return false;
    *v = (struct mp_value){.type = MP_NIL};
    if (byte <= 0x7f) {
        v->type = MP_UINT;
        v->u = byte;
        return true;
    }
    if (byte >= 0xe0) {
        v->type = MP_NEGATIVE;
        v->i = (int64_t)byte - 256;
        return true;
    }
    if (byte <= 0x8f) {
        v->type = MP_MAP;
        v->len = byte & 0x0f;
        return true;
    }
    if (byte <= 0x9f) {
        v->type = MP_ARRAY;
        v->len = byte & 0x0f;
        return true;
    }
    if (byte <= 0xbf) {
        v->type = MP_STR;
        v->len = byte & 0x1f;
        ok = true;
    } else {
        switch (byte) {
        case 0xc0:
            return true;
        case 0xc2:
        case 0xc3:
            v->type = MP_BOOL;
            v->boolean = byte == 0xc3;
            return true;
        case 0xcc:
        case 0xcd:
        case 0xce:
        case 0xcf:
            return take_integer(c, (size_t)1 << (byte - 0xcc), false, v);
        case 0xd0:
        case 0xd1:
        case 0xd2:
        case 0xd3:
            return take_integer(c, (size_t)1 << (byte - 0xd0), true, v);
        case 0xc4:
        case 0xc5:
        case 0xc6:
            ok = take_length(c, (size_t)1 << (byte - 0xc4), MP_BIN, v);
            break;
        case 0xd9:
        case 0xda:
        case 0xdb:
            ok = take_length(c, (size_t)1 << (byte - 0xd9), MP_STR, v);
            break;
        case 0xdc:
        case 0xdd:
            return take_length(c, (size_t)2 << (byte - 0xdc), MP_ARRAY, v);
        case 0xde:
        case 0xdf:
            return take_length(c, (size_t)2 << (byte - 0xde), MP_MAP, v);
        default:
            return fail(c, "a type outside the subset");
        }
    }
    if (!ok)
        return false;
    if ((size_t)(c->end - c->at) < v->len)
        return fail(c, "truncated");
    v->bytes = c->at;
    c->at += v->len;
    return true;
}

static bool check(struct cursor *c, int depth, size_t *count) {
    struct mp_value v;
    uint64_t children;

    if (!take_head(c, &v))
        return false;
    ++*count;
    if (v.type != MP_ARRAY && v.type != MP_MAP)
        return true;
    if (depth == MP_MAX_DEPTH)
        return fail(c, "nested too deep");
    children = v.type == MP_MAP ? 2 * (uint64_t)v.len : v.len;
    /* A value takes a byte at least, so a lie about the length ends here. */
    if (children > (uint64_t)(c->end - c->at))
        return fail(c, "truncated");
    if (v.type == MP_MAP && v.len > MP_MAX_PAIRS)
        return fail(c, "too many keys");
    for (uint64_t i = 0; i < children; i++) {
        const uint8_t *start = c->at;

        if (!check(c, depth + 1, count))
            return false;
        if (v.type == MP_MAP && i % 2 == 0 && !(*start >= 0xa0 && *start <= 0xbf) &&
            !(*start >= 0xd9 && *start <= 0xdb))
            return fail(c, "a key that is no str");
    }
    return true;
}

static void build(struct cursor *c, struct mp_value *v, struct mp_value **next) {
    struct mp_value *children;
    size_t count;

    (void)take_head(c, v);
    if (v->type != MP_ARRAY && v->type != MP_MAP)
        return;
    count = v->type == MP_MAP ? 2 * (size_t)v->len : v->len;
    children = *next;
    *next += count;
    v->items = children;
    for (size_t i = 0; i < count; i++)
        build(c, &children[i], next);
}

static bool same(const struct mp_value *a, const struct mp_value *b) {
    return a->len == b->len && (a->len == 0 || memcmp(a->bytes, b->bytes, a->len) == 0);
}

static bool has_repeated_key(const struct mp_value *v) {
    size_t count = v->type == MP_MAP ? 2 * (size_t)v->len : v->len;

    if (v->type != MP_ARRAY && v->type != MP_MAP)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (v->type == MP_MAP && i % 2 == 0) {
            for (size_t j = 0; j < i; j += 2) {
                if (same(&v->items[i], &v->items[j]))
                    return true;
            }
        } else if (has_repeated_key(&v->items[i])) {
            return true;
        }
    }
    return false;
}

const char *mp_parse(struct mp_tree *tree, const void *bytes, size_t size) {
    const uint8_t *start = bytes;
    struct cursor c = {.at = start, .end = start ? start + size : start};
    struct mp_value *next;
    size_t count = 0;

    *tree = (struct mp_tree){0};
    if (!check(&c, 0, &count))
        return c.why;
    if (c.at != c.end)
        return "bytes after the value";
    tree->nodes = xcalloc(count, sizeof(*tree->nodes));
    tree->root = tree->nodes;
    next = tree->nodes + 1;
    c.at = start;
    build(&c, tree->nodes, &next);
    if (has_repeated_key(tree->root)) {
        mp_free(tree);
        return "a repeated key";
    }
    return NULL;
}

void mp_free(struct mp_tree *tree) {
    free(tree->nodes);
    *tree = (struct mp_tree){0};
}

const struct mp_value *mp_get(const struct mp_value *map, const char *key) {
    if (!map || map->type != MP_MAP)
        return NULL;
    for (uint32_t i = 0; i < map->len; i++) {
        if (mp_equals(&map->items[2 * i], key))
            return &map->items[2 * i + 1];
    }
    return NULL;
}

enum mp_found mp_get_bool(const struct mp_value *map, const char *key, bool *out) {
    const struct mp_value *v = mp_get(map, key);

    if (!v)
        return MP_ABSENT;
    if (v->type != MP_BOOL)
        return MP_WRONG;
    *out = v->boolean;
    return MP_OK;
}

enum mp_found mp_get_uint(const struct mp_value *map, const char *key, uint64_t max,
                          uint64_t *out) {
    const struct mp_value *v = mp_get(map, key);

    if (!v)
        return MP_ABSENT;
    if (v->type != MP_UINT || v->u > max)
        return MP_WRONG;
    *out = v->u;
    return MP_OK;
}

enum mp_found mp_get_int(const struct mp_value *map, const char *key, int64_t min, int64_t max,
                         int64_t *out) {
    const struct mp_value *v = mp_get(map, key);
    int64_t value;

    if (!v)
        return MP_ABSENT;
    if (v->type == MP_UINT && v->u <= INT64_MAX)
        value = (int64_t)v->u;
    else if (v->type == MP_NEGATIVE)
        value = v->i;
    else
        return MP_WRONG;
    if (value < min || value > max)
        return MP_WRONG;
    *out = value;
    return MP_OK;
}

bool mp_is_text(const struct mp_value *value) {
    return value && (value->type == MP_STR || value->type == MP_BIN) &&
           (value->len == 0 || !memchr(value->bytes, 0, value->len));
}

char *mp_text(const struct mp_value *value) {
    return mp_is_text(value) ? xmemdup_text(value->bytes, value->len) : NULL;
}

bool mp_equals(const struct mp_value *value, const char *text) {
    size_t len = strlen(text);

    return value && value->type == MP_STR && value->len == len &&
           (len == 0 || memcmp(value->bytes, text, len) == 0);
}

enum mp_found mp_get_text(const struct mp_value *map, const char *key, char **out) {
    const struct mp_value *v = mp_get(map, key);

    if (!v)
        return MP_ABSENT;
    if (!mp_is_text(v))
        return MP_WRONG;
    *out = mp_text(v);
    return MP_OK;
}

enum mp_found mp_get_bin(const struct mp_value *map, const char *key, const uint8_t **out,
                         size_t *len) {
    const struct mp_value *v = mp_get(map, key);

    if (!v)
        return MP_ABSENT;
    if (v->type != MP_BIN)
        return MP_WRONG;
    *out = v->bytes;
    *len = v->len;
    return MP_OK;
}

enum mp_found mp_get_array(const struct mp_value *map, const char *key,
                           const struct mp_value **out) {
    const struct mp_value *v = mp_get(map, key);

    if (!v)
        return MP_ABSENT;
    if (v->type != MP_ARRAY)
        return MP_WRONG;
    *out = v;
    return MP_OK;
}

enum mp_found mp_get_map(const struct mp_value *map, const char *key,
                         const struct mp_value **out) {
    const struct mp_value *v = mp_get(map, key);

    if (!v)
        return MP_ABSENT;
    if (v->type != MP_MAP)
        return MP_WRONG;
    *out = v;
    return MP_OK;
}

enum mp_found mp_get_texts(const struct mp_value *map, const char *key, char ***out,
                           size_t *count) {
    const struct mp_value *array;
    enum mp_found found = mp_get_array(map, key, &array);

    if (found != MP_OK)
        return found;
    for (uint32_t i = 0; i < array->len; i++) {
        if (!mp_is_text(&array->items[i]))
            return MP_WRONG;
    }
    *out = xcalloc((size_t)array->len + 1, sizeof(**out));
    *count = array->len;
    for (uint32_t i = 0; i < array->len; i++)
        (*out)[i] = mp_text(&array->items[i]);
    return MP_OK;
}

void mp_free_texts(char **texts) {
    for (char **t = texts; t && *t; t++)
        free(*t);
    free(texts);
}
