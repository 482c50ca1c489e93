/* The world as agentd's sources see it while they are fuzzed. Included before everything else: calls
 * that reach outside (processes, signals, the clock, sockets to elsewhere) go to a made-up world,
 * memory is counted, and mapped memory comes from the allocator that AddressSanitizer watches.
 *
 * Function-like macros: members and addresses of the same names stay what they are. */
#ifndef AGENTD_FUZZ_WORLD_H
#define AGENTD_FUZZ_WORLD_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- of every target ---- */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* A promise of the code that does not hold: a finding. */
#define promise(holds) ((holds) ? (void)0 : broken_promise(#holds, __FILE__, __LINE__))
__attribute__((noreturn)) void broken_promise(const char *what, const char *file, int line);

/* Calls BODY; false when agentd has ended its process instead (its status is world_status). What
 * BODY has allocated and not freed is then given back. */
bool world_runs(void (*body)(void *context), void *context);
extern int world_status;
/* Ends BODY from a stub in the place of something that does not return. */
__attribute__((noreturn)) void world_leave(int status);

/* Allocations that are alive; and an end to those made after a mark. */
size_t world_allocations(void);
void world_free_all(void);

/* The clock stands still but for this. */
void world_pass_ms(int64_t ms);

/* A descriptor to read SIZE bytes from. */
int world_input(const void *bytes, size_t size);
size_t world_open_descriptors(void);

/* The input, taken apart from its front. */
struct taker {
    const uint8_t *at;
    const uint8_t *end;
};

static inline bool taker_empty(const struct taker *t) { return t->at == t->end; }
static inline uint8_t take_byte(struct taker *t) { return taker_empty(t) ? 0 : *t->at++; }
static inline uint32_t take_number(struct taker *t, size_t bytes) {
    uint32_t value = 0;

    while (bytes--)
        value = value << 8 | take_byte(t);
    return value;
}
/* At most MOST bytes; *N says how many there are. */
static inline const uint8_t *take_bytes(struct taker *t, size_t most, size_t *n) {
    const uint8_t *start = t->at;
    size_t left = (size_t)(t->end - t->at);

    *n = most < left ? most : left;
    t->at += *n;
    return start;
}

/* ---- in the place of the system's ---- */

void *world_malloc(size_t size);
void *world_calloc(size_t count, size_t size);
void *world_realloc(void *old, size_t size);
void world_free(void *p);
void *world_mmap(size_t size);
int world_munmap(void *p);
int world_clock_gettime(struct timespec *out);

#ifndef WORLD_IMPLEMENTATION
#define malloc(size) world_malloc(size)
#define calloc(count, size) world_calloc(count, size)
#define realloc(old, size) world_realloc(old, size)
#define free(p) world_free(p)
#define mmap(at, size, protection, flags, fd, offset) world_mmap(size)
#define munmap(p, size) world_munmap(p)
#define madvise(p, size, advice) 0
#define clock_gettime(clock, out) world_clock_gettime(out)
#define _exit(status) world_leave(status)
/* A target that lets these happen says how. */
#define fork() world_fork()
#define vfork() world_fork()
#define kill(pid, sig) world_kill(pid, sig)
#define waitpid(pid, status, options) world_waitpid(pid, status, options)
#define epoll_wait(fd, events, most, timeout) world_epoll_wait(fd, events, most, timeout)
#define getrandom(to, n, flags) world_getrandom(to, n)
#define signalfd(fd, set, flags) world_signalfd()
#define accept4(fd, address, size, flags) world_accept()
#define pipe2(fds, flags) world_pipe2(fds, flags)
#define socketpair(domain, type, protocol, fds) world_socketpair(domain, type, protocol, fds)
#define socket(domain, type, protocol) world_socket()
#define connect(fd, address, size) world_connect(fd, address, size)
#define execve(file, argv, envp) no_such_call_in_a_fuzzed_program(file, argv, envp)
#endif

pid_t world_fork(void);
int world_kill(pid_t pid, int sig);
pid_t world_waitpid(pid_t pid, int *status, int options);
int world_epoll_wait(int fd, struct epoll_event *events, int most, int timeout);
ssize_t world_getrandom(void *to, size_t n);
int world_signalfd(void);
int world_accept(void);
int world_pipe2(int fds[2], int flags);
int world_socketpair(int domain, int type, int protocol, int fds[2]);
int world_socket(void);
int world_connect(int fd, const struct sockaddr *address, socklen_t size);

#endif
