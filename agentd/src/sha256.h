/* SHA-256 (FIPS 180-4) and HMAC-SHA256 (RFC 2104), for the handshake. */
#ifndef AGENTD_SHA256_H
#define AGENTD_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHA256_SIZE 32
#define SHA256_BLOCK 64

struct sha256 {
    uint32_t state[8];
    uint64_t length;
    uint8_t block[SHA256_BLOCK];
};

void sha256_begin(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *data, size_t n);
void sha256_end(struct sha256 *s, uint8_t out[SHA256_SIZE]);

struct hmac {
    struct sha256 inner;
    uint8_t outer_key[SHA256_BLOCK];
};

void hmac_begin(struct hmac *h, const void *key, size_t key_len);
void hmac_add(struct hmac *h, const void *data, size_t n);
/* Leaves no key material in H. */
void hmac_end(struct hmac *h, uint8_t out[SHA256_SIZE]);

/* In time that depends on N alone. */
bool equal_in_constant_time(const void *a, const void *b, size_t n);

#endif
