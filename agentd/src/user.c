#define _GNU_SOURCE
#include "user.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util.h"

#define FILE_MAX 1048576u
#define NAME_MAX_LEN 255u
#define FIELDS_MAX 7
/* (uid_t)-1 means "leave it" to the system calls. */
#define ID_MAX (UINT32_MAX - 1)

struct text {
    const char *at;
    size_t len;
};

static bool same(struct text a, struct text b) {
    return a.len == b.len && memcmp(a.at, b.at, a.len) == 0;
}

/* The text up to the next SEP, which is cut off REST; false when REST is used up. */
static bool cut(struct text *rest, char sep, struct text *out) {
    const char *end;

    if (!rest->at)
        return false;
    end = rest->len ? memchr(rest->at, sep, rest->len) : NULL;
    *out = (struct text){rest->at, end ? (size_t)(end - rest->at) : rest->len};
    if (end)
        *rest = (struct text){end + 1, rest->len - out->len - 1};
    else
        *rest = (struct text){NULL, 0};
    return true;
}

static size_t split(struct text line, struct text fields[FIELDS_MAX]) {
    size_t n = 0;

    while (n < FIELDS_MAX && cut(&line, ':', &fields[n]))
        n++;
    return n;
}

static bool as_id(struct text t, uint32_t *out) {
    uint64_t value;

    if (!t.len || !parse_decimal(t.at, t.len, ID_MAX, &value))
        return false;
    *out = (uint32_t)value;
    return true;
}

/* A regular file's first FILE_MAX bytes; nothing for anything else. */
static void read_file(const char *path, struct buf *b) {
    /* O_NONBLOCK: opening a FIFO must not wait for its writer. */
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return;
    while (b->len < FILE_MAX) {
        ssize_t n = read(fd, buf_room(b, 4096), 4096);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return;
        b->len += (size_t)n;
    }
}

static struct text text_of(const struct buf *b) {
    return (struct text){(const char *)b->data, b->len};
}

/* The first line whose name is WHO or, if WHO is NULL, whose id is ID. */
static bool find_user(struct text file, const struct text *who, uint32_t id, struct text *name,
                      struct user_ids *out) {
    struct text line, f[FIELDS_MAX];

    while (cut(&file, '\n', &line)) {
        uint32_t uid, gid;

        if (split(line, f) < 4 || !f[0].len || !as_id(f[2], &uid) || !as_id(f[3], &gid))
            continue;
        if (who ? same(f[0], *who) : uid == id) {
            *name = f[0];
            out->uid = uid;
            out->gid = gid;
            return true;
        }
    }
    return false;
}

static bool find_group(struct text file, struct text who, gid_t *out) {
    struct text line, f[FIELDS_MAX];
    uint32_t gid;

    while (cut(&file, '\n', &line)) {
        if (split(line, f) >= 3 && same(f[0], who) && as_id(f[2], &gid)) {
            *out = gid;
            return true;
        }
    }
    return false;
}

static void find_memberships(struct text file, struct text name, struct user_ids *out) {
    struct text line, f[FIELDS_MAX], member;
    uint32_t gid;

    while (out->group_count < USER_GROUPS_MAX && cut(&file, '\n', &line)) {
        if (split(line, f) < 4 || !as_id(f[2], &gid) || gid == out->gid)
            continue;
        while (cut(&f[3], ',', &member)) {
            if (member.len && same(member, name)) {
                out->groups[out->group_count++] = gid;
                break;
            }
        }
    }
}

static int check_single(int64_t single, bool group_given, struct user_ids *ids) {
    if (single < 0)
        return 0;
    if (ids->uid != (uint64_t)single || (group_given && ids->gid != (uint64_t)single))
        return EPERM;
    ids->gid = (gid_t)single;
    ids->group_count = 0;
    return 0;
}

int user_resolve_in(const char *passwd, const char *group, const char *spec, int64_t single,
                    struct user_ids *out) {
    CLEANUP_BUF struct buf users = {0};
    CLEANUP_BUF struct buf groups = {0};
    struct text rest = {spec, strlen(spec)}, who, which = {NULL, 0}, name = {NULL, 0};
    bool group_given, known;
    uint32_t id = 0;
    bool numeric;

    *out = (struct user_ids){0};
    (void)cut(&rest, ':', &who);
    group_given = cut(&rest, ':', &which);
    if (rest.at || !who.len || who.len > NAME_MAX_LEN || which.len > NAME_MAX_LEN ||
        (group_given && !which.len))
        return EINVAL;
    read_file(passwd, &users);
    read_file(group, &groups);

    numeric = as_id(who, &id);
    known = find_user(text_of(&users), numeric ? NULL : &who, id, &name, out);
    if (!known) {
        /* A uid needs no line (its group is then 0, as with Docker), and root always is. */
        if (!numeric && !same(who, (struct text){"root", 4}))
            return ENOENT;
        *out = (struct user_ids){.uid = id};
    }
    if (group_given) {
        if (!as_id(which, &out->gid) && !find_group(text_of(&groups), which, &out->gid))
            return ENOENT;
    } else if (known) {
        find_memberships(text_of(&groups), name, out);
    }
    return check_single(single, group_given, out);
}

int user_resolve(const char *spec, int64_t single, struct user_ids *out) {
    return user_resolve_in("/etc/passwd", "/etc/group", spec, single, out);
}
