#define _GNU_SOURCE
#include "util.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "sys.h"

static void complain(const char *what, const char *why) {
    char line[256];
    size_t n = 0;
    const char *parts[] = {"agentd: ", what, why ? ": " : "", why ? why : "", "\n"};

    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        size_t len = strlen(parts[i]);

        if (len > sizeof(line) - n)
            len = sizeof(line) - n;
        memcpy(line + n, parts[i], len);
        n += len;
    }
    (void)!write(2, line, n);
}

void die(const char *what) {
    complain(what, strerror(errno));
    _exit(70);
}

void die_plain(const char *what) {
    complain(what, NULL);
    _exit(70);
}

void *xmalloc(size_t size) {
    void *p = malloc(size ? size : 1);

    if (!p)
        die("malloc");
    return p;
}

void *xcalloc(size_t count, size_t size) {
    void *p = calloc(count ? count : 1, size ? size : 1);

    if (!p)
        die("calloc");
    return p;
}

void *xrealloc(void *old, size_t size) {
    void *p = realloc(old, size ? size : 1);

    if (!p)
        die("realloc");
    return p;
}

char *xmemdup_text(const void *bytes, size_t len) {
    char *copy = xmalloc(len + 1);

    if (len)
        memcpy(copy, bytes, len);
    copy[len] = '\0';
    return copy;
}

uint8_t *buf_room(struct buf *b, size_t more) {
    if (b->cap - b->len < more) {
        size_t cap = b->cap ? b->cap : 256;

        while (cap - b->len < more)
            cap *= 2;
        b->data = xrealloc(b->data, cap);
        b->cap = cap;
    }
    return b->data + b->len;
}

void buf_add(struct buf *b, const void *bytes, size_t n) {
    if (!n)
        return;
    memcpy(buf_room(b, n), bytes, n);
    b->len += n;
}

void buf_drop(struct buf *b, size_t n) {
    if (n >= b->len) {
        buf_free(b);
        return;
    }
    memmove(b->data, b->data + n, b->len - n);
    b->len -= n;
}

void buf_free(struct buf *b) {
    free(b->data);
    *b = (struct buf){0};
}

int64_t now_ms(void) {
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

#define NAME(e) {e, #e}
static const struct {
    int err;
    const char *name;
} errno_names[] = {
    NAME(EPERM), NAME(ENOENT), NAME(ESRCH), NAME(EINTR), NAME(EIO), NAME(ENXIO), NAME(E2BIG),
    NAME(ENOEXEC), NAME(EBADF), NAME(ECHILD), NAME(EAGAIN), NAME(ENOMEM), NAME(EACCES),
    NAME(EFAULT), NAME(ENOTBLK), NAME(EBUSY), NAME(EEXIST), NAME(EXDEV), NAME(ENODEV),
    NAME(ENOTDIR), NAME(EISDIR), NAME(EINVAL), NAME(ENFILE), NAME(EMFILE), NAME(ENOTTY),
    NAME(ETXTBSY), NAME(EFBIG), NAME(ENOSPC), NAME(ESPIPE), NAME(EROFS), NAME(EMLINK),
    NAME(EPIPE), NAME(ERANGE), NAME(EDEADLK), NAME(ENAMETOOLONG), NAME(ENOLCK), NAME(ENOSYS),
    NAME(ENOTEMPTY), NAME(ELOOP), NAME(ENODATA), NAME(ETIME), NAME(EPROTO), NAME(EOVERFLOW),
    NAME(EILSEQ), NAME(EUSERS), NAME(ENOTSOCK), NAME(EOPNOTSUPP), NAME(EAFNOSUPPORT),
    NAME(EADDRINUSE), NAME(EADDRNOTAVAIL), NAME(ENETDOWN), NAME(ENETUNREACH), NAME(ENETRESET),
    NAME(ECONNABORTED), NAME(ECONNRESET), NAME(ENOBUFS), NAME(EISCONN), NAME(ENOTCONN),
    NAME(ETIMEDOUT), NAME(ECONNREFUSED), NAME(EHOSTDOWN), NAME(EHOSTUNREACH), NAME(EALREADY),
    NAME(EINPROGRESS), NAME(ESTALE), NAME(EDQUOT), NAME(ECANCELED), NAME(ENOKEY), NAME(ELIBBAD),
    NAME(EPROTONOSUPPORT), NAME(EPROTOTYPE), NAME(EMSGSIZE), NAME(ENOMEDIUM),
};
#undef NAME

const char *errno_name(int err) {
    for (size_t i = 0; i < COUNT_OF(errno_names); i++) {
        if (errno_names[i].err == err)
            return errno_names[i].name;
    }
    return "EIO";
}

bool parse_decimal(const char *text, size_t len, uint64_t max, uint64_t *out) {
    uint64_t value = 0;

    if (len == 0 || len > 20)
        return false;
    for (size_t i = 0; i < len; i++) {
        uint64_t digit = (uint64_t)(unsigned char)text[i] - '0';

        if (digit > 9 || digit > max || value > (max - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *out = value;
    return true;
}

void wipe(void *p, size_t n) {
    memset(p, 0, n);
    __asm__ __volatile__("" : : "r"(p) : "memory");
}

void *map_private(size_t size) {
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        return NULL;
    (void)madvise(p, size, MADV_DONTFORK);
    return p;
}

int set_nonblocking(int fd) {
    int flags = fcntl(fd, F_GETFL);

    return flags < 0 ? -1 : fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

int write_all(int fd, const void *bytes, size_t n) {
    const uint8_t *p = bytes;

    while (n) {
        ssize_t done = write(fd, p, n);

        if (done < 0) {
            if (errno == EINTR)
                continue;
            return -1;
        }
        p += done;
        n -= (size_t)done;
    }
    return 0;
}

void close_from(int first) {
    struct rlimit limit;
    rlim_t end = 65536;

    if (syscall(SYS_close_range, (unsigned)first, ~0U, 0) == 0)
        return;
    /* Kernels before 5.9. The limit may have been lowered under open descriptors, so it is only
     * trusted upwards. */
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur > end &&
        limit.rlim_cur < 1048576)
        end = limit.rlim_cur;
    for (int fd = first; fd < (int)end; fd++)
        close(fd);
}
