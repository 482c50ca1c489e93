/* sources: user.c util.c */
/* /etc/passwd and /etc/group as a hostile image may have them. The input is a line with the wanted
 * user, a line with a digit for the only id there is, the users, a NUL, and the groups. */
#include <errno.h>
#include <fcntl.h>

#include "../src/user.h"
#include "../src/util.h"

static void put(const char *path, const uint8_t *bytes, size_t n) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    promise(fd >= 0 && write_all(fd, bytes, n) == 0);
    close(fd);
}

static size_t up_to(struct taker *t, char stop, const uint8_t **start) {
    const uint8_t *found = memchr(t->at, stop, (size_t)(t->end - t->at));
    size_t n = found ? (size_t)(found - t->at) : (size_t)(t->end - t->at);

    *start = t->at;
    t->at += n + (found != NULL);
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct taker t = {data, data + size};
    const uint8_t *start;
    struct user_ids ids;
    char spec[600];
    int64_t single;
    size_t n;
    int err;

    if (!size)
        return 0;
    n = up_to(&t, '\n', &start);
    n = n < sizeof(spec) - 1 ? n : sizeof(spec) - 1;
    memcpy(spec, start, n);
    spec[n] = '\0';
    n = up_to(&t, '\n', &start);
    single = n ? (int64_t)(start[0] - '0') * 500 : -1;
    if (single < 0)
        single = -1;
    n = up_to(&t, '\0', &start);
    put("/tmp/passwd", start, n);
    put("/tmp/group", t.at, (size_t)(t.end - t.at));
    err = user_resolve_in("/tmp/passwd", "/tmp/group", spec, single, &ids);
    promise(err == 0 || err == ENOENT || err == EINVAL || err == EPERM);
    if (!err) {
        promise(ids.uid != UINT32_MAX && ids.gid != UINT32_MAX);
        promise(ids.group_count <= USER_GROUPS_MAX);
        promise(single < 0 || (ids.uid == single && ids.gid == single && !ids.group_count));
        for (size_t i = 0; i < ids.group_count; i++)
            promise(ids.groups[i] != UINT32_MAX && ids.groups[i] != ids.gid);
    }
    promise(world_allocations() == 0);
    return 0;
}
