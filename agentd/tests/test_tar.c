/* sources: tar_read.c tar_pax.c tar_write.c util.c */
#define _GNU_SOURCE
#include "../src/tar_read.h"

#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../src/tar_write.h"
#include "check.h"

static struct buf archive;
static struct tar_reader tar;
static struct tar_entry entry;

/* ---- making archives by hand ---- */

static void pad(void) {
    static const uint8_t zeros[512];

    buf_add(&archive, zeros, -archive.len & 511);
}

static void seal(uint8_t *block) {
    unsigned sum = 0;

    memset(block + 148, ' ', 8);
    for (int i = 0; i < 512; i++)
        sum += block[i];
    snprintf((char *)block + 148, 7, "%06o", sum);
}

static uint8_t *header(const char *name, char type, uint64_t size) {
    uint8_t *block = buf_room(&archive, 512);

    memset(block, 0, 512);
    strncpy((char *)block, name, 100);
    strcpy((char *)block + 100, "0000644");
    strcpy((char *)block + 108, "0000001");
    strcpy((char *)block + 116, "0000002");
    snprintf((char *)block + 124, 12, "%011llo", (unsigned long long)size);
    strcpy((char *)block + 136, "00000000007");
    block[156] = (uint8_t)type;
    memcpy(block + 257, "ustar\00000", 8);
    seal(block);
    archive.len += 512;
    return block;
}

static void text(const char *content) {
    buf_add(&archive, content, strlen(content));
    pad();
}

static void extended(const char *records) {
    header("x", 'x', strlen(records));
    text(records);
}

/* Records "KEY=VALUE" with their lengths, the last one followed by NULL. */
static void records(const char *first, ...) {
    struct buf all = {0};
    va_list list;

    va_start(list, first);
    for (const char *next = first; next; next = va_arg(list, const char *)) {
        size_t length = strlen(next) + 4; /* two digits, a blank, a newline */
        char line[200];

        check(length >= 10 && length <= 99);
        buf_add(&all, line, (size_t)snprintf(line, sizeof line, "%zu %s\n", length, next));
    }
    va_end(list);
    buf_add(&all, "", 1);
    extended((const char *)all.data);
    buf_free(&all);
}

static void ended(void) {
    static const uint8_t zeros[1024];

    buf_add(&archive, zeros, sizeof zeros);
}

static void start(void) { archive.len = 0; }

static void open_archive(void) {
    int fd = memfd_create("tar", 0);

    check(fd >= 0 && write_all(fd, archive.data, archive.len) == 0 && lseek(fd, 0, SEEK_SET) == 0);
    tar_open(&tar, fd);
}

static void close_archive(void) {
    close(tar.fd);
    tar_close(&tar);
}

/* What is said of the first entry, or of its data. */
static bool fails_with(const char *why) {
    const uint8_t *bytes;
    ssize_t n = 0;
    int found;
    bool right;

    open_archive();
    while ((found = tar_next(&tar, &entry)) > 0)
        while ((n = tar_data(&tar, &bytes)) > 0) {}
    right = (found < 0 || n < 0) && !strcmp(tar.why, why);
    if (!right)
        printf("expected %s, got %s\n", why, tar.why ? tar.why : "nothing");
    close_archive();
    return right;
}

static bool is_whole(void) {
    int found;

    open_archive();
    while ((found = tar_next(&tar, &entry)) > 0) {}
    close_archive();
    return found == 0;
}

/* ---- tests ---- */

static bool number(const char *field, size_t size, int64_t expected) {
    int64_t out;

    return tar_number((const uint8_t *)field, size, &out) && out == expected;
}

static void numbers(void) {
    int64_t out;

    check(number("0000644", 8, 0644));
    check(number("   644 ", 8, 0644));
    check(number("\0\0\0\0\0\0\0", 8, 0));
    check(number("77777777", 8, 077777777));
    check(number("\x80\0\0\0\0\0\0\0\0\0\1\0", 12, 256));
    check(number("\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", 12, INT64_MAX));
    check(number("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe", 12, -2));
    check(!tar_number((const uint8_t *)"\x80\0\0\1\0\0\0\0\0\0\0\0", 12, &out));
    check(!tar_number((const uint8_t *)"\x80\0\0\0\x80\0\0\0\0\0\0\0", 12, &out));
    check(!tar_number((const uint8_t *)"0000689", 8, &out));
    check(!tar_number((const uint8_t *)"-000001", 8, &out));
    check(!tar_number((const uint8_t *)"0x00001", 8, &out));
}

static void plain(void) {
    const uint8_t *bytes;

    start();
    header("a/b", '0', 5);
    text("hello");
    header("c/", '5', 0);
    ended();
    open_archive();
    check(tar_next(&tar, &entry) == 1 && entry.type == TAR_FILE && !strcmp(entry.path, "a/b"));
    check(entry.size == 5 && entry.mode == 0644 && entry.uid == 1 && entry.gid == 2 && entry.mtime == 7);
    check(tar_data(&tar, &bytes) == 5 && !memcmp(bytes, "hello", 5));
    check(tar_data(&tar, &bytes) == 0);
    check(tar_next(&tar, &entry) == 1 && entry.type == TAR_DIRECTORY);
    check(tar_next(&tar, &entry) == 0 && tar.ended);
    close_archive();
}

static void skipped_data_and_missing_end(void) {
    start();
    header("a", '0', 1000);
    for (int i = 0; i < 100; i++)
        buf_add(&archive, "0123456789", 10);
    pad();
    header("b", '0', 0);
    open_archive();
    check(tar_next(&tar, &entry) == 1 && tar_next(&tar, &entry) == 1 && !strcmp(entry.path, "b"));
    check(tar_next(&tar, &entry) == 0 && !tar.ended);
    close_archive();
}

static void long_names(void) {
    char name[300];
    uint8_t *block;

    memset(name, 'n', sizeof name);
    name[299] = 0;
    start();
    header("././@LongLink", 'L', 300);
    buf_add(&archive, name, 300);
    pad();
    header("././@LongLink", 'K', 4);
    text("link");
    header("short", '2', 0);
    block = header("name", '0', 0);
    strcpy((char *)block + 345, "prefix/of");
    seal(block);
    ended();
    open_archive();
    check(tar_next(&tar, &entry) == 1 && !strcmp(entry.path, name) && !strcmp(entry.link, "link"));
    check(entry.type == TAR_SYMLINK);
    check(tar_next(&tar, &entry) == 1 && !strcmp(entry.path, "prefix/of/name"));
    check(tar_next(&tar, &entry) == 0);
    close_archive();
}

static void pax_records(void) {
    start();
    extended("12 path=p/q\n14 linkpath=r\n15 uid=1234567\n14 gid=100000\n16 mtime=-1.250\n"
             "26 SCHILY.xattr.user.a=bc\n11 size=99\n8 size=\n17 comment=hello\n");
    header("x", '2', 0);
    header("y", '0', 0);
    ended();
    open_archive();
    check(tar_next(&tar, &entry) == 1 && !strcmp(entry.path, "p/q") && !strcmp(entry.link, "r"));
    check(entry.uid == 1234567 && entry.gid == 100000);
    check(entry.mtime == -2 && entry.mtime_ns == 750000000);
    check(entry.xattr_count == 1 && !strcmp(entry.xattrs[0].name, "user.a") &&
          entry.xattrs[0].size == 2 && !memcmp(entry.xattrs[0].value, "bc", 2));
    check(tar_next(&tar, &entry) == 1 && !strcmp(entry.path, "y") && entry.uid == 1);
    check(entry.xattr_count == 0);
    close_archive();

    start();
    header("g", 'g', 14);
    text("14 uid=654321\n");
    header("y", '0', 0);
    ended();
    open_archive();
    check(tar_next(&tar, &entry) == 1 && entry.uid == 1); /* as Go: not applied */
    close_archive();
}

static void bad_pax_records(void) {
    static const char *const bad[] = {
        "x",          "5 a=b",       "5 a=b\n6 c=d",  "0 a=b\n",  "99999999999999999999 a=b\n",
        "4 a=\n\n",   "5 ab\nc",     "6 =abc\n",      "-6 a=b\n", "6  a=b\n4 ",
        "100 a=b\n",  " 6 a=b\n",    "6a=bcd\n",
    };

    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        start();
        extended(bad[i]);
        header("y", '0', 0);
        ended();
        check(fails_with("pax"));
    }
    start();
    extended("9 uid=1x\n");
    header("y", '0', 0);
    check(fails_with("pax-number"));
    start();
    header("x", 'x', 11);
    buf_add(&archive, "11 path=a\0b\n", 12);
    pad();
    header("y", '0', 0);
    check(fails_with("pax"));
    start();
    header("x", 'x', 12);
    buf_add(&archive, "12 path=a\0b\n", 12);
    pad();
    header("y", '0', 0);
    check(fails_with("pax-text"));
    start();
    header("x", 'x', TAR_MAX_EXTENDED + 1);
    check(fails_with("extended-size"));
}

static void damage(void) {
    start();
    header("a", '0', 0)[0] = 'b';
    check(fails_with("checksum"));
    start();
    header("a", '0', 5);
    check(fails_with("truncated"));
    start();
    header("a", '0', 5);
    text("hello");
    archive.len -= 1;
    check(fails_with("truncated"));
    start();
    header("a", '0', 0);
    archive.len -= 12;
    check(fails_with("truncated"));
    start();
    header("a", '0', 0);
    ended();
    text("junk");
    check(fails_with("junk"));
    start();
    header("a", '0', 0);
    ended();
    archive.len -= 512;
    header("b", '0', 0);
    check(fails_with("block"));
    start();
    header("a", 'Z', 0);
    check(fails_with("type"));
    start();
    extended("9 uid=10\n");
    check(fails_with("truncated"));
    start();
    header("a", '0', 0);
    ended();
    for (int i = 0; i < 30; i++)
        ended();
    check(is_whole());
    start();
    check(is_whole());
}

/* Links and the like have no data, whatever size they claim. */
static void sizes_of_what_has_no_data(void) {
    static const char types[] = "123456";

    for (const char *type = types; *type; type++) {
        start();
        header("a", *type, 512);
        header("b", '0', 0);
        ended();
        open_archive();
        check(tar_next(&tar, &entry) == 1 && entry.size == 0);
        check(tar_next(&tar, &entry) == 1 && !strcmp(entry.path, "b"));
        close_archive();
    }
}

static bool segments_are(uint64_t size, const char *data) {
    struct buf got = {0};
    const uint8_t *bytes;
    ssize_t n;
    bool right;

    open_archive();
    if (tar_next(&tar, &entry) != 1)
        printf("sparse: %s\n", tar.why);
    while ((n = tar_data(&tar, &bytes)) > 0)
        buf_add(&got, bytes, (size_t)n);
    right = entry.sparse && entry.size == size && entry.segment_count >= 2 &&
            entry.segments[0].offset == 10 && entry.segments[0].size == 3 &&
            entry.segments[1].offset == 1000 && entry.segments[1].size == 2 &&
            got.len == strlen(data) && !memcmp(got.data, data, got.len) && n == 0;
    right = right && tar_next(&tar, &entry) == 1 && !strcmp(entry.path, "after");
    buf_free(&got);
    close_archive();
    return right;
}

static void sparse_files(void) {
    uint8_t *block;

    start();
    block = header("old", 'S', 5);
    memcpy(block + 257, "ustar  ", 8);
    memcpy(block + 386, "00000000012\00000000000003", 24);
    memcpy(block + 410, "00000001750\00000000000002", 24);
    memcpy(block + 483, "00000004000", 12);
    seal(block);
    text("abcde");
    header("after", '0', 0);
    ended();
    check(segments_are(2048, "abcde"));

    start();
    block = header("old", 'S', 5);
    memcpy(block + 386, "00000000012\00000000000003", 24);
    block[482] = 1;
    memcpy(block + 483, "00000004000", 12);
    seal(block);
    block = buf_room(&archive, 512);
    memset(block, 0, 512);
    memcpy(block, "00000001750\00000000000002", 24);
    archive.len += 512;
    text("abcde");
    header("after", '0', 0);
    check(segments_are(2048, "abcde"));

    start();
    records("GNU.sparse.size=2048", "GNU.sparse.offset=10", "GNU.sparse.numbytes=3",
            "GNU.sparse.offset=1000", "GNU.sparse.numbytes=2", NULL);
    header("zero", '0', 5);
    text("abcde");
    header("after", '0', 0);
    check(segments_are(2048, "abcde"));

    start();
    records("GNU.sparse.size=2048", "GNU.sparse.map=10,3,1000,2", "GNU.sparse.name=n", NULL);
    header("one", '0', 5);
    text("abcde");
    header("after", '0', 0);
    check(segments_are(2048, "abcde"));

    start();
    records("GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.realsize=2048", NULL);
    header("new", '0', 512 + 5);
    text("2\n10\n3\n1000\n2\n");
    text("abcde");
    header("after", '0', 0);
    check(segments_are(2048, "abcde"));
}

static void bad_sparse_files(void) {
    static const char *const maps[] = {
        "GNU.sparse.map=10,3,1000,3", "GNU.sparse.map=10,3,2047,2",
        "GNU.sparse.map=10,3,11,2",   "GNU.sparse.map=10,3,1000",
        "GNU.sparse.map=10,3,,,",     "GNU.sparse.map=1000,3,10,2",
        "GNU.sparse.map=9223372036854775807,5",
    };

    for (size_t i = 0; i < COUNT_OF(maps); i++) {
        start();
        records("GNU.sparse.size=2048", maps[i], NULL);
        header("a", '0', 5);
        text("abcde");
        check(fails_with("sparse"));
    }
    start();
    records("GNU.sparse.map=10,3,1000,2", NULL);
    header("a", '0', 5);
    text("abcde");
    check(fails_with("sparse"));
    start();
    records("GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.realsize=2048", NULL);
    header("a", '0', 512);
    text("99999999\n");
    check(fails_with("sparse"));
    start();
    records("GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.realsize=2048", NULL);
    header("a", '0', 100);
    text("1\n0\n1\n");
    check(fails_with("sparse"));
}

/* What is written reads as it was. */
static void round_trip(void) {
    static const struct tar_xattr xattrs[] = {
        {"user.a", (const uint8_t *)"1\0\n=", 4}, {"user.b", (const uint8_t *)"", 0}};
    char long_path[3001], long_link[201];
    struct tar_writer out;
    const uint8_t *bytes;
    int fd = memfd_create("tar", 0);

    memset(long_path, 'p', 3000);
    memset(long_link, 'l', 200);
    long_path[3000] = long_link[200] = 0;
    const struct tar_entry entries[] = {
        {.type = TAR_FILE, .path = "f", .link = "", .size = 3, .mode = 04755, .uid = 5, .gid = 6,
         .mtime = 1700000000, .xattrs = xattrs, .xattr_count = 2},
        {.type = TAR_DIRECTORY, .path = long_path, .link = "", .mode = 01777, .uid = 4294967294,
         .gid = 2097152, .mtime = -5},
        {.type = TAR_SYMLINK, .path = "s\n", .link = long_link, .mtime = INT64_C(1) << 40},
        {.type = TAR_HARD_LINK, .path = "h", .link = "f"},
        {.type = TAR_FIFO, .path = "p", .link = "", .mode = 0600},
    };

    tar_writer_open(&out, fd);
    for (size_t i = 0; i < COUNT_OF(entries); i++) {
        check(tar_put_entry(&out, &entries[i]) == 0);
        if (entries[i].size)
            check(tar_put(&out, "abc", 3) == 0 && tar_pad(&out, 3) == 0);
    }
    check(tar_finish(&out) == 0 && lseek(fd, 0, SEEK_SET) == 0);
    tar_open(&tar, fd);
    for (size_t i = 0; i < COUNT_OF(entries); i++) {
        const struct tar_entry *e = &entries[i];

        check(tar_next(&tar, &entry) == 1 && entry.type == e->type && !strcmp(entry.path, e->path) &&
              !strcmp(entry.link, e->link) && entry.mode == e->mode && entry.uid == e->uid &&
              entry.gid == e->gid && entry.mtime == e->mtime && entry.size == e->size &&
              entry.xattr_count == e->xattr_count);
        for (size_t k = 0; k < e->xattr_count; k++)
            check(!strcmp(entry.xattrs[k].name, e->xattrs[k].name) &&
                  entry.xattrs[k].size == e->xattrs[k].size &&
                  !memcmp(entry.xattrs[k].value, e->xattrs[k].value, e->xattrs[k].size));
        if (e->size)
            check(tar_data(&tar, &bytes) == 3 && !memcmp(bytes, "abc", 3));
    }
    check(tar_next(&tar, &entry) == 0 && tar.ended);
    close_archive();
}

int main(void) {
    numbers();
    plain();
    skipped_data_and_missing_end();
    long_names();
    pax_records();
    bad_pax_records();
    damage();
    sizes_of_what_has_no_data();
    sparse_files();
    bad_sparse_files();
    round_trip();
    return report();
}
