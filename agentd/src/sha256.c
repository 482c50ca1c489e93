#include "sha256.h"

#include <string.h>

#include "util.h"

static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t v, int n) { return v >> n | v << (32 - n); }

static void compress(uint32_t state[8], const uint8_t *block) {
    uint32_t w[64];
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];

    for (int i = 0; i < 16; i++) {
        const uint8_t *p = block + 4 * i;

        w[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    }
    for (int i = 16; i < 64; i++) {
        uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;

        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    for (int i = 0; i < 64; i++) {
        uint32_t s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
        uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + round_constants[i] + w[i];
        uint32_t s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
        uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));

        h = g;
        g = f;
        f = e;
        e = d + t1;
        d = c;
        c = b;
        b = a;
        a = t1 + t2;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
    state[5] += f;
    state[6] += g;
    state[7] += h;
    wipe(w, sizeof(w));
}

void sha256_begin(struct sha256 *s) {
    static const uint32_t initial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

    memcpy(s->state, initial, sizeof(initial));
    s->length = 0;
}

void sha256_add(struct sha256 *s, const void *data, size_t n) {
    const uint8_t *p = data;

    while (n) {
        size_t have = s->length % SHA256_BLOCK;
        size_t take = SHA256_BLOCK - have;

        if (take > n)
            take = n;
        memcpy(s->block + have, p, take);
        s->length += take;
        p += take;
        n -= take;
        if (have + take == SHA256_BLOCK)
            compress(s->state, s->block);
    }
}

void sha256_end(struct sha256 *s, uint8_t out[SHA256_SIZE]) {
    static const uint8_t padding[SHA256_BLOCK] = {0x80};
    uint64_t bits = s->length * 8;
    size_t have = s->length % SHA256_BLOCK;
    uint8_t tail[8];

    sha256_add(s, padding, have < 56 ? 56 - have : 120 - have);
    for (int i = 0; i < 8; i++)
        tail[i] = (uint8_t)(bits >> (56 - 8 * i));
    sha256_add(s, tail, sizeof(tail));
    for (int i = 0; i < 32; i++)
        out[i] = (uint8_t)(s->state[i / 4] >> (24 - 8 * (i % 4)));
    wipe(s, sizeof(*s));
}

void hmac_begin(struct hmac *h, const void *key, size_t key_len) {
    uint8_t inner_key[SHA256_BLOCK] = {0};

    if (key_len > SHA256_BLOCK) {
        sha256_begin(&h->inner);
        sha256_add(&h->inner, key, key_len);
        sha256_end(&h->inner, inner_key);
    } else if (key_len) {
        memcpy(inner_key, key, key_len);
    }
    for (size_t i = 0; i < SHA256_BLOCK; i++) {
        h->outer_key[i] = inner_key[i] ^ 0x5c;
        inner_key[i] ^= 0x36;
    }
    sha256_begin(&h->inner);
    sha256_add(&h->inner, inner_key, sizeof(inner_key));
    wipe(inner_key, sizeof(inner_key));
}

void hmac_add(struct hmac *h, const void *data, size_t n) { sha256_add(&h->inner, data, n); }

void hmac_end(struct hmac *h, uint8_t out[SHA256_SIZE]) {
    uint8_t digest[SHA256_SIZE];

    sha256_end(&h->inner, digest);
    sha256_begin(&h->inner);
    sha256_add(&h->inner, h->outer_key, sizeof(h->outer_key));
    sha256_add(&h->inner, digest, sizeof(digest));
    sha256_end(&h->inner, out);
    wipe(h, sizeof(*h));
    wipe(digest, sizeof(digest));
}

bool equal_in_constant_time(const void *a, const void *b, size_t n) {
    const volatile uint8_t *x = a, *y = b;
    uint8_t difference = 0;

    for (size_t i = 0; i < n; i++)
        difference |= (uint8_t)(x[i] ^ y[i]);
    return difference == 0;
}
