/* sources: user.c util.c */
#define _GNU_SOURCE
#include "../src/user.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../src/util.h"
#include "check.h"

static char passwd[64], group[64];

static void write_file(const char *path, const char *text, size_t n) {
    int fd;

    unlink(path);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    check(fd >= 0 && write_all(fd, text, n) == 0);
    close(fd);
}

static void set(const char *users, const char *groups) {
    write_file(passwd, users, strlen(users));
    write_file(group, groups, strlen(groups));
}

static int resolve(const char *spec, int64_t single, struct user_ids *ids) {
    return user_resolve_in(passwd, group, spec, single, ids);
}

static bool is(const char *spec, uid_t uid, gid_t gid, size_t groups) {
    struct user_ids ids;

    return resolve(spec, -1, &ids) == 0 && ids.uid == uid && ids.gid == gid &&
           ids.group_count == groups;
}

static int error_of(const char *spec) {
    struct user_ids ids;

    return resolve(spec, -1, &ids);
}

static void names_and_numbers(void) {
    struct user_ids ids;

    set("root:x:0:0:root:/root:/bin/sh\n"
        "alice:x:1000:1001:Alice,,,:/home/alice:/bin/sh\n"
        "# comment\n"
        "bob:x:1002:1002::/:\n",
        "root:x:0:\nwheel:x:10:root,alice\naudio:x:29:alice\nalice:x:1001:alice\nlast:x:77:xalice");
    check(is("root", 0, 0, 1));
    check(is("alice", 1000, 1001, 2));
    check(resolve("alice", -1, &ids) == 0 && ids.groups[0] == 10 && ids.groups[1] == 29);
    check(is("1000", 1000, 1001, 2));
    check(is("bob", 1002, 1002, 0));
    check(is("4242", 4242, 0, 0));
    check(is("alice:audio", 1000, 29, 0));
    check(is("alice:5", 1000, 5, 0));
    check(is("4242:4243", 4242, 4243, 0));
    check(is("4242:last", 4242, 77, 0));
    check(is("0", 0, 0, 1));
    check(error_of("eve") == ENOENT);
    check(error_of("alice:nope") == ENOENT);
    check(error_of("Alice") == ENOENT);
    check(error_of("#") == ENOENT);
    check(error_of("") == EINVAL);
    check(error_of(":") == EINVAL);
    check(error_of(":root") == EINVAL);
    check(error_of("root:") == EINVAL);
    check(error_of("a:b:c") == EINVAL);
    check(error_of("4294967295") == ENOENT);
    check(error_of("0:4294967295") == ENOENT);
    check(is("4294967294", 4294967294u, 0, 0));
    check(error_of("-1") == ENOENT);
    check(error_of("+1") == ENOENT);
    check(error_of("0x0") == ENOENT);
    check(error_of(" 0") == ENOENT);
}

static void one_id_only(void) {
    struct user_ids ids;

    set("root:x:0:0::/:\nalice:x:1000:1001::/:\n", "wheel:x:10:alice\n");
    check(resolve("alice", 1000, &ids) == 0 && ids.gid == 1000 && ids.group_count == 0);
    check(resolve("1000", 1000, &ids) == 0 && ids.uid == 1000 && ids.gid == 1000);
    check(resolve("1000:1000", 1000, &ids) == 0);
    check(resolve("alice:wheel", 1000, &ids) == EPERM);
    check(resolve("root", 1000, &ids) == EPERM);
    check(resolve("0", 1000, &ids) == EPERM);
    check(resolve("alice", 0, &ids) == EPERM);
    check(resolve("root", 0, &ids) == 0 && ids.uid == 0 && ids.gid == 0);
}

/* Files that a guest has written to do harm: nothing is read too far, the rest still works. */
static void hostile_files(void) {
    static const char *const lines[] = {
        "",
        "\n\n\n",
        ":::::::\n",
        "eve",
        "eve:x:\n",
        "eve:x:0\n",
        "eve:x:0:\n",
        "eve:x::0:\n",
        "eve:x:-1:0::/:\n",
        "eve:x:4294967295:0::/:\n",
        "eve:x:4294967296:0::/:\n",
        "eve:x:99999999999999999999999999:0::/:\n",
        "eve:x: 0:0::/:\n",
        "eve:x:0x0:0::/:\n",
        "eve :x:0:0::/:\n",
        "+eve::::::\n",
    };

    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        set(lines[i], lines[i]);
        check(error_of("eve") == ENOENT);
        /* Of a group three fields are enough. */
        check(error_of("0:eve") == (strncmp(lines[i], "eve:x:0", 7) == 0 && lines[i][7] != 'x' ? 0 : ENOENT));
        check(is("root", 0, 0, 0));
    }
    write_file(passwd, "a\0b:x:5:5::/:\nok:x:6:6::/:", 27);
    check(error_of("a") == ENOENT);
    check(is("ok", 6, 6, 0));
}

static void long_files(void) {
    struct buf b = {0};
    char line[64];

    for (int i = 0; i < 200; i++) {
        int n = snprintf(line, sizeof(line), "g%d:x:%d:alice\n", i, 2000 + i);

        buf_add(&b, line, (size_t)n);
    }
    set("alice:x:1000:1000::/:\n", "");
    write_file(group, (const char *)b.data, b.len);
    check(is("alice", 1000, 1000, USER_GROUPS_MAX));
    /* A user behind the first MiB is not found; one line of that length is no problem. */
    b.len = 0;
    memset(buf_room(&b, 2000000), 'x', 2000000);
    b.len = 2000000;
    buf_add(&b, "\nfar:x:9:9::/:\n", 15);
    write_file(passwd, (const char *)b.data, b.len);
    check(error_of("far") == ENOENT);
    check(is("root", 0, 0, 0));
    buf_free(&b);
}

static void only_regular_files(void) {
    char target[80];

    set("alice:x:1000:1000::/:\n", "");
    snprintf(target, sizeof(target), "%s.real", passwd);
    check(rename(passwd, target) == 0 && symlink(target, passwd) == 0);
    check(error_of("alice") == ENOENT);
    unlink(passwd);
    unlink(target);
    check(mkfifo(passwd, 0600) == 0);
    check(error_of("alice") == ENOENT); /* and does not wait for a writer */
    unlink(passwd);
    check(mkdir(passwd, 0700) == 0);
    check(error_of("alice") == ENOENT);
    rmdir(passwd);
    check(error_of("alice") == ENOENT);
    check(is("root", 0, 0, 0) && is("7", 7, 0, 0));
}

static void decimals(void) {
    uint64_t value = 0;

    check(parse_decimal("0", 1, 0, &value) && value == 0);
    check(parse_decimal("18446744073709551615", 20, UINT64_MAX, &value) && value == UINT64_MAX);
    check(!parse_decimal("18446744073709551616", 20, UINT64_MAX, &value));
    check(!parse_decimal("10", 2, 9, &value) && parse_decimal("9", 1, 9, &value));
    check(!parse_decimal("5", 1, 4, &value));
    check(!parse_decimal("", 0, 9, &value) && !parse_decimal("1 ", 2, 99, &value));
}

int main(void) {
    char directory[] = "/tmp/agentd-user-XXXXXX";

    check(mkdtemp(directory) != NULL);
    snprintf(passwd, sizeof(passwd), "%s/passwd", directory);
    snprintf(group, sizeof(group), "%s/group", directory);
    names_and_numbers();
    one_id_only();
    hostile_files();
    long_files();
    only_regular_files();
    decimals();
    unlink(passwd);
    unlink(group);
    rmdir(directory);
    return report();
}
