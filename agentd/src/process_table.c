#include "process_table.h"

#include <string.h>

#define BUCKETS 256

static struct process *by_id[BUCKETS];
static struct process *by_supervisor[BUCKETS];
static size_t record_count;

static struct process **id_bucket(const char *id) {
    uint32_t hash = 2166136261u;

    for (; *id; id++)
        hash = (hash ^ (uint8_t)*id) * 16777619u;
    return &by_id[hash % BUCKETS];
}

static struct process **supervisor_bucket(pid_t pid) {
    return &by_supervisor[(uint32_t)pid % BUCKETS];
}

void process_add(struct process *p) {
    struct process **at = id_bucket(p->id);

    p->next_by_id = *at;
    *at = p;
    p->recorded = true;
    record_count++;
    at = supervisor_bucket(p->supervisor);
    p->next_by_supervisor = *at;
    *at = p;
}

void process_remove_record(struct process *p) {
    struct process **at = id_bucket(p->id);

    while (*at != p)
        at = &(*at)->next_by_id;
    *at = p->next_by_id;
    p->recorded = false;
    record_count--;
}

void process_remove_supervisor(struct process *p) {
    struct process **at = supervisor_bucket(p->supervisor);

    while (*at != p)
        at = &(*at)->next_by_supervisor;
    *at = p->next_by_supervisor;
    p->supervisor = 0;
}

struct process *process_find(const char *id) {
    for (struct process *p = *id_bucket(id); p; p = p->next_by_id) {
        if (strcmp(p->id, id) == 0)
            return p;
    }
    return NULL;
}

struct process *process_find_supervised(pid_t supervisor) {
    struct process *p = *supervisor_bucket(supervisor);

    while (p && p->supervisor != supervisor)
        p = p->next_by_supervisor;
    return p;
}

size_t process_count(void) { return record_count; }

void process_each(void (*fn)(struct process *p, void *context), void *context) {
    for (size_t i = 0; i < BUCKETS; i++) {
        for (struct process *p = by_id[i]; p; p = p->next_by_id)
            fn(p, context);
    }
}

bool process_any_unfinished(void) {
    for (size_t i = 0; i < BUCKETS; i++) {
        if (by_supervisor[i])
            return true;
        for (struct process *p = by_id[i]; p; p = p->next_by_id) {
            if (p->state != PROCESS_ENDED)
                return true;
        }
    }
    return false;
}
