/* A tree is killed in passes over /proc. Each pass finds the members anew by their parents; the
 * first passes stop members (a stopped process forks no more) until a pass finds nobody new, the
 * next ones kill until nobody is left. A member that another process continues, or one that was
 * forked while a pass looked elsewhere, is met by the next pass.
 *
 * What passes cannot catch is a process that forks and exits faster than they look. After
 * PASSES_MAX of them, and at once in a crowd, everything in the sandbox is stopped by one kill(-1),
 * which the kernel does in one step that no fork can slip through; the tree is killed, and
 * everybody else continued. */
#define _GNU_SOURCE
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "loop.h"
#include "util.h"

#define PASSES_EAGER 8
#define PASSES_MAX 40
#define PAUSE_MAX_MS 100
/* So many entries of /proc (some 80 are no processes) are a fork bomb, which takes the processor
 * that a pass over all of them would need. */
#define CROWD 600

struct entry {
    pid_t pid;
    pid_t parent;
    pid_t root; /* supervisor it is below, ORPHAN, NOBODY, or 0: not known yet */
    char state;
};

struct snapshot {
    struct entry *entries;
    size_t count;
    size_t cap;
};

#define ORPHAN ((pid_t)-1)
#define NOBODY ((pid_t)-2)

static int proc_fd = -1;
static bool (*known_supervisor)(pid_t pid);
static struct tree_kill *kills;
static struct timer next_pass;

/* "pid (comm) S ppid …": comm may hold anything, parentheses too, but nothing after it does. */
static bool read_stat(const char *name, struct entry *out) {
    char path[32], text[160];
    size_t len = strlen(name);
    CLEANUP_CLOSE int fd = -1;
    const char *p, *end;
    ssize_t n;
    uint64_t parent;

    if (len > 10)
        return false;
    memcpy(path, name, len);
    memcpy(path + len, "/stat", 6);
    fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return false;
    n = read(fd, text, sizeof(text));
    if (n <= 0)
        return false;
    p = memrchr(text, ')', (size_t)n);
    end = text + n;
    if (!p || end - p < 5)
        return false;
    out->state = p[2];
    p += 4;
    for (end = p; end < text + n && *end >= '0' && *end <= '9'; end++)
        continue;
    if (!parse_decimal(p, (size_t)(end - p), INT32_MAX, &parent))
        return false;
    out->parent = (pid_t)parent;
    return true;
}

static void add(struct snapshot *s, const char *name) {
    struct entry entry = {0};
    uint64_t pid;

    if (!parse_decimal(name, strlen(name), INT32_MAX, &pid) || !read_stat(name, &entry))
        return;
    entry.pid = (pid_t)pid;
    if (s->count == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 64;
        s->entries = xrealloc(s->entries, s->cap * sizeof(*s->entries));
    }
    s->entries[s->count++] = entry;
}

struct dirent_head {
    uint64_t inode;
    int64_t offset;
    uint16_t length;
    uint8_t type;
    char name[];
};

static int by_pid(const void *a, const void *b) {
    pid_t x = ((const struct entry *)a)->pid, y = ((const struct entry *)b)->pid;

    return (x > y) - (x < y);
}

/* Adds to S (if any) every process in /proc; returns how many names were seen, of at most MOST. */
static size_t look(struct snapshot *s, size_t most) {
    _Alignas(uint64_t) char names[8192];
    size_t count = 0;
    long n;

    (void)lseek(proc_fd, 0, SEEK_SET);
    while (count < most && (n = syscall(SYS_getdents64, proc_fd, names, sizeof(names))) > 0) {
        for (long at = 0; at < n;) {
            const struct dirent_head *d = (const void *)(names + at);

            if (s)
                add(s, d->name);
            at += d->length;
            count++;
        }
    }
    return count;
}

static void take_snapshot(struct snapshot *s) {
    s->count = 0;
    (void)look(s, SIZE_MAX);
    if (s->count)
        qsort(s->entries, s->count, sizeof(*s->entries), by_pid);
}

static struct entry *find(const struct snapshot *s, pid_t pid) {
    struct entry key = {.pid = pid};

    return s->count ? bsearch(&key, s->entries, s->count, sizeof(key), by_pid) : NULL;
}

/* Who ENTRY is below. Parents are followed up to one whose root is known, then all on the way learn
 * it, so a snapshot is resolved in about one step an entry. A parent that is gone (it has exited
 * while the snapshot was made) leaves the root unknown for this pass. */
static pid_t resolve(const struct snapshot *s, struct entry *entry) {
    pid_t root = 0;
    size_t steps = 0;

    for (struct entry *at = entry; at && steps <= s->count; steps++) {
        if (at->root) {
            root = at->root;
            break;
        }
        if (at->pid == 1 || (at->parent == 1 && known_supervisor(at->pid))) {
            root = NOBODY;
            break;
        }
        if (at->parent == 1) {
            root = ORPHAN;
            break;
        }
        if (known_supervisor(at->parent)) {
            root = at->parent;
            break;
        }
        at = find(s, at->parent);
    }
    if (!root)
        return 0;
    for (struct entry *at = entry; at && !at->root; at = find(s, at->parent)) {
        at->root = root;
        if (root == NOBODY || at->parent == 1 || at->parent == root)
            break;
    }
    return root;
}

static bool is_dead(const struct entry *e) { return e->state == 'Z' || e->state == 'X'; }
static bool is_stopped(const struct entry *e) { return e->state == 'T' || e->state == 't'; }

static bool is_member(const struct tree_kill *k, const struct snapshot *s, struct entry *e) {
    return resolve(s, e) == (k->supervisor ? k->supervisor : ORPHAN);
}

static void kill_members(const struct tree_kill *k, const struct snapshot *s) {
    for (size_t i = 0; i < s->count; i++) {
        if (!is_dead(&s->entries[i]) && is_member(k, s, &s->entries[i]))
            (void)kill(s->entries[i].pid, SIGKILL);
    }
}

/* One pass over one tree: stops or kills its members. */
static void pass(struct tree_kill *k, const struct snapshot *s) {
    size_t members = 0, running = 0, unknown = 0;

    for (size_t i = 0; i < s->count; i++) {
        struct entry *e = &s->entries[i];

        if (is_dead(e))
            continue;
        if (!is_member(k, s, e)) {
            unknown += e->root == 0;
            continue;
        }
        members++;
        if (!k->stopped && !is_stopped(e) && kill(e->pid, SIGSTOP) == 0)
            running++;
    }
    k->passes++;
    k->quiet = members + unknown ? 0 : k->quiet + 1;
    if (running == 0 || k->passes >= PASSES_EAGER)
        k->stopped = true;
    if (k->stopped)
        kill_members(k, s);
    /* A guest may have stopped the supervisor, which has to reap and report. */
    if (k->supervisor)
        (void)kill(k->supervisor, SIGCONT);
}

static bool is_due_for_freeze(const struct tree_kill *k) {
    unsigned passes = k->passes;

    /* Rarely: it may be that the tree only waits in the kernel and cannot die yet. */
    return passes == PASSES_MAX || passes == 2 * PASSES_MAX || passes == 8 * PASSES_MAX;
}

/* Everything stands still while the trees are killed. In a crowd nobody looks first who was stopped
 * before, and all the others are continued. */
static void freeze_and_kill(bool crowd) {
    struct snapshot before = {0}, now = {0};

    if (!crowd)
        take_snapshot(&before);
    (void)kill(-1, SIGSTOP);
    take_snapshot(&now);
    for (struct tree_kill *k = kills; k; k = k->next)
        kill_members(k, &now);
    for (size_t i = 0; i < now.count; i++) {
        const struct entry *was = find(&before, now.entries[i].pid);

        if (now.entries[i].pid != 1 && !(was && is_stopped(was)))
            (void)kill(now.entries[i].pid, SIGCONT);
    }
    free(before.entries);
    free(now.entries);
}

static void run_passes(void) {
    struct snapshot s = {0};
    struct tree_kill **at = &kills, *k;
    unsigned least = UINT32_MAX;
    bool freeze = false;

    for (k = kills; k; k = k->next) {
        if (k->passes == 0 && look(NULL, CROWD) >= CROWD) {
            freeze_and_kill(true);
            break;
        }
    }
    take_snapshot(&s);
    while ((k = *at)) {
        pass(k, &s);
        /* A supervised tree is gone when its supervisor is, which has waited for all of it; of
         * orphans only two looks in a row tell. */
        if (!k->supervisor && k->quiet >= 2) {
            *at = k->next;
            k->active = false;
            continue;
        }
        freeze = freeze || is_due_for_freeze(k);
        if (k->passes < least)
            least = k->passes;
        at = &k->next;
    }
    free(s.entries);
    if (freeze)
        freeze_and_kill(false);
    if (kills) {
        unsigned pause = least < PASSES_EAGER ? 0 : least - PASSES_EAGER;

        timer_set(&next_pass, now_ms() + (pause > PAUSE_MAX_MS ? PAUSE_MAX_MS : pause));
    }
}

static void on_next_pass(struct timer *timer) {
    (void)timer;
    run_passes();
}

void tree_kill_start(struct tree_kill *k) {
    /* One that is under way has to look at what has come since. */
    k->passes = k->quiet = 0;
    k->stopped = false;
    if (!k->active) {
        k->active = true;
        k->next = kills;
        kills = k;
    }
    timer_set(&next_pass, now_ms());
}

void tree_kill_stop(struct tree_kill *k) {
    struct tree_kill **at = &kills;

    if (!k->active)
        return;
    while (*at != k)
        at = &(*at)->next;
    *at = k->next;
    k->active = false;
}

size_t tree_count(void) {
    struct snapshot s = {0};
    size_t count = 0;

    take_snapshot(&s);
    for (size_t i = 0; i < s.count; i++)
        count += !is_dead(&s.entries[i]) && resolve(&s, &s.entries[i]) != NOBODY;
    free(s.entries);
    return count;
}

int tree_proc(void) { return proc_fd; }

void tree_init(bool (*is_supervisor)(pid_t pid)) {
    known_supervisor = is_supervisor;
    next_pass.fn = on_next_pass;
    proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (proc_fd < 0)
        die("/proc");
}
