/* The event loop: descriptors by epoll, timers by a heap. One thread, level-triggered. */
#ifndef AGENTD_LOOP_H
#define AGENTD_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>

/* Lives inside the object that waits. All zero but FD and FN is one that does not wait. */
struct watch {
    int fd;
    uint32_t events; /* what is being waited for; 0: nothing, not even hang-ups */
    void (*fn)(struct watch *watch, uint32_t events);
};

/* Waits for EVENTS from now on; 0 stops. After a stop FN is not called any more, not even for an
 * event of the batch that is being worked on, so the object may be freed. */
void watch_set(struct watch *watch, uint32_t events);
/* Stops and closes. The descriptor is -1 afterwards. */
void watch_close(struct watch *watch);

struct timer {
    int64_t at; /* now_ms() */
    size_t slot; /* 0: not set */
    void (*fn)(struct timer *timer);
};

void timer_set(struct timer *timer, int64_t at);
void timer_stop(struct timer *timer);

void loop_init(void);
/* Runs for ever. SETTLE is called after every batch of events and timers: handlers record what
 * changed, SETTLE acts on it (sends, ends, frees). */
__attribute__((noreturn)) void loop_run(void (*settle)(void));

#endif
