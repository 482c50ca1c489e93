/* Reading a tar archive from a stream: ustar, v7, GNU and PAX, with all their sparse files.
 *
 * An archive comes from anybody. So every number is bounded before it is used, what an entry says of
 * itself takes a bounded amount of memory, and nothing is believed twice: where two readers could take
 * the same bytes for other files, this one refuses, or does as Go's archive/tar does, by which the
 * tools that make images are written. Global PAX headers are checked and, as there, not applied.
 *
 *     struct tar_reader tar;
 *     tar_open(&tar, fd);
 *     while ((found = tar_next(&tar, &entry)) > 0)   // 0: the end; -1: tar.why says what is wrong
 *         while ((n = tar_data(&tar, &bytes)) > 0) … // what the entry's file holds, in pieces
 */
#ifndef AGENTD_TAR_READ_H
#define AGENTD_TAR_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "util.h"

#define TAR_BLOCK_SIZE 512u
#define TAR_MAX_EXTENDED (1u << 20) /* bytes of a PAX header */
#define TAR_MAX_LONG (1u << 16)     /* bytes of a GNU long name */
#define TAR_MAX_SEGMENTS (1u << 20) /* of a sparse file */

enum tar_type { TAR_FILE, TAR_HARD_LINK, TAR_SYMLINK, TAR_DEVICE, TAR_DIRECTORY, TAR_FIFO };

struct tar_xattr {
    const char *name;
    const uint8_t *value;
    size_t size;
};

/* Data of a sparse file: SIZE bytes that stand at OFFSET. */
struct tar_segment {
    uint64_t offset, size;
};

struct tar_entry {
    enum tar_type type;
    const char *path; /* as it stands in the archive; valid until the next entry, as is all below */
    const char *link;
    uint64_t size;   /* of the file that it makes */
    uint64_t stored; /* of its data in the archive: the same, unless it is sparse */
    bool sparse;
    const struct tar_segment *segments; /* rising, without overlaps, `stored` bytes together */
    size_t segment_count;
    uint32_t mode;
    uint64_t uid, gid;
    int64_t mtime;
    uint32_t mtime_ns;
    const struct tar_xattr *xattrs;
    size_t xattr_count;
};

struct tar_reader {
    int fd;
    const char *why; /* one word, for tar_next that returned -1 */
    uint8_t *buffer;
    size_t at, end;
    uint64_t left, padding; /* of the current entry's data */
    uint64_t headers;
    bool ended;             /* by the two blocks of zeros, not just by the end of the stream */
    /* Of the current entry. */
    struct buf pax, long_path, long_link, path, link;
    struct tar_xattr *xattrs;
    size_t xattr_room;
    struct tar_segment *segments;
    size_t segment_count, segment_room;
};

void tar_open(struct tar_reader *tar, int fd);
void tar_close(struct tar_reader *tar);

/* 1: an entry. 0: the archive is over, and nothing but zeros was after its end. -1: see `why`; what is
 * known of the entry's name is in ENTRY->path. What was not read of the entry before is skipped. */
int tar_next(struct tar_reader *tar, struct tar_entry *entry);

/* The next piece of the entry's data, in the reader's own memory; 0: there is no more; -1: see `why`. */
ssize_t tar_data(struct tar_reader *tar, const uint8_t **bytes);

/* A number of a header: octal, or binary where its first bit says so. */
bool tar_number(const uint8_t *field, size_t size, int64_t *out);

#endif
