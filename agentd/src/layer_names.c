/* See layer_names.h. */
#define _GNU_SOURCE
#include "layer_names.h"

#include <string.h>

static bool starts_with(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool part_is(const char *part, size_t len, const char *text) {
    return len == strlen(text) && !memcmp(part, text, len);
}

static bool normalize(const char *name, char *path, const char **why) {
    size_t at = 0;

    if (!*name) {
        *why = "empty-name";
        return false;
    }
    while (*name) {
        size_t len = strcspn(name, "/");

        if (part_is(name, len, "..")) {
            *why = "dotdot";
            return false;
        }
        if (len > LAYER_MAX_NAME || len + 1 > LAYER_MAX_PATH - at) {
            *why = "long-path";
            return false;
        }
        if (len && !part_is(name, len, ".")) {
            if (at)
                path[at++] = '/';
            memcpy(path + at, name, len);
            at += len;
        }
        name += len;
        name += strspn(name, "/");
    }
    path[at] = 0;
    return true;
}

const char *layer_base(const char *path) {
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* Drops the last part; nothing is left of a path of one part. */
static void to_parent(char *path) {
    char *base = (char *)layer_base(path);

    if (base > path)
        base--;
    *base = 0;
}

static enum layer_name whiteout(char *path, const char **why) {
    char *base = (char *)layer_base(path), *hidden = base + strlen(LAYER_WHITEOUT);

    if (!*hidden || !strcmp(hidden, ".") || !strcmp(hidden, "..")) {
        *why = "whiteout";
        return LAYER_REFUSED;
    }
    memmove(base, hidden, strlen(hidden) + 1);
    return LAYER_REMOVAL;
}

enum layer_name layer_name(const char *name, char *path, const char **why) {
    if (!normalize(name, path, why))
        return LAYER_REFUSED;
    if (!*path)
        return LAYER_ROOT;
    for (const char *part = path; part; part = strchr(part, '/')) {
        bool last;

        part += *part == '/';
        last = !strchr(part, '/');
        if (!starts_with(part, LAYER_WHITEOUT))
            continue;
        if (last && !strcmp(part, LAYER_OPAQUE)) {
            to_parent(path);
            return LAYER_EMPTYING;
        }
        if (starts_with(part, LAYER_WHITEOUT LAYER_WHITEOUT))
            return LAYER_IGNORED;
        if (last)
            return whiteout(path, why);
        *why = "whiteout";
        return LAYER_REFUSED;
    }
    return LAYER_PLAIN;
}

bool layer_link_name(const char *name, char *path, const char **why) {
    if (!normalize(name, path, why))
        return false;
    if (!*path)
        *why = "empty-name";
    return *path != 0;
}

void layer_clean(const char *name, char *out, size_t room) {
    size_t at = 0;

    for (; *name && at + 4 < room; name++) {
        unsigned char byte = (unsigned char)*name;

        out[at++] = byte < 0x20 || byte == 0x7f ? '?' : *name;
    }
    if (*name) {
        memcpy(out + at, "...", 3);
        at += 3;
    }
    out[at] = 0;
}
