#define _GNU_SOURCE
#include "loop.h"

#include <errno.h>
#include <unistd.h>

#include "util.h"

#define BATCH 64

static int epoll_fd = -1;
static struct epoll_event batch[BATCH];
static int batch_size;

void watch_set(struct watch *watch, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = watch};

    if (watch->events == events || watch->fd < 0)
        return;
    if (events == 0) {
        (void)epoll_ctl(epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
        for (int i = 0; i < batch_size; i++) {
            if (batch[i].data.ptr == watch)
                batch[i].data.ptr = NULL;
        }
    } else if (epoll_ctl(epoll_fd, watch->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, watch->fd,
                         &event) < 0) {
        die("epoll_ctl");
    }
    watch->events = events;
}

void watch_close(struct watch *watch) {
    if (watch->fd < 0)
        return;
    watch_set(watch, 0);
    close(watch->fd);
    watch->fd = -1;
}

/* A binary heap of pointers; slots count from 1, and a timer knows its own. */
static struct timer **heap;
static size_t heap_len, heap_cap;

static void place(struct timer *timer, size_t slot) {
    heap[slot] = timer;
    timer->slot = slot;
}

static void sift(struct timer *timer, size_t slot) {
    while (slot > 1 && heap[slot / 2]->at > timer->at) {
        place(heap[slot / 2], slot);
        slot /= 2;
    }
    for (;;) {
        size_t child = 2 * slot;

        if (child > heap_len)
            break;
        if (child < heap_len && heap[child + 1]->at < heap[child]->at)
            child++;
        if (heap[child]->at >= timer->at)
            break;
        place(heap[child], slot);
        slot = child;
    }
    place(timer, slot);
}

void timer_stop(struct timer *timer) {
    size_t slot = timer->slot;
    struct timer *last;

    if (!slot)
        return;
    timer->slot = 0;
    last = heap[heap_len--];
    if (last != timer)
        sift(last, slot);
}

void timer_set(struct timer *timer, int64_t at) {
    timer_stop(timer);
    timer->at = at;
    if (heap_len + 2 > heap_cap) {
        heap_cap = heap_cap ? 2 * heap_cap : 16;
        heap = xrealloc(heap, heap_cap * sizeof(struct timer *));
    }
    sift(timer, ++heap_len);
}

static void run_timers(void) {
    int64_t now = now_ms();

    while (heap_len && heap[1]->at <= now) {
        struct timer *timer = heap[1];

        timer_stop(timer);
        timer->fn(timer);
    }
}

static int next_wait(void) {
    int64_t left;

    if (!heap_len)
        return -1;
    left = heap[1]->at - now_ms();
    if (left <= 0)
        return 0;
    return left > 3600000 ? 3600000 : (int)left;
}

void loop_init(void) {
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0)
        die("epoll_create1");
}

void loop_run(void (*settle)(void)) {
    for (;;) {
        batch_size = epoll_wait(epoll_fd, batch, BATCH, next_wait());
        if (batch_size < 0) {
            if (errno != EINTR)
                die("epoll_wait");
            batch_size = 0;
        }
        for (int i = 0; i < batch_size; i++) {
            struct watch *watch = batch[i].data.ptr;

            if (watch)
                watch->fn(watch, batch[i].events);
        }
        batch_size = 0;
        run_timers();
        settle();
    }
}
