/* How agentd guards itself from the processes it runs, which may have its uid. */
#ifndef AGENTD_GUARD_H
#define AGENTD_GUARD_H

#include <stdint.h>

#include "msgpack.h"

/* The first act of PID 1, before anything of the configuration is in memory: not dumpable, so that
 * no process without CAP_SYS_PTRACE can read, trace or take descriptors from it; no core file; no
 * descriptor but stdio, 3 and 4, and none that survives an exec; every signal at its default and
 * blocked (PID 1 of a pid namespace gets no signal from inside that it has no handler for). */
void guard_first(void);
/* The soft RLIMIT_NOFILE agentd was started with, where it has raised its own; else 0. */
uint64_t guard_inherited_nofile(void);
/* Keeps of the capabilities what starting and killing processes takes, what processes of uid 0 may
 * have (MASK), and one that they never get, so that agentd's set is never a subset of theirs. */
void guard_capabilities(uint64_t mask);
/* The `guard` map of the handshake: what the kernel says now, not what was intended. */
void guard_describe(struct mp_map *map);

#endif
