/* sources: tar_read.c tar_pax.c layer_names.c util.c */
/* An archive: entries that hold what was promised of them, or a reason; nothing is left allocated. */
#include "../src/layer_names.h"
#include "../src/tar_read.h"
#include "../src/util.h"

struct reading {
    struct tar_reader tar;
    uint64_t size;
};

static void look_at_name(const char *name) {
    char path[LAYER_MAX_PATH + 1], clean[64];
    const char *why = NULL;
    enum layer_name kind = layer_name(name, path, &why);

    if (kind == LAYER_REFUSED) {
        promise(why);
    } else if (kind != LAYER_IGNORED) {
        promise(strlen(path) <= LAYER_MAX_PATH && path[0] != '/');
        for (const char *part = path; *part; part += strcspn(part, "/"), part += *part == '/') {
            size_t len = strcspn(part, "/");

            promise(len && len <= LAYER_MAX_NAME);
            promise(!(len == 1 && part[0] == '.') && !(len == 2 && !memcmp(part, "..", 2)));
        }
    }
    layer_clean(name, clean, sizeof clean);
    promise(strlen(clean) < sizeof clean && !strpbrk(clean, "\n\r\x1b"));
}

static void look_at(const struct tar_entry *e, uint64_t read) {
    uint64_t from = 0, sum = 0;

    promise(e->path && e->link && e->mode <= 07777 && e->mtime_ns < 1000000000);
    promise(e->type == TAR_FILE || !e->size);
    promise(read <= e->stored);
    for (size_t i = 0; i < e->segment_count; i++) {
        promise(e->segments[i].offset >= from && e->segments[i].size <= e->size);
        from = e->segments[i].offset + e->segments[i].size;
        sum += e->segments[i].size;
    }
    promise(from <= e->size);
    promise(e->sparse ? sum == e->stored : e->stored == e->size);
    for (size_t i = 0; i < e->xattr_count; i++)
        promise(strlen(e->xattrs[i].name) && (e->xattrs[i].value || !e->xattrs[i].size));
    look_at_name(e->path);
    look_at_name(e->link);
}

static void body(void *context) {
    struct reading *r = context;
    struct tar_entry entry;
    const uint8_t *bytes;
    uint8_t sum = 0;
    int found;

    while ((found = tar_next(&r->tar, &entry)) > 0) {
        uint64_t read = 0;
        ssize_t n;

        while ((n = tar_data(&r->tar, &bytes)) > 0) {
            for (ssize_t i = 0; i < n; i++)
                sum ^= bytes[i];
            read += (uint64_t)n;
        }
        promise(n == 0 ? read == entry.stored : r->tar.why != NULL);
        promise(read <= r->size);
        look_at(&entry, read);
        if (n < 0)
            break;
    }
    promise(found >= 0 || (r->tar.why && entry.path));
    __asm__ volatile("" : : "r"(sum));
}

/* What no fuzzer finds by itself: where a header's checksum belongs, the right one is put. */
static void mend(uint8_t *data, size_t size) {
    for (size_t at = 0; at + TAR_BLOCK_SIZE <= size; at += TAR_BLOCK_SIZE) {
        uint8_t *field = data + at + 148;
        unsigned sum = 0;

        if (memcmp(field, "checksum", 8) != 0)
            continue;
        memset(field, ' ', 8);
        for (unsigned i = 0; i < TAR_BLOCK_SIZE; i++)
            sum += data[at + i];
        for (int i = 5; i >= 0; i--, sum /= 8)
            field[i] = (uint8_t)('0' + sum % 8);
        field[6] = 0;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size + 1);
    struct reading r = {.size = size};
    size_t before;
    int fd;

    if (size)
        memcpy(copy, data, size);
    mend(copy, size);
    fd = world_input(copy, size);
    free(copy);
    before = world_allocations();
    tar_open(&r.tar, fd);
    promise(world_runs(body, &r));
    tar_close(&r.tar);
    promise(world_allocations() == before);
    close(fd);
    world_free_all();
    return 0;
}
