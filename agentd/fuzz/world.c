/* What all targets share: see world.h. */
#define WORLD_IMPLEMENTATION
#include "world.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/statfs.h>

#define TMPFS_MAGIC 0x01021994
#define ROOT_MARK "/.fuzz-arena"

/* ---- the guard ---- */

/* The first process of a machine's own namespaces sees itself under every id. */
static bool is_first_user_namespace(void) {
    FILE *map = fopen("/proc/self/uid_map", "r");
    unsigned long inside = 0, outside = 0, count = 0;
    int fields = map ? fscanf(map, "%lu %lu %lu", &inside, &outside, &count) : 0;

    if (map)
        fclose(map);
    return fields != 3 || count == 4294967295ul;
}

/* Nothing here may ever act on a machine: only in the empty root that tools/fuzz makes. */
int LLVMFuzzerInitialize(int *argc, char ***argv) {
    struct statfs root;

    (void)argc;
    (void)argv;
    if (statfs("/", &root) < 0 || root.f_type != TMPFS_MAGIC || access(ROOT_MARK, F_OK) < 0 ||
        is_first_user_namespace() || getppid() > 1000) {
        fprintf(stderr, "refused: this runs in a root and namespaces of its own; use tools/fuzz\n");
        _exit(2);
    }
    return 0;
}

void broken_promise(const char *what, const char *file, int line) {
    fprintf(stderr, "%s:%d: a promise does not hold: %s\n", file, line, what);
    abort();
}

/* ---- memory ---- */

/* Every allocation stands in a table, so that one that stays is seen at the end of its input. */
#define SLOTS 16384u

static void *slots[SLOTS];
static size_t alive;

static size_t slot_of(const void *p) { return (size_t)(((uintptr_t)p >> 4) * 2654435761u) % SLOTS; }

static void *enter(void *p) {
    size_t i = slot_of(p);

    if (!p)
        return NULL;
    promise(alive < SLOTS / 2);
    while (slots[i])
        i = (i + 1) % SLOTS;
    slots[i] = p;
    alive++;
    return p;
}

static void leave(void *p) {
    size_t i = slot_of(p), hole;

    while (slots[i] && slots[i] != p)
        i = (i + 1) % SLOTS;
    if (!slots[i])
        return; /* freeing it is what AddressSanitizer will complain about */
    alive--;
    slots[i] = NULL;
    for (hole = i, i = (i + 1) % SLOTS; slots[i]; i = (i + 1) % SLOTS) {
        size_t home = slot_of(slots[i]);

        /* Moved only if its home is not between the hole and here. */
        if ((i > hole && (home <= hole || home > i)) || (i < hole && home <= hole && home > i)) {
            slots[hole] = slots[i];
            slots[i] = NULL;
            hole = i;
        }
    }
}

void *world_malloc(size_t size) { return enter(malloc(size)); }
void *world_calloc(size_t count, size_t size) { return enter(calloc(count, size)); }
void *world_realloc(void *old, size_t size) {
    if (old)
        leave(old);
    return enter(realloc(old, size));
}
void world_free(void *p) {
    if (p)
        leave(p);
    free(p);
}
void *world_mmap(size_t size) {
    void *p = world_calloc(1, size);

    return p ? p : MAP_FAILED;
}
int world_munmap(void *p) {
    world_free(p);
    return 0;
}
size_t world_allocations(void) { return alive; }

void world_free_all(void) {
    for (size_t i = 0; i < SLOTS && alive; i++) {
        if (slots[i]) {
            free(slots[i]);
            slots[i] = NULL;
            alive--;
        }
    }
}

/* ---- the clock ---- */

static int64_t clock_ms = 1000000;

void world_pass_ms(int64_t ms) { clock_ms += ms; }

int world_clock_gettime(struct timespec *out) {
    out->tv_sec = clock_ms / 1000;
    out->tv_nsec = clock_ms % 1000 * 1000000;
    return 0;
}

/* ---- the end ---- */

int world_status;
static jmp_buf way_out;
static bool inside;

void world_leave(int status) {
    promise(inside);
    world_status = status;
    longjmp(way_out, 1);
}

bool world_runs(void (*body)(void *context), void *context) {
    bool done = false;

    inside = true;
    if (setjmp(way_out) == 0) {
        body(context);
        done = true;
    }
    inside = false;
    return done;
}

/* ---- descriptors ---- */

int world_input(const void *bytes, size_t size) {
    int fd = memfd_create("input", MFD_CLOEXEC);

    promise(fd >= 0 && (size == 0 || write(fd, bytes, size) == (ssize_t)size));
    lseek(fd, 0, SEEK_SET);
    return fd;
}

size_t world_open_descriptors(void) {
    size_t count = 0;

    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}
