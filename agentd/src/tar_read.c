/* See tar_read.h. */
#define _GNU_SOURCE
#include "tar_read.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "tar_pax.h"

#define BUFFER_SIZE (1u << 20)

/* Where the fields of a header are, and how long. */
enum { NAME = 0, NAME_SIZE = 100, LINK = 157, LINK_SIZE = 100, PREFIX = 345, PREFIX_SIZE = 155 };
enum { MODE = 100, UID = 108, GID = 116, SIZE = 124, MTIME = 136, CHECKSUM = 148, TYPE = 156 };
enum { SHORT_NUMBER = 8, LONG_NUMBER = 12, MAGIC = 257, STAR_MAGIC = 508, STAR_PREFIX_SIZE = 131 };
/* GNU's own sparse files: pairs of offset and size, here and in further blocks. */
enum { SPARSE = 386, SPARSE_COUNT = 4, SPARSE_MORE = 482, SPARSE_SIZE = 483 };
enum { FURTHER_COUNT = 21, FURTHER_MORE = 504 };

void tar_open(struct tar_reader *tar, int fd) {
    *tar = (struct tar_reader){.fd = fd, .buffer = xmalloc(BUFFER_SIZE)};
}

void tar_close(struct tar_reader *tar) {
    free(tar->buffer);
    free(tar->xattrs);
    free(tar->segments);
    buf_free(&tar->pax);
    buf_free(&tar->long_path);
    buf_free(&tar->long_link);
    buf_free(&tar->path);
    buf_free(&tar->link);
}

static int wrong(struct tar_reader *tar, const char *why) {
    tar->why = why;
    return -1;
}

/* Bytes that are at hand, WANT of them unless the stream ends before; -1: it can't be read. */
static ssize_t fill(struct tar_reader *tar, size_t want) {
    while (tar->end - tar->at < want) {
        ssize_t n;

        if (tar->at == tar->end)
            tar->at = tar->end = 0;
        if (BUFFER_SIZE - tar->at < want) {
            memmove(tar->buffer, tar->buffer + tar->at, tar->end - tar->at);
            tar->end -= tar->at;
            tar->at = 0;
        }
        n = read(tar->fd, tar->buffer + tar->end, BUFFER_SIZE - tar->end);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return wrong(tar, "read");
        if (n == 0)
            break;
        tar->end += (size_t)n;
    }
    return (ssize_t)(tar->end - tar->at);
}

/* 1: *BLOCK is the next 512 bytes. 0: the stream is over. */
static int take_block(struct tar_reader *tar, const uint8_t **block) {
    ssize_t there = fill(tar, TAR_BLOCK_SIZE);

    if (there <= 0)
        return (int)there;
    if (there < (ssize_t)TAR_BLOCK_SIZE)
        return wrong(tar, "truncated");
    *block = tar->buffer + tar->at;
    tar->at += TAR_BLOCK_SIZE;
    return 1;
}

static uint64_t padding_of(uint64_t size) { return -size & (TAR_BLOCK_SIZE - 1); }

static int skip(struct tar_reader *tar, uint64_t count) {
    while (count) {
        ssize_t there = fill(tar, 1);
        size_t n;

        if (there < 0)
            return -1;
        if (there == 0)
            return wrong(tar, "truncated");
        n = count < (uint64_t)there ? (size_t)count : (size_t)there;
        tar->at += n;
        count -= n;
    }
    return 0;
}

static bool is_zero(const uint8_t *bytes, size_t n) {
    return n == 0 || (bytes[0] == 0 && !memcmp(bytes, bytes + 1, n - 1));
}

/* After the archive's end there may be zeros: tar fills its last record with them. */
static int expect_zeros(struct tar_reader *tar) {
    ssize_t there;

    while ((there = fill(tar, 1)) > 0) {
        if (!is_zero(tar->buffer + tar->at, (size_t)there))
            return wrong(tar, "junk");
        tar->at = tar->end;
    }
    return (int)there;
}

bool tar_number(const uint8_t *field, size_t size, int64_t *out) {
    uint64_t value = 0;
    size_t i = 0;

    if (field[0] & 0x80) {
        uint8_t invert = field[0] & 0x40 ? 0xff : 0;

        for (; i < size; i++) {
            uint8_t byte = (uint8_t)(field[i] ^ invert);

            if (i == 0)
                byte &= 0x7f;
            if (value >> 55)
                return false;
            value = value << 8 | byte;
        }
        *out = invert ? -1 - (int64_t)value : (int64_t)value;
        return true;
    }
    while (i < size && (field[i] == ' ' || field[i] == 0))
        i++;
    for (; i < size && field[i] >= '0' && field[i] <= '7'; i++) {
        if (value >> 60)
            return false;
        value = value << 3 | (uint64_t)(field[i] - '0');
    }
    if (i < size && field[i] != ' ' && field[i] != 0)
        return false;
    *out = (int64_t)value;
    return true;
}

/* Some old programs have summed signed characters. */
static bool checksum_is_right(const uint8_t *block) {
    int64_t said, unsigned_sum = 0, signed_sum = 0;

    for (unsigned i = 0; i < TAR_BLOCK_SIZE; i++) {
        uint8_t byte = i >= CHECKSUM && i < CHECKSUM + SHORT_NUMBER ? ' ' : block[i];

        unsigned_sum += byte;
        signed_sum += (int8_t)byte;
    }
    return tar_number(block + CHECKSUM, SHORT_NUMBER, &said) &&
           (said == unsigned_sum || said == signed_sum);
}

/* A field that ends with its size or a NUL. */
static void add_field(struct buf *to, const uint8_t *field, size_t size) {
    buf_add(to, field, strnlen((const char *)field, size));
}

static void set_text(struct buf *to, const char *text) {
    to->len = 0;
    buf_add(to, text, strlen(text) + 1);
}

static void names_of(struct tar_reader *tar, const uint8_t *block) {
    tar->path.len = tar->link.len = 0;
    /* GNU has times where others have a prefix, and says "ustar  ". */
    if (!memcmp(block + MAGIC, "ustar", 6) && block[PREFIX]) {
        bool star = !memcmp(block + STAR_MAGIC, "tar", 4);

        add_field(&tar->path, block + PREFIX, star ? STAR_PREFIX_SIZE : PREFIX_SIZE);
        buf_add(&tar->path, "/", 1);
    }
    add_field(&tar->path, block + NAME, NAME_SIZE);
    buf_add(&tar->path, "", 1);
    add_field(&tar->link, block + LINK, LINK_SIZE);
    buf_add(&tar->link, "", 1);
}

/* The content of a header that is about another entry: LIMIT bytes at most, and a NUL. */
static int take_content(struct tar_reader *tar, struct buf *to, uint64_t size, uint64_t limit) {
    uint64_t left = size;

    to->len = 0;
    if (size > limit)
        return wrong(tar, "extended-size");
    while (left) {
        ssize_t there = fill(tar, 1);
        size_t n;

        if (there < 0)
            return -1;
        if (there == 0)
            return wrong(tar, "truncated");
        n = left < (uint64_t)there ? (size_t)left : (size_t)there;
        buf_add(to, tar->buffer + tar->at, n);
        tar->at += n;
        left -= n;
    }
    *buf_room(to, 1) = 0;
    return skip(tar, padding_of(size));
}

static int check_global(struct tar_reader *tar, uint64_t size) {
    struct pax_words ignored;
    struct buf own = tar->pax;
    const char *why;
    int result;

    tar->pax = (struct buf){0};
    result = take_content(tar, &tar->pax, size, TAR_MAX_EXTENDED);
    why = result < 0 ? NULL : pax_parse(tar, &ignored);
    buf_free(&tar->pax);
    tar->pax = own;
    return why ? wrong(tar, why) : result;
}

/* Pairs of a GNU header or of one of its further blocks; a pair of nothing ends them. */
static bool take_pairs(struct tar_reader *tar, const uint8_t *at, int count) {
    for (int i = 0; i < count; i++, at += 2 * LONG_NUMBER) {
        int64_t offset, size;

        if (!at[0] && !at[LONG_NUMBER])
            return true;
        if (!tar_number(at, LONG_NUMBER, &offset) ||
            !tar_number(at + LONG_NUMBER, LONG_NUMBER, &size) || offset < 0 || size < 0 ||
            !tar_add_segment(tar, (uint64_t)offset, (uint64_t)size))
            return false;
    }
    return true;
}

static int take_old_sparse(struct tar_reader *tar, const uint8_t *block, struct tar_entry *entry) {
    int64_t size;
    bool more = block[SPARSE_MORE];
    int found;

    tar->segment_count = 0;
    if (!tar_number(block + SPARSE_SIZE, LONG_NUMBER, &size) || size < 0 ||
        !take_pairs(tar, block + SPARSE, SPARSE_COUNT))
        return wrong(tar, "sparse");
    entry->size = (uint64_t)size;
    while (more) {
        found = take_block(tar, &block);
        if (found <= 0)
            return found < 0 ? -1 : wrong(tar, "truncated");
        if (!take_pairs(tar, block, FURTHER_COUNT))
            return wrong(tar, "sparse");
        more = block[FURTHER_MORE];
    }
    return 0;
}

/* Version 1.0: the data begins with the map, lines of numbers that fill whole blocks. */
static int take_new_sparse(struct tar_reader *tar, struct tar_entry *entry) {
    uint64_t value = 0, offset = 0, count = 0, numbers = 0;
    bool digits = false;

    tar->segment_count = 0;
    for (;;) {
        const uint8_t *block;
        int found;

        if (entry->stored < TAR_BLOCK_SIZE)
            return wrong(tar, "sparse");
        found = take_block(tar, &block);
        if (found <= 0)
            return found < 0 ? -1 : wrong(tar, "truncated");
        entry->stored -= TAR_BLOCK_SIZE;
        for (unsigned i = 0; i < TAR_BLOCK_SIZE; i++) {
            if (block[i] >= '0' && block[i] <= '9') {
                if (value > INT64_MAX / 10 - 1)
                    return wrong(tar, "sparse");
                value = 10 * value + (uint64_t)(block[i] - '0');
                digits = true;
                continue;
            }
            if (block[i] != '\n' || !digits)
                return wrong(tar, "sparse");
            if (numbers == 0)
                count = value;
            else if (numbers % 2)
                offset = value;
            else if (!tar_add_segment(tar, offset, value))
                return wrong(tar, "sparse");
            if (count > TAR_MAX_SEGMENTS)
                return wrong(tar, "sparse");
            if (++numbers == 2 * count + 1)
                return 0;
            value = 0;
            digits = false;
        }
    }
}

static int take_sparse(struct tar_reader *tar, const struct pax_words *words,
                       struct tar_entry *entry) {
    bool is_new = words->has_major && words->sparse_major == 1;

    if (!is_new && !words->sparse_map && !words->has_segments)
        return words->has_major && words->sparse_major ? wrong(tar, "sparse") : 0;
    if ((is_new && (words->sparse_minor || words->sparse_map || words->has_segments)) ||
        (words->sparse_map && words->has_segments) || words->has_half || !words->has_sparse_size)
        return wrong(tar, "sparse");
    entry->sparse = true;
    entry->size = words->sparse_size;
    if (words->sparse_map && !pax_read_map(tar, words->sparse_map))
        return wrong(tar, "sparse");
    return is_new ? take_new_sparse(tar, entry) : 0;
}

static bool set_type(struct tar_entry *entry, uint8_t flag, const char *path) {
    size_t len = strlen(path);

    switch (flag) {
    case '0':
    case '7':
    case 'S': entry->type = TAR_FILE; return true;
    case 0: entry->type = len && path[len - 1] == '/' ? TAR_DIRECTORY : TAR_FILE; return true;
    case '1': entry->type = TAR_HARD_LINK; return true;
    case '2': entry->type = TAR_SYMLINK; return true;
    case '3':
    case '4': entry->type = TAR_DEVICE; return true;
    case '5': entry->type = TAR_DIRECTORY; return true;
    case '6': entry->type = TAR_FIFO; return true;
    default: return false;
    }
}

/* The entry itself, with what the headers before it have said. */
static int take_entry(struct tar_reader *tar, const uint8_t *block, uint64_t size,
                      struct tar_entry *entry) {
    struct pax_words words;
    const char *why;
    uint8_t flag = block[TYPE];
    int64_t mode, uid, gid, mtime;

    names_of(tar, block);
    entry->path = (const char *)tar->path.data;
    why = pax_parse(tar, &words);
    if (why)
        return wrong(tar, why);
    if (!tar_number(block + MODE, SHORT_NUMBER, &mode) ||
        !tar_number(block + UID, SHORT_NUMBER, &uid) ||
        !tar_number(block + GID, SHORT_NUMBER, &gid) ||
        !tar_number(block + MTIME, LONG_NUMBER, &mtime))
        return wrong(tar, "number");
    if (words.path)
        set_text(&tar->path, words.path);
    if (words.sparse_name)
        set_text(&tar->path, words.sparse_name);
    if (words.link)
        set_text(&tar->link, words.link);
    if (tar->long_path.len)
        set_text(&tar->path, (const char *)tar->long_path.data);
    if (tar->long_link.len)
        set_text(&tar->link, (const char *)tar->long_link.data);
    *entry = (struct tar_entry){
        .path = (const char *)tar->path.data,
        .link = (const char *)tar->link.data,
        .size = words.has_size ? words.size : size,
        .mode = (uint32_t)mode & 07777,
        .uid = words.has_uid ? words.uid : (uint64_t)uid,
        .gid = words.has_gid ? words.gid : (uint64_t)gid,
        .mtime = words.has_mtime ? words.mtime : mtime,
        .mtime_ns = words.has_mtime ? words.mtime_ns : 0,
        .xattr_count = words.xattr_count,
    };
    if (!set_type(entry, flag, entry->path))
        return wrong(tar, "type");
    /* Whatever size they claim: those have no data, for any reader. */
    if (entry->type != TAR_FILE)
        entry->size = 0;
    entry->stored = entry->size;
    tar->padding = padding_of(entry->size);
    if (flag == 'S') {
        entry->sparse = true;
        if (take_old_sparse(tar, block, entry) < 0)
            return -1;
    } else if (entry->type == TAR_FILE && take_sparse(tar, &words, entry) < 0) {
        return -1;
    }
    if (entry->sparse && !tar_segments_fit(tar, entry->size, entry->stored))
        return wrong(tar, "sparse");
    entry->segments = tar->segments;
    entry->segment_count = entry->sparse ? tar->segment_count : 0;
    entry->xattrs = tar->xattrs;
    tar->left = entry->stored;
    return 1;
}

/* 0: the header is one for the next. 1: an entry. */
static int take_header(struct tar_reader *tar, const uint8_t *block, struct tar_entry *entry) {
    int64_t size;

    if (!checksum_is_right(block))
        return wrong(tar, "checksum");
    if (!tar_number(block + SIZE, LONG_NUMBER, &size) || size < 0)
        return wrong(tar, "number");
    switch (block[TYPE]) {
    case 'x': return take_content(tar, &tar->pax, (uint64_t)size, TAR_MAX_EXTENDED);
    case 'g': return check_global(tar, (uint64_t)size);
    case 'L': return take_content(tar, &tar->long_path, (uint64_t)size, TAR_MAX_LONG);
    case 'K': return take_content(tar, &tar->long_link, (uint64_t)size, TAR_MAX_LONG);
    default: return take_entry(tar, block, (uint64_t)size, entry);
    }
}

int tar_next(struct tar_reader *tar, struct tar_entry *entry) {
    const uint8_t *block;
    int found;

    *entry = (struct tar_entry){.path = "", .link = ""};
    if (skip(tar, tar->left) < 0 || skip(tar, tar->padding) < 0)
        return -1;
    tar->left = tar->padding = 0;
    tar->pax.len = tar->long_path.len = tar->long_link.len = 0;
    for (bool first = true;; first = false) {
        found = take_block(tar, &block);
        if (found < 0)
            return -1;
        if (found == 0)
            return first ? 0 : wrong(tar, "truncated");
        if (is_zero(block, TAR_BLOCK_SIZE))
            break;
        tar->headers++;
        found = take_header(tar, block, entry);
        if (found)
            return found;
    }
    found = take_block(tar, &block);
    if (found < 0)
        return -1;
    if (found && !is_zero(block, TAR_BLOCK_SIZE))
        return wrong(tar, "block");
    tar->ended = found;
    return expect_zeros(tar);
}

ssize_t tar_data(struct tar_reader *tar, const uint8_t **bytes) {
    ssize_t there;
    size_t n;

    if (!tar->left)
        return 0;
    there = fill(tar, 1);
    if (there < 0)
        return -1;
    if (there == 0)
        return wrong(tar, "truncated");
    n = tar->left < (uint64_t)there ? (size_t)tar->left : (size_t)there;
    *bytes = tar->buffer + tar->at;
    tar->at += n;
    tar->left -= n;
    return (ssize_t)n;
}
