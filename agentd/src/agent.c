/* PID 1 of a sandbox.
 *
 * It starts with a listening socket (3) and the boot configuration (4, or stdin), and with nothing of
 * the host in its environment or arguments. It never executes anything itself: a process of the
 * sandbox comes from a supervisor, which is a fork of this one (supervisor.c, spawn.c). */
#define _GNU_SOURCE
#include "agent.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "boot.h"
#include "conn.h"
#include "flow.h"
#include "guard.h"
#include "handshake.h"
#include "loop.h"
#include "process.h"
#include "spool.h"
#include "streams.h"
#include "util.h"

/* After SIGKILL to all, so long for the kernel to end them; and for the last frame to leave. */
#define GONE_MS 2000
#define LAST_WORDS_MS 1000

#define LISTEN_FD 3
#define BOOT_FD 4

static struct timer no_host;
static struct timer ending_timer;
static bool ending, ending_killed;
static uint32_t ending_stream;

bool agent_is_ending(void) { return ending; }

static __attribute__((noreturn)) void end_sandbox(void) {
    if (ending_stream) {
        answer_end(ending_stream, NULL);
        conn_drain(LAST_WORDS_MS);
    }
    _exit(0);
}

static void on_ending(struct timer *timer) {
    if (ending_killed)
        end_sandbox();
    ending_killed = true;
    (void)kill(-1, SIGKILL);
    timer_set(timer, now_ms() + GONE_MS);
}

void agent_shutdown(uint32_t stream, uint64_t grace_ms) {
    if (ending) {
        answer_error(stream, "refused", "the sandbox is shutting down");
        return;
    }
    ending = true;
    ending_stream = stream;
    if (grace_ms) {
        (void)kill(-1, SIGTERM);
        /* One that is stopped cannot act on it. */
        (void)kill(-1, SIGCONT);
    }
    timer_set(&ending_timer, now_ms() + (int64_t)grace_ms);
}

void agent_host_came(void) { timer_stop(&no_host); }

void agent_host_lost(void) {
    if (boot.ephemeral)
        _exit(0);
    ending_stream = 0;
}

static void on_no_host(struct timer *timer) {
    (void)timer;
    _exit(0);
}

/* Answers to what was read; then output, as much as the socket takes; then what that has ended. */
static void settle(void) {
    conn_settle();
    flow_settle();
    conn_settle();
    if (ending && !process_any_left())
        end_sandbox();
}

/* Where an engine lets in no descriptors but stdio, the configuration is there. */
static void read_configuration(void) {
    if (fcntl(BOOT_FD, F_GETFD) >= 0) {
        boot_read(BOOT_FD);
        return;
    }
    boot_read(STDIN_FILENO);
    if (open("/dev/null", O_RDWR) != STDIN_FILENO)
        die("/dev/null");
}

void agent_main(void) {
    guard_first();
    read_configuration();
    guard_capabilities(boot.caps);
    spool_set_budget(boot.spool_max);
    loop_init();
    no_host.fn = on_no_host;
    ending_timer.fn = on_ending;
    process_init();
    conn_init();
    handshake_init(LISTEN_FD);
    if (boot.ephemeral)
        timer_set(&no_host, now_ms() + (int64_t)boot.connect_ms);
    loop_run(settle);
}
