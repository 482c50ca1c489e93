/* sources: netlink.c network_rules.c util.c */
/* Netlink as it is written, byte for byte. What the kernel says to it, sandboxes show. */
#include "../src/netlink.h"
#include "../src/network_rules.h"

#include <errno.h>
#include <string.h>

#include "check.h"

static void bytes(void) {
    static struct nl_batch batch;
    uint8_t head[4] = {2, 0, 0, 0};

    nl_begin(&batch, 7, NL_ACK, head, sizeof(head));
    size_t outer = nl_open(&batch, 3);

    nl_text(&batch, 1, "abcd");
    nl_be32(&batch, 2, 0x01020304);
    nl_close(&batch, outer);
    nl_end(&batch);

    static const uint8_t wanted[] = {
        44, 0, 0, 0, 7,   0, 5,   0,   1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 24, 0,
        3,  0x80, 9, 0, 1, 0, 'a', 'b', 'c', 'd', 0, 0, 0, 0, 8, 0, 2, 0, 1, 2, 3, 4,
    };
    check(batch.len == sizeof(wanted));
    check(memcmp(batch.bytes, wanted, sizeof(wanted)) == 0);
    check(batch.count == 1 && batch.wants == 1);
}

/* As many as a batch takes, each to be answered; to nobody, which is no success. */
static void many(void) {
    static struct nl_batch batch;
    uint8_t head[4] = {0};
    uint32_t failed = 9;

    for (int i = 0; i < 64; i++) {
        nl_begin(&batch, 1, NL_ACK, head, sizeof(head));
        nl_end(&batch);
    }
    check(batch.wants == UINT64_MAX && batch.len == 64 * 20);
    check(nl_exchange(-1, &batch, &failed) == -1 && errno == EBADF && failed == 0);
}

static void refused(void) {
    const char *part = NULL;

    check(rules_add(-1, &part) == -1 && errno == EBADF);
    check(part && strcmp(part, "tables") == 0);
}

int main(void) {
    bytes();
    many();
    refused();
    return report();
}
