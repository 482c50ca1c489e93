/* See tar_write.h. */
#define _GNU_SOURCE
#include "tar_write.h"

#include <stdio.h>
#include <string.h>

#define BUFFER_SIZE (1u << 20)
#define LARGEST_SIZE INT64_C(077777777777)
#define LARGEST_ID UINT64_C(07777777)

enum { NAME_SIZE = 100 };

void tar_writer_open(struct tar_writer *tar, int fd) {
    *tar = (struct tar_writer){.fd = fd, .buffer = xmalloc(BUFFER_SIZE)};
}

static int flush(struct tar_writer *tar) {
    size_t n = tar->len;

    tar->len = 0;
    return write_all(tar->fd, tar->buffer, n);
}

uint8_t *tar_room(struct tar_writer *tar, size_t *room) {
    *room = BUFFER_SIZE - tar->len;
    return tar->buffer + tar->len;
}

int tar_advance(struct tar_writer *tar, size_t n) {
    tar->len += n;
    return tar->len == BUFFER_SIZE ? flush(tar) : 0;
}

int tar_put(struct tar_writer *tar, const void *bytes, size_t n) {
    const uint8_t *at = bytes;

    while (n) {
        size_t room;
        uint8_t *to = tar_room(tar, &room);
        size_t part = n < room ? n : room;

        memcpy(to, at, part);
        if (tar_advance(tar, part) < 0)
            return -1;
        at += part;
        n -= part;
    }
    return 0;
}

int tar_pad(struct tar_writer *tar, uint64_t size) {
    static const uint8_t zeros[TAR_BLOCK_SIZE];

    return tar_put(tar, zeros, (size_t)(-size & (TAR_BLOCK_SIZE - 1)));
}

int tar_finish(struct tar_writer *tar) {
    static const uint8_t zeros[2 * TAR_BLOCK_SIZE];

    return tar_put(tar, zeros, sizeof(zeros)) < 0 ? -1 : flush(tar);
}

/* "LENGTH KEY=VALUE\n", where the length counts its own digits. */
static void add_record(struct buf *pax, const char *key, const void *value, size_t size) {
    size_t rest = strlen(key) + size + 3, length = rest + 1;
    char head[32];

    for (size_t digits = 1, limit = 10;; digits++, limit *= 10) {
        length = rest + digits;
        if (length < limit)
            break;
    }
    buf_add(pax, head, (size_t)snprintf(head, sizeof head, "%zu ", length));
    buf_add(pax, key, strlen(key));
    buf_add(pax, "=", 1);
    buf_add(pax, value, size);
    buf_add(pax, "\n", 1);
}

static void add_number(struct buf *pax, const char *key, int64_t value) {
    char text[32];

    add_record(pax, key, text, (size_t)snprintf(text, sizeof text, "%lld", (long long)value));
}

static void add_xattrs(struct buf *pax, const struct tar_entry *e) {
    for (size_t i = 0; i < e->xattr_count; i++) {
        CLEANUP_BUF struct buf key = {0};

        buf_add(&key, "SCHILY.xattr.", 13);
        buf_add(&key, e->xattrs[i].name, strlen(e->xattrs[i].name) + 1);
        add_record(pax, (const char *)key.data, e->xattrs[i].value, e->xattrs[i].size);
    }
}

/* What does not fit into the header, in the order of the keys' bytes. */
static void describe(struct buf *pax, const struct tar_entry *e) {
    pax->len = 0;
    add_xattrs(pax, e);
    if (e->gid > LARGEST_ID)
        add_number(pax, "gid", (int64_t)e->gid);
    if (strlen(e->link) > NAME_SIZE)
        add_record(pax, "linkpath", e->link, strlen(e->link));
    if (e->mtime < 0 || e->mtime > LARGEST_SIZE)
        add_number(pax, "mtime", e->mtime);
    if (strlen(e->path) > NAME_SIZE)
        add_record(pax, "path", e->path, strlen(e->path));
    if (e->size > (uint64_t)LARGEST_SIZE)
        add_number(pax, "size", (int64_t)e->size);
    if (e->uid > LARGEST_ID)
        add_number(pax, "uid", (int64_t)e->uid);
}

static void octal(uint8_t *field, int size, uint64_t value) {
    char text[32];

    snprintf(text, sizeof text, "%0*llo", size - 1, (unsigned long long)value);
    memcpy(field, text, (size_t)size);
}

static void copy_text(uint8_t *field, size_t size, const char *text) {
    size_t n = strlen(text);

    memcpy(field, text, n < size ? n : size);
}

static int put_header(struct tar_writer *tar, const struct tar_entry *e, char flag, uint64_t size) {
    uint8_t block[TAR_BLOCK_SIZE] = {0};
    uint64_t sum = 0;

    copy_text(block, NAME_SIZE, e->path);
    octal(block + 100, 8, e->mode & 07777);
    octal(block + 108, 8, e->uid > LARGEST_ID ? 0 : e->uid);
    octal(block + 116, 8, e->gid > LARGEST_ID ? 0 : e->gid);
    octal(block + 124, 12, size > (uint64_t)LARGEST_SIZE ? 0 : size);
    octal(block + 136, 12, e->mtime < 0 || e->mtime > LARGEST_SIZE ? 0 : (uint64_t)e->mtime);
    memset(block + 148, ' ', 8);
    block[156] = (uint8_t)flag;
    copy_text(block + 157, NAME_SIZE, e->link);
    memcpy(block + 257, "ustar\00000", 8);
    for (size_t i = 0; i < sizeof block; i++) sum += block[i];
    octal(block + 148, 7, sum);
    return tar_put(tar, block, sizeof block);
}

static int put_extended(struct tar_writer *tar) {
    const struct tar_entry head = {.path = "PaxHeaders.0/entry", .link = "", .mode = 0644};

    if (put_header(tar, &head, 'x', tar->pax.len) < 0 || tar_put(tar, tar->pax.data, tar->pax.len) < 0)
        return -1;
    return tar_pad(tar, tar->pax.len);
}

int tar_put_entry(struct tar_writer *tar, const struct tar_entry *e) {
    static const char flags[] = {
        [TAR_FILE] = '0', [TAR_HARD_LINK] = '1', [TAR_SYMLINK] = '2',
        [TAR_DEVICE] = '3', [TAR_DIRECTORY] = '5', [TAR_FIFO] = '6',
    };

    describe(&tar->pax, e);
    if (tar->pax.len && put_extended(tar) < 0)
        return -1;
    return put_header(tar, e, flags[e->type], e->size);
}
