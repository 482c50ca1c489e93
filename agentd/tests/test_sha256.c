/* sources: sha256.c util.c */
#include "../src/sha256.h"

#include "../src/util.h"
#include "check.h"

static bool is_hex(const uint8_t *digest, const char *hex) {
    char text[2 * SHA256_SIZE + 1];

    for (int i = 0; i < SHA256_SIZE; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    return strncmp(text, hex, strlen(hex)) == 0;
}

/* FIPS 180-4 examples. */
static void hashes(void) {
    static const struct {
        const char *text;
        const char *digest;
    } cases[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    };
    struct sha256 s;
    uint8_t digest[SHA256_SIZE], million[1000];

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        size_t n = strlen(cases[i].text);

        for (size_t cut = 0; cut <= n; cut++) {
            sha256_begin(&s);
            sha256_add(&s, cases[i].text, cut);
            sha256_add(&s, cases[i].text + cut, n - cut);
            sha256_end(&s, digest);
            check(is_hex(digest, cases[i].digest));
        }
    }
    memset(million, 'a', sizeof(million));
    sha256_begin(&s);
    for (int i = 0; i < 1000; i++)
        sha256_add(&s, million, sizeof(million));
    sha256_end(&s, digest);
    check(is_hex(digest, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"));
}

static bool hmac_is(const void *key, size_t key_len, const void *data, size_t len,
                    const char *hex) {
    struct hmac h;
    uint8_t digest[SHA256_SIZE];

    hmac_begin(&h, key, key_len);
    hmac_add(&h, data, len / 2);
    hmac_add(&h, (const uint8_t *)data + len / 2, len - len / 2);
    hmac_end(&h, digest);
    return is_hex(digest, hex);
}

/* RFC 4231, sections 4.2 to 4.8. */
static void hmacs(void) {
    static const char long_key[] = "Test Using Larger Than Block-Size Key - Hash Key First";
    static const char long_data[] =
        "This is a test using a larger than block-size key and a larger than block-size data. "
        "The key needs to be hashed before being used by the HMAC algorithm.";
    uint8_t key[131], data[50];

    memset(key, 0x0b, 20);
    check(hmac_is(key, 20, "Hi There", 8,
                  "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"));
    check(hmac_is("Jefe", 4, "what do ya want for nothing?", 28,
                  "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"));
    memset(key, 0xaa, sizeof(key));
    memset(data, 0xdd, sizeof(data));
    check(hmac_is(key, 20, data, 50,
                  "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"));
    for (uint8_t i = 0; i < 25; i++)
        key[i] = (uint8_t)(i + 1);
    memset(data, 0xcd, sizeof(data));
    check(hmac_is(key, 25, data, 50,
                  "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"));
    memset(key, 0x0c, 20);
    check(hmac_is(key, 20, "Test With Truncation", 20, "a3b6167473100ee06e0c796c2955552b"));
    memset(key, 0xaa, sizeof(key));
    check(hmac_is(key, 131, long_key, strlen(long_key),
                  "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"));
    check(hmac_is(key, 131, long_data, strlen(long_data),
                  "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"));
}

static void nothing_is_left_behind(void) {
    struct hmac h;
    uint8_t digest[SHA256_SIZE], zero[sizeof(h)] = {0};

    hmac_begin(&h, "key", 3);
    hmac_end(&h, digest);
    check(memcmp(&h, zero, sizeof(h)) == 0);
}

static void comparing(void) {
    uint8_t a[32] = {0}, b[32] = {0};

    check(equal_in_constant_time(a, b, 32));
    for (int i = 0; i < 32; i++) {
        b[i] = 0x80;
        check(!equal_in_constant_time(a, b, 32));
        b[i] = 0;
    }
    check(equal_in_constant_time(a, b, 0));
}

int main(void) {
    hashes();
    hmacs();
    nothing_is_left_behind();
    comparing();
    return report();
}
