/* Messages to the kernel's network, written by hand: no library, no program of the system.
 *
 * A batch is filled message by message, sent as one datagram, and every message that wants an answer
 * has to get a good one: half of what was asked for is a failure.
 */
#ifndef AGENTD_NETLINK_H
#define AGENTD_NETLINK_H

#include <stddef.h>
#include <stdint.h>

/* linux/netlink.h, linux/rtnetlink.h, linux/netfilter/nfnetlink.h: ABI, for libcs without them. */
enum {
    NL_ROUTE = 0,
    NL_NETFILTER = 12,
};
enum {
    NL_REQUEST = 1,
    NL_ACK = 4,
    NL_EXCLUSIVE = 0x200,
    NL_CREATE = 0x400,
    NL_APPEND = 0x800,
};

struct nl_batch {
    uint8_t bytes[12288];
    size_t len;
    size_t message; /* where the one under way begins */
    uint32_t count; /* messages so far, which is the last one's number too */
    uint64_t wants; /* bit N: message number N + 1 is to be answered */
};

/* Begins a message whose fixed part is HEAD. */
void nl_begin(struct nl_batch *batch, uint16_t type, uint16_t flags, const void *head, size_t size);
void nl_end(struct nl_batch *batch);

void nl_bytes(struct nl_batch *batch, uint16_t type, const void *bytes, size_t size);
void nl_text(struct nl_batch *batch, uint16_t type, const char *text);
/* A number in network byte order, as netfilter has all of its numbers. */
void nl_be32(struct nl_batch *batch, uint16_t type, uint32_t value);
void nl_be64(struct nl_batch *batch, uint16_t type, uint64_t value);
/* An attribute that holds others, from here to nl_close. */
size_t nl_open(struct nl_batch *batch, uint16_t type);
void nl_close(struct nl_batch *batch, size_t opened);

int nl_socket(int protocol);
/* Sends the batch and reads the answers, which the kernel has given by the time that sending returns.
 * 0, or -1 and errno, with the number of the message that failed in *FAILED (0: none of them). */
int nl_exchange(int fd, const struct nl_batch *batch, uint32_t *failed);

#endif
