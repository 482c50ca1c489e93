#define _GNU_SOURCE
#include "boot.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "msgpack.h"
#include "sys.h"
#include "util.h"

#define BOOT_MAX 1048576u

struct boot boot;

static void read_to_end(int fd, struct buf *b) {
    for (;;) {
        ssize_t n = read(fd, buf_room(b, 4096), 4096);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            die("boot configuration");
        if (n == 0)
            return;
        b->len += (size_t)n;
        if (b->len > BOOT_MAX)
            die_plain("boot configuration: too long");
    }
}

static void need(enum mp_found found, const char *key) {
    if (found != MP_WRONG)
        return;
    errno = EINVAL;
    die(key);
}

static void take_token(const struct mp_value *map) {
    const uint8_t *token = NULL;
    uint8_t *page;
    size_t n = 0;

    if (mp_get_bin(map, "token", &token, &n) != MP_OK || n != TOKEN_SIZE)
        die_plain("boot configuration: token");
    page = map_private(4096);
    if (!page)
        die("token");
    memcpy(page, token, TOKEN_SIZE);
    boot.token = page;
}

static void take_seccomp(const struct mp_value *map) {
    const uint8_t *filter = NULL;
    size_t n = 0;

    need(mp_get_bin(map, "seccomp", &filter, &n), "seccomp");
    if (!filter)
        return;
    if (n == 0 || n % SYS_SOCK_FILTER_SIZE || n / SYS_SOCK_FILTER_SIZE > SYS_BPF_MAXINSNS)
        die_plain("boot configuration: seccomp");
    boot.seccomp = xmalloc(n);
    memcpy(boot.seccomp, filter, n);
    boot.seccomp_count = n / SYS_SOCK_FILTER_SIZE;
}

void boot_read(int fd) {
    struct buf b = {0};
    struct mp_tree tree;
    uint64_t uid;
    enum mp_found found;

    read_to_end(fd, &b);
    close(fd);
    if (mp_parse(&tree, b.data, b.len) != NULL || tree.root->type != MP_MAP)
        die_plain("boot configuration: not a map");
    boot = (struct boot){
        .connect_ms = 30000,
        .single_uid = -1,
        .spool_max = 268435456,
        .umask = 022,
    };
    take_token(tree.root);
    take_seccomp(tree.root);
    need(mp_get_bool(tree.root, "ephemeral", &boot.ephemeral), "ephemeral");
    need(mp_get_uint(tree.root, "connect_ms", UINT32_MAX, &boot.connect_ms), "connect_ms");
    need(mp_get_text(tree.root, "cwd", &boot.cwd), "cwd");
    need(mp_get_text(tree.root, "listen", &boot.listen), "listen");
    need(mp_get_text(tree.root, "user", &boot.user), "user");
    need(mp_get_uint(tree.root, "caps", UINT64_MAX, &boot.caps), "caps");
    found = mp_get_uint(tree.root, "single_uid", UINT32_MAX - 1, &uid);
    need(found, "single_uid");
    if (found == MP_OK)
        boot.single_uid = (int64_t)uid;
    found = mp_get_int(tree.root, "oom_score_adj", -1000, 1000, &boot.oom_score_adj);
    need(found, "oom_score_adj");
    boot.has_oom_score_adj = found == MP_OK;
    need(mp_get_uint(tree.root, "nofile", UINT32_MAX, &boot.nofile), "nofile");
    need(mp_get_uint(tree.root, "nproc", UINT32_MAX, &boot.nproc), "nproc");
    need(mp_get_uint(tree.root, "spool_max", UINT64_MAX, &boot.spool_max), "spool_max");
    need(mp_get_uint(tree.root, "umask", 0777, &boot.umask), "umask");
    mp_free(&tree);
    wipe(b.data, b.cap);
    buf_free(&b);
}
