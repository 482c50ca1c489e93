/* sources: spool.c util.c */
#include "../src/spool.h"

#include "../src/util.h"
#include "check.h"

/* Byte number N of every spool here. */
static uint8_t byte_at(uint64_t n) { return (uint8_t)(n * 37 >> 2 ^ n >> 11); }

static void write_to(struct spool *s, size_t n) {
    while (n) {
        struct iovec iov[2];
        int pieces = spool_reserve(s, n, iov);
        size_t total = 0;

        require(pieces >= 1 && pieces <= 2);
        for (int i = 0; i < pieces; i++) {
            for (size_t j = 0; j < iov[i].iov_len; j++)
                ((uint8_t *)iov[i].iov_base)[j] = byte_at(s->end + total + j);
            total += iov[i].iov_len;
        }
        require(total > 0 && total <= n);
        spool_commit(s, total);
        n -= total;
    }
}

/* Everything that is kept is what was written, from any offset. */
static bool holds(const struct spool *s, uint64_t from) {
    while (from < s->end) {
        struct iovec iov[2];
        int pieces = spool_peek(s, from, SIZE_MAX, iov);

        if (pieces < 1)
            return false;
        for (int i = 0; i < pieces; i++) {
            for (size_t j = 0; j < iov[i].iov_len; j++) {
                if (((uint8_t *)iov[i].iov_base)[j] != byte_at(from + j))
                    return false;
            }
            from += iov[i].iov_len;
        }
    }
    return from == s->end;
}

static void bounded(void) {
    struct spool s;
    struct iovec iov[2];

    spool_init(&s, 200000, false);
    check(spool_room(&s) == 200000);
    check(spool_peek(&s, 0, 10, iov) == 0);
    write_to(&s, 150000);
    check(spool_room(&s) == 50000 && holds(&s, 0) && holds(&s, 149999));
    check(spool_peek(&s, 150000, 1, iov) == 0);
    spool_release(&s, 70001);
    check(s.base == 70001 && spool_room(&s) == 120001 && holds(&s, 70001));
    check(spool_peek(&s, 70000, 1, iov) == 0);
    spool_release(&s, 1000);
    check(s.base == 70001);
    write_to(&s, 120001);
    check(spool_room(&s) == 0 && holds(&s, s.base));
    spool_release(&s, UINT64_MAX);
    check(s.base == s.end && s.end == 270001 && s.chunk_count == 0 && spool_room(&s) == 200000);
    write_to(&s, 5);
    check(holds(&s, 270001) && s.chunk_count == 1);
    spool_clear(&s);
    check(s.chunk_count == 0 && s.end == 270006);
    check(spool_kept() == 0);
}

static void rolling(void) {
    struct spool s;

    spool_init(&s, 100000, true);
    check(spool_room(&s) == UINT64_MAX);
    write_to(&s, 99999);
    check(s.base == 0 && spool_kept() == 99999);
    write_to(&s, 2);
    check(s.base == 1 && s.end == 100001 && holds(&s, 1) && spool_kept() == 100000);
    write_to(&s, 1000000);
    check(s.base == s.end - 100000 && holds(&s, s.base) && s.chunk_count <= 3);
    for (int i = 0; i < 5000; i++)
        write_to(&s, (size_t)i % 701 + 1);
    check(s.base == s.end - 100000 && holds(&s, s.base));
    spool_clear(&s);
    check(spool_kept() == 0);
}

static void rolling_smaller_than_a_read(void) {
    struct spool s;

    spool_init(&s, 10, true);
    write_to(&s, 70000);
    check(s.base == 69990 && holds(&s, s.base));
    spool_clear(&s);
    spool_init(&s, 0, true);
    write_to(&s, 70000);
    check(s.base == s.end && s.chunk_count == 0);
    spool_clear(&s);
}

static void steps_of_every_size(void) {
    for (size_t step = 1; step < 70000; step = step * 3 + 1) {
        struct spool s;
        uint64_t total = step < 100 ? 140000 : 600000;

        spool_init(&s, 300000, false);
        while (s.end < total) {
            write_to(&s, step);
            if (s.end - s.base > 200000)
                spool_release(&s, s.base + 3 * step + 1);
        }
        check(holds(&s, s.base));
        check(s.chunk_count <= (s.end - s.base) / SPOOL_CHUNK + 2);
        spool_clear(&s);
    }
}

static void budget(void) {
    struct spool a, b, c;

    spool_set_budget(300000);
    spool_init(&a, 250000, true);
    spool_init(&b, 250000, true);
    spool_init(&c, 250000, true);
    write_to(&a, 250000);
    write_to(&b, 50000);
    check(a.base == 0 && b.base == 0 && spool_kept() == 300000);
    write_to(&b, 70000);
    check(spool_kept() == 300000 && a.base == 70000 && b.base == 0);
    write_to(&c, 150000);
    check(spool_kept() == 300000 && holds(&a, a.base) && holds(&b, b.base) && holds(&c, c.base));
    check(a.end - a.base > 80000 && b.end - b.base > 80000 && c.end - c.base > 80000);
    spool_clear(&b);
    check(spool_kept() == a.end - a.base + c.end - c.base);
    spool_set_budget(0);
    write_to(&a, 1);
    check(spool_kept() == 0 && a.base == a.end && c.base == c.end);
    spool_clear(&a);
    spool_clear(&c);
    spool_set_budget(UINT64_MAX);
}

static void memory_is_given_back(void) {
    struct spool s;

    spool_trim();
    check(!spool_has_spare());
    spool_init(&s, UINT64_MAX, false);
    write_to(&s, 3000000);
    spool_release(&s, 2999999);
    check(spool_has_spare() && s.chunk_count == 1);
    spool_clear(&s);
    spool_trim();
    check(!spool_has_spare());
}

int main(void) {
    bounded();
    rolling();
    rolling_smaller_than_a_read();
    steps_of_every_size();
    budget();
    memory_is_given_back();
    return report();
}
