/* Small things every module needs. */
#ifndef AGENTD_UTIL_H
#define AGENTD_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#define CONTAINER_OF(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Writes "agentd: WHAT: strerror(errno)" to descriptor 2 and exits with status 70. In PID 1 that
 * ends the sandbox, so it is only for faults that leave nothing to go on with. */
__attribute__((noreturn)) void die(const char *what);
/* The same without errno. */
__attribute__((noreturn)) void die_plain(const char *what);

/* Allocators that never return NULL. */
void *xmalloc(size_t size);
void *xcalloc(size_t count, size_t size);
void *xrealloc(void *old, size_t size);
/* LEN bytes and a NUL after them. */
char *xmemdup_text(const void *bytes, size_t len);

static inline void cleanup_free_p(void *p) { free(*(void **)p); }
static inline void cleanup_close_p(const int *fd) {
    if (*fd >= 0)
        close(*fd);
}
#define CLEANUP_FREE __attribute__((cleanup(cleanup_free_p)))
#define CLEANUP_CLOSE __attribute__((cleanup(cleanup_close_p)))

/* A growing byte buffer. All zero is an empty one. */
struct buf {
    uint8_t *data;
    size_t len;
    size_t cap;
};
/* Makes room for MORE bytes and returns where they go; the caller adds to len. */
uint8_t *buf_room(struct buf *b, size_t more);
void buf_add(struct buf *b, const void *bytes, size_t n);
/* Drops the first N bytes; frees the memory when nothing is left. */
void buf_drop(struct buf *b, size_t n);
void buf_free(struct buf *b);
#define CLEANUP_BUF __attribute__((cleanup(buf_free)))

static inline uint32_t get_le32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static inline void put_le32(uint8_t *p, uint32_t v) {
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
    p[2] = (uint8_t)(v >> 16);
    p[3] = (uint8_t)(v >> 24);
}

/* Milliseconds of CLOCK_MONOTONIC. */
int64_t now_ms(void);

/* The name of an errno value, "ENOENT"; "EIO" for one without a name here. */
const char *errno_name(int err);

/* Strict decimal: digits only, no sign, no space, at most MAX. */
bool parse_decimal(const char *text, size_t len, uint64_t max, uint64_t *out);

/* Zeroes memory in a way that the compiler keeps. */
void wipe(void *p, size_t n);

/* Anonymous memory that children of fork do not get. NULL when there is none. */
void *map_private(size_t size);

int set_nonblocking(int fd);
/* Writes everything, also to a descriptor that takes it in parts; -1 and errno on failure. */
int write_all(int fd, const void *bytes, size_t n);
/* Closes every descriptor from FIRST on. */
void close_from(int first);

#endif
