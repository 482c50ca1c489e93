/* sources: spool.c util.c */
/* Spools against what they say of themselves: byte number N always reads as what N stands for. */
#include "../src/spool.h"
#include "../src/util.h"

#define SPOOLS 3

static uint8_t byte_at(size_t which, uint64_t offset) {
    return (uint8_t)(offset * 2654435761u >> 13 ^ which * 85);
}

static size_t total(const struct iovec *iov, int pieces) {
    size_t n = 0;

    promise(pieces >= 0 && pieces <= 2);
    for (int i = 0; i < pieces; i++)
        n += iov[i].iov_len;
    return n;
}

static void put(struct spool *s, size_t which, size_t want) {
    struct iovec iov[2];
    int pieces = spool_reserve(s, want, iov);
    uint64_t at = s->end;

    promise(want == 0 || pieces > 0);
    promise(total(iov, pieces) <= want);
    for (int i = 0; i < pieces; i++) {
        for (size_t k = 0; k < iov[i].iov_len; k++)
            ((uint8_t *)iov[i].iov_base)[k] = byte_at(which, at++);
    }
    spool_commit(s, total(iov, pieces));
    promise(s->end == at);
}

static void get(const struct spool *s, size_t which, uint64_t offset, size_t want) {
    struct iovec iov[2];
    int pieces = spool_peek(s, offset, want, iov);

    if (offset >= s->base && offset < s->end && want)
        promise(total(iov, pieces) > 0);
    promise(total(iov, pieces) <= want);
    for (int i = 0; i < pieces; i++) {
        for (size_t k = 0; k < iov[i].iov_len; k++)
            promise(((const uint8_t *)iov[i].iov_base)[k] == byte_at(which, offset++));
    }
    promise(offset <= s->end || pieces == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct taker t = {data, data + size};
    struct spool spools[SPOOLS];
    uint64_t budget = take_number(&t, 3);

    spool_set_budget(budget);
    for (size_t i = 0; i < SPOOLS; i++)
        spool_init(&spools[i], take_number(&t, 3), i > 0);
    for (int steps = 0; steps < 60 && !taker_empty(&t); steps++) {
        uint8_t step = take_byte(&t);
        size_t which = step / 8 % SPOOLS;
        struct spool *s = &spools[which];
        size_t n = take_number(&t, 3) % 200000;

        if (step % 8 < 3) {
            uint64_t room = spool_room(s);

            put(s, which, n < room ? n : (size_t)room);
        } else if (step % 8 < 5) {
            get(s, which, s->base + n, 70000);
        } else if (step % 8 == 5) {
            spool_release(s, s->base + n);
        } else if (step % 8 == 6) {
            spool_trim();
        } else {
            uint64_t limit = s->limit;

            spool_clear(s);
            spool_init(s, limit, which > 0);
        }
        for (size_t i = 0; i < SPOOLS; i++) {
            promise(spools[i].base <= spools[i].end);
            promise(spools[i].end - spools[i].base <= spools[i].limit);
        }
        promise(spool_kept() <= budget);
    }
    for (size_t i = 0; i < SPOOLS; i++)
        spool_clear(&spools[i]);
    spool_trim();
    promise(spool_kept() == 0 && world_allocations() == 0);
    return 0;
}
