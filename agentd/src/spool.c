#include "spool.h"

#include <string.h>
#include <sys/mman.h>

#include "util.h"

/* Chunks that were let go of and may be taken again without asking the kernel. */
#define SPARE_MAX 16

static uint8_t *spare[SPARE_MAX];
static size_t spare_count;
static struct spool *rolling_spools;
static uint64_t budget = UINT64_MAX;
static uint64_t kept_bytes;

static uint8_t *chunk_new(void) {
    return spare_count ? spare[--spare_count] : map_private(SPOOL_CHUNK);
}

static void chunk_free(uint8_t *chunk) {
    if (spare_count < SPARE_MAX)
        spare[spare_count++] = chunk;
    else
        munmap(chunk, SPOOL_CHUNK);
}

void spool_trim(void) {
    while (spare_count)
        munmap(spare[--spare_count], SPOOL_CHUNK);
}

bool spool_has_spare(void) { return spare_count > 0; }

void spool_set_budget(uint64_t bytes) { budget = bytes; }

uint64_t spool_kept(void) { return kept_bytes; }

void spool_init(struct spool *s, uint64_t limit, bool rolling) {
    *s = (struct spool){.limit = limit, .rolling = rolling};
    if (rolling) {
        s->next = rolling_spools;
        if (s->next)
            s->next->prev = s;
        rolling_spools = s;
    }
}

static uint8_t *chunk_at(const struct spool *s, size_t index) {
    return s->chunks[(s->chunk_first + index) % s->chunk_cap];
}

void spool_clear(struct spool *s) {
    spool_release(s, s->end);
    if (s->rolling) {
        if (s->next)
            s->next->prev = s->prev;
        if (s->prev)
            s->prev->next = s->next;
        else
            rolling_spools = s->next;
        s->next = s->prev = NULL;
        s->rolling = false;
    }
    /* What was reserved but never written. */
    while (s->chunk_count)
        chunk_free(chunk_at(s, --s->chunk_count));
    free(s->chunks);
    s->chunks = NULL;
    s->chunk_cap = s->chunk_first = 0;
}

uint64_t spool_room(const struct spool *s) {
    uint64_t used = s->end - s->base;

    if (s->rolling)
        return UINT64_MAX;
    return used < s->limit ? s->limit - used : 0;
}

static bool add_chunk(struct spool *s) {
    uint8_t *chunk = chunk_new();

    if (!chunk)
        return false;
    if (s->chunk_count == s->chunk_cap) {
        size_t cap = s->chunk_cap ? 2 * s->chunk_cap : 2;
        uint8_t **chunks = xcalloc(cap, sizeof(*chunks));

        for (size_t i = 0; i < s->chunk_count; i++)
            chunks[i] = chunk_at(s, i);
        free(s->chunks);
        s->chunks = chunks;
        s->chunk_cap = cap;
        s->chunk_first = 0;
    }
    s->chunks[(s->chunk_first + s->chunk_count++) % s->chunk_cap] = chunk;
    return true;
}

/* The pieces of [offset, offset + want) that chunks exist for. */
static int pieces(const struct spool *s, uint64_t offset, size_t want, struct iovec iov[2]) {
    int n = 0;

    while (want && n < 2) {
        size_t index = (size_t)((offset - s->chunk_base) / SPOOL_CHUNK);
        size_t inside = (size_t)((offset - s->chunk_base) % SPOOL_CHUNK);
        size_t take = SPOOL_CHUNK - inside;

        if (index >= s->chunk_count)
            break;
        if (take > want)
            take = want;
        iov[n++] = (struct iovec){.iov_base = chunk_at(s, index) + inside, .iov_len = take};
        offset += take;
        want -= take;
    }
    return n;
}

int spool_reserve(struct spool *s, size_t want, struct iovec iov[2]) {
    if (want > SPOOL_CHUNK)
        want = SPOOL_CHUNK;
    if (s->chunk_count == 0)
        s->chunk_base = s->end;
    while (s->chunk_base + s->chunk_count * (uint64_t)SPOOL_CHUNK < s->end + want) {
        if (!add_chunk(s))
            break;
    }
    return pieces(s, s->end, want, iov);
}

static void shrink_to_budget(void) {
    while (kept_bytes > budget) {
        struct spool *largest = rolling_spools;
        uint64_t excess = kept_bytes - budget;

        for (struct spool *s = rolling_spools; s; s = s->next) {
            if (s->end - s->base > largest->end - largest->base)
                largest = s;
        }
        if (excess > SPOOL_CHUNK)
            excess = SPOOL_CHUNK;
        if (excess > largest->end - largest->base)
            excess = largest->end - largest->base;
        spool_release(largest, largest->base + excess);
    }
}

void spool_commit(struct spool *s, size_t n) {
    s->end += n;
    if (!s->rolling)
        return;
    kept_bytes += n;
    if (s->end - s->base > s->limit)
        spool_release(s, s->end - s->limit);
    shrink_to_budget();
}

int spool_peek(const struct spool *s, uint64_t offset, size_t want, struct iovec iov[2]) {
    if (offset < s->base || offset >= s->end)
        return 0;
    if (want > s->end - offset)
        want = (size_t)(s->end - offset);
    return pieces(s, offset, want, iov);
}

void spool_release(struct spool *s, uint64_t offset) {
    if (offset > s->end)
        offset = s->end;
    if (offset <= s->base)
        return;
    if (s->rolling)
        kept_bytes -= offset - s->base;
    s->base = offset;
    while (s->chunk_count && (s->base == s->end || s->chunk_base + SPOOL_CHUNK <= s->base)) {
        chunk_free(chunk_at(s, 0));
        s->chunk_first = (s->chunk_first + 1) % s->chunk_cap;
        s->chunk_count--;
        s->chunk_base += SPOOL_CHUNK;
    }
}
