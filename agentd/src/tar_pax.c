/* See tar_pax.h. A record is "LENGTH KEY=VALUE\n", its length counting all of it. */
#define _GNU_SOURCE
#include "tar_pax.h"

#include <string.h>

#define XATTR "SCHILY.xattr."
/* So that sums of two never overflow. */
#define MOST ((uint64_t)INT64_MAX)

bool tar_add_segment(struct tar_reader *tar, uint64_t offset, uint64_t size) {
    if (tar->segment_count == TAR_MAX_SEGMENTS || offset > MOST || size > MOST)
        return false;
    if (tar->segment_count == tar->segment_room) {
        tar->segment_room = tar->segment_room ? 2 * tar->segment_room : 64;
        tar->segments = xrealloc(tar->segments, tar->segment_room * sizeof(*tar->segments));
    }
    tar->segments[tar->segment_count++] = (struct tar_segment){offset, size};
    return true;
}

bool tar_segments_fit(const struct tar_reader *tar, uint64_t size, uint64_t stored) {
    uint64_t from = 0, sum = 0;

    for (size_t i = 0; i < tar->segment_count; i++) {
        const struct tar_segment *s = &tar->segments[i];

        if (s->offset < from || s->offset > size || s->size > size - s->offset)
            return false;
        from = s->offset + s->size;
        sum += s->size;
    }
    return sum == stored;
}

static bool decimal(const char *text, size_t len, uint64_t *out) {
    return parse_decimal(text, len, MOST, out);
}

bool pax_read_map(struct tar_reader *tar, const char *map) {
    const char *at = map;

    tar->segment_count = 0;
    while (*at) {
        uint64_t pair[2];

        for (int i = 0; i < 2; i++) {
            size_t len = strcspn(at, ",");

            if (!decimal(at, len, &pair[i]))
                return false;
            at += len;
            if (*at == ',')
                at++;
            else if (i == 0)
                return false;
        }
        if (!tar_add_segment(tar, pair[0], pair[1]))
            return false;
    }
    return true;
}

/* Seconds with a fraction, before 1970 too: "-1.5" is half a second after -2. */
static bool time_of(const char *text, size_t len, int64_t *seconds, uint32_t *nanoseconds) {
    bool before = len && text[0] == '-';
    const char *point;
    uint64_t whole;
    uint32_t rest = 0, digit = 100000000;

    text += before;
    len -= before;
    point = memchr(text, '.', len);
    if (!decimal(text, point ? (size_t)(point - text) : len, &whole))
        return false;
    for (const char *at = point ? point + 1 : text + len; at < text + len; at++) {
        if (*at < '0' || *at > '9')
            return false;
        rest += (uint32_t)(*at - '0') * digit;
        digit /= 10;
    }
    *seconds = before ? -(int64_t)whole : (int64_t)whole;
    if (before && rest) {
        (*seconds)--;
        rest = 1000000000 - rest;
    }
    *nanoseconds = rest;
    return true;
}

static const char *add_xattr(struct tar_reader *tar, struct pax_words *words, const char *name,
                             const char *value, size_t size) {
    if (words->xattr_count == tar->xattr_room) {
        tar->xattr_room = tar->xattr_room ? 2 * tar->xattr_room : 16;
        tar->xattrs = xrealloc(tar->xattrs, tar->xattr_room * sizeof(*tar->xattrs));
    }
    tar->xattrs[words->xattr_count++] = (struct tar_xattr){name, (const uint8_t *)value, size};
    return NULL;
}

static bool text_is(const char *value, size_t size) { return !memchr(value, 0, size); }

/* KEY and VALUE end with a NUL of ours each. An empty value unsets what an earlier record said. */
static const char *take_record(struct tar_reader *tar, struct pax_words *words, const char *key,
                               const char *value, size_t size) {
    static const char bad_number[] = "pax-number", bad_text[] = "pax-text";
    const struct {
        const char *key;
        bool *has;
        uint64_t *number;
    } numbers[] = {
        {"size", &words->has_size, &words->size},
        {"uid", &words->has_uid, &words->uid},
        {"gid", &words->has_gid, &words->gid},
        {"GNU.sparse.size", &words->has_sparse_size, &words->sparse_size},
        {"GNU.sparse.realsize", &words->has_sparse_size, &words->sparse_size},
        {"GNU.sparse.major", &words->has_major, &words->sparse_major},
        {"GNU.sparse.minor", &words->has_minor, &words->sparse_minor},
    };
    const struct {
        const char *key;
        const char **text;
    } texts[] = {
        {"path", &words->path},
        {"linkpath", &words->link},
        {"GNU.sparse.name", &words->sparse_name},
        {"GNU.sparse.map", &words->sparse_map},
    };
    uint64_t number;

    for (size_t i = 0; i < COUNT_OF(numbers); i++) {
        if (strcmp(key, numbers[i].key) != 0)
            continue;
        *numbers[i].has = size > 0;
        return !size || decimal(value, size, numbers[i].number) ? NULL : bad_number;
    }
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        if (strcmp(key, texts[i].key) != 0)
            continue;
        *texts[i].text = size ? value : NULL;
        return text_is(value, size) ? NULL : bad_text;
    }
    if (!strcmp(key, "mtime")) {
        words->has_mtime = size > 0;
        return !size || time_of(value, size, &words->mtime, &words->mtime_ns) ? NULL : bad_number;
    }
    if (!strcmp(key, "GNU.sparse.offset")) {
        words->has_half = true;
        return decimal(value, size, &words->half) ? NULL : bad_number;
    }
    if (!strcmp(key, "GNU.sparse.numbytes")) {
        if (!words->has_half || !decimal(value, size, &number) ||
            !tar_add_segment(tar, words->half, number))
            return "sparse";
        words->has_half = false;
        words->has_segments = true;
        return NULL;
    }
    if (!strncmp(key, XATTR, sizeof(XATTR) - 1) && key[sizeof(XATTR) - 1])
        return add_xattr(tar, words, key + sizeof(XATTR) - 1, value, size);
    return NULL;
}

const char *pax_parse(struct tar_reader *tar, struct pax_words *words) {
    char *at = (char *)tar->pax.data, *end;

    *words = (struct pax_words){0};
    tar->segment_count = 0;
    if (!tar->pax.len)
        return NULL;
    end = at + tar->pax.len;
    while (at < end) {
        char *space = memchr(at, ' ', (size_t)(end - at)), *equals, *stop;
        uint64_t length;
        const char *why;

        if (!space || !parse_decimal(at, (size_t)(space - at), (uint64_t)(end - at), &length) ||
            length <= (uint64_t)(space - at) + 1)
            return "pax";
        stop = at + length - 1;
        equals = memchr(space + 1, '=', (size_t)(stop - space - 1));
        if (*stop != '\n' || !equals || equals == space + 1 ||
            memchr(space + 1, 0, (size_t)(equals - space - 1)))
            return "pax";
        *equals = *stop = 0;
        why = take_record(tar, words, space + 1, equals + 1, (size_t)(stop - equals - 1));
        if (why)
            return why;
        at = stop + 1;
    }
    return NULL;
}
