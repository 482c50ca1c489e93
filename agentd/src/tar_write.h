/* Writing a tar archive to a stream: ustar, with PAX records where a value does not fit. What is written
 * depends on the entries alone: no names of users, no time of day, records in one order. */
#ifndef AGENTD_TAR_WRITE_H
#define AGENTD_TAR_WRITE_H

#include <stddef.h>
#include <stdint.h>

#include "tar_read.h"

struct tar_writer {
    int fd;
    uint8_t *buffer;
    size_t len;
    struct buf pax;
};

void tar_writer_open(struct tar_writer *tar, int fd);

/* All return 0, or -1 and errno. */

/* The head of ENTRY; the data of a file follows, exactly as much as it says. Attributes are in the order
 * in which they shall stand. */
int tar_put_entry(struct tar_writer *tar, const struct tar_entry *entry);
int tar_put(struct tar_writer *tar, const void *bytes, size_t n);
/* Where data can be put that tar_advance then adds. */
uint8_t *tar_room(struct tar_writer *tar, size_t *room);
int tar_advance(struct tar_writer *tar, size_t n);
/* After SIZE bytes of data: the rest of their last block. */
int tar_pad(struct tar_writer *tar, uint64_t size);
/* The archive's end, and all that is still in memory. */
int tar_finish(struct tar_writer *tar);

#endif
