/* What the sandbox as a whole has used, and which of its file systems have no room left. */
#ifndef AGENTD_USAGE_H
#define AGENTD_USAGE_H

#include "msgpack.h"

/* Adds `cpu_us`, `memory_kb`, `disk_kb`, `disk_used_kb` of a `stats` answer. */
void usage_describe(struct mp_map *map);

/* A bit for each file system that is full now. */
unsigned usage_full(void);
/* Adds them as `full`, if there are any. */
void usage_describe_full(unsigned full, struct mp_map *map);

#endif
