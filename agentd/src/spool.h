/* A queue of bytes with absolute offsets: byte number `base` to byte number `end` are kept.
 *
 * Two uses. A *bounded* spool takes no more than `limit` bytes; its writer has to wait until bytes
 * are released. A *rolling* spool (a job's output) always takes more and lets go of the oldest;
 * all rolling spools together keep no more than spool_set_budget() says.
 *
 * Memory is mapped in chunks, on demand, and is not inherited by children: no process ever holds a
 * copy of another one's output. */
#ifndef AGENTD_SPOOL_H
#define AGENTD_SPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define SPOOL_CHUNK 65536u

struct spool {
    uint64_t base;
    uint64_t end;
    uint64_t limit;
    bool rolling;
    uint8_t **chunks;    /* ring of chunk_cap pointers */
    size_t chunk_first;  /* the oldest one's place in it */
    size_t chunk_count;
    size_t chunk_cap;
    uint64_t chunk_base; /* offset of the oldest chunk's first byte */
    struct spool *next;  /* rolling spools */
    struct spool *prev;
};

void spool_init(struct spool *s, uint64_t limit, bool rolling);
/* Forgets the bytes and the memory; base and end stay, as what was written stays true. */
void spool_clear(struct spool *s);

/* How much may be written now; UINT64_MAX for a rolling spool. */
uint64_t spool_room(const struct spool *s);
/* Up to WANT bytes of memory behind the end, in at most two pieces. Returns the number of pieces;
 * 0 when there is no memory. Does not look at the limit. */
int spool_reserve(struct spool *s, size_t want, struct iovec iov[2]);
/* N bytes of what was reserved have been written. */
void spool_commit(struct spool *s, size_t n);
/* Up to WANT bytes from OFFSET on, in at most two pieces; returns the number of pieces. */
int spool_peek(const struct spool *s, uint64_t offset, size_t want, struct iovec iov[2]);
/* Lets go of everything before OFFSET. */
void spool_release(struct spool *s, uint64_t offset);

void spool_set_budget(uint64_t bytes);
/* Bytes kept by all rolling spools. */
uint64_t spool_kept(void);
/* Unmaps what is held for reuse. */
void spool_trim(void);
bool spool_has_spare(void);

#endif
