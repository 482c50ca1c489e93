/* See netlink.h. */
#define _GNU_SOURCE
#include "netlink.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util.h"

#define FAMILY 16 /* AF_NETLINK */
#define ALIGN(n) (((n) + 3) & ~(size_t)3)
#define NESTED 0x8000
#define TYPE_ERROR 2 /* an acknowledgement is an error of the number 0 */

struct header {
    uint32_t len;
    uint16_t type, flags;
    uint32_t number, port;
};
struct attribute {
    uint16_t len, type;
};
struct address {
    uint16_t family, pad;
    uint32_t port, groups;
};
struct answer {
    struct header header;
    int32_t error;
    struct header asked;
};

/* What we say is made of constants: a batch that does not fit is a mistake of this program. */
static uint8_t *room(struct nl_batch *batch, size_t size) {
    if (ALIGN(size) > sizeof batch->bytes - batch->len) die_plain("a netlink batch is too long");
    uint8_t *at = batch->bytes + batch->len;
    memset(at, 0, ALIGN(size));
    batch->len += ALIGN(size);
    return at;
}

void nl_begin(struct nl_batch *batch, uint16_t type, uint16_t flags, const void *head, size_t size) {
    if (++batch->count > 64) die_plain("too many netlink messages");
    if (flags & NL_ACK) batch->wants |= UINT64_C(1) << (batch->count - 1);
    batch->message = batch->len;
    struct header header = {.type = type, .flags = flags | NL_REQUEST, .number = batch->count};
    memcpy(room(batch, sizeof header), &header, sizeof header);
    memcpy(room(batch, size), head, size);
}

void nl_end(struct nl_batch *batch) {
    uint32_t len = (uint32_t)(batch->len - batch->message);
    memcpy(batch->bytes + batch->message, &len, sizeof len);
}

void nl_bytes(struct nl_batch *batch, uint16_t type, const void *bytes, size_t size) {
    struct attribute head = {.len = (uint16_t)(sizeof head + size), .type = type};
    uint8_t *at = room(batch, sizeof head + size);
    memcpy(at, &head, sizeof head);
    if (size) memcpy(at + sizeof head, bytes, size);
}

void nl_text(struct nl_batch *batch, uint16_t type, const char *text) {
    nl_bytes(batch, type, text, strlen(text) + 1);
}

void nl_be32(struct nl_batch *batch, uint16_t type, uint32_t value) {
    value = htonl(value);
    nl_bytes(batch, type, &value, sizeof value);
}

void nl_be64(struct nl_batch *batch, uint16_t type, uint64_t value) {
    uint32_t halves[2] = {htonl((uint32_t)(value >> 32)), htonl((uint32_t)value)};
    nl_bytes(batch, type, halves, sizeof halves);
}

size_t nl_open(struct nl_batch *batch, uint16_t type) {
    size_t at = batch->len;
    nl_bytes(batch, type | NESTED, NULL, 0);
    return at;
}

void nl_close(struct nl_batch *batch, size_t opened) {
    uint16_t len = (uint16_t)(batch->len - opened);
    memcpy(batch->bytes + opened, &len, sizeof len);
}

int nl_socket(int protocol) { return socket(FAMILY, SOCK_RAW | SOCK_CLOEXEC, protocol); }

/* Takes the answers of one datagram off MISSING. */
static int read_answers(const uint8_t *at, size_t left, uint64_t *missing, uint32_t *failed) {
    struct answer answer;
    for (; left >= sizeof answer.header; at += ALIGN(answer.header.len), left -= ALIGN(answer.header.len)) {
        memcpy(&answer.header, at, sizeof answer.header);
        if (answer.header.len < sizeof answer.header || ALIGN(answer.header.len) > left) break;
        if (answer.header.type != TYPE_ERROR || answer.header.len < sizeof answer) break;
        memcpy(&answer, at, sizeof answer);
        if (answer.error) {
            *failed = answer.asked.number;
            errno = -answer.error;
            return -1;
        }
        if (answer.asked.number - 1 < 64) *missing &= ~(UINT64_C(1) << (answer.asked.number - 1));
    }
    if (!left) return 0;
    errno = EPROTO;
    return -1;
}

int nl_exchange(int fd, const struct nl_batch *batch, uint32_t *failed) {
    struct address kernel = {.family = FAMILY};
    uint64_t missing = batch->wants;
    uint8_t answers[8192];
    *failed = 0;
    if (sendto(fd, batch->bytes, batch->len, 0, (struct sockaddr *)&kernel, sizeof kernel) < 0) return -1;
    while (missing) {
        ssize_t n = recv(fd, answers, sizeof answers, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            if (errno == EAGAIN) errno = EPROTO; /* one was not answered: nobody knows what holds */
            return -1;
        }
        if (read_answers(answers, (size_t)n, &missing, failed) < 0) return -1;
    }
    return 0;
}
