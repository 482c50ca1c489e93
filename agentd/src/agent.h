/* PID 1 of a sandbox: what the modules share. */
#ifndef AGENTD_AGENT_H
#define AGENTD_AGENT_H

#include <stdbool.h>
#include <stdint.h>

#ifndef AGENTD_VERSION
#define AGENTD_VERSION "0.1.0"
#endif

/* Descriptor 3 is the listening socket, 4 the boot configuration. Never returns. */
__attribute__((noreturn)) void agent_main(void);

/* The connection tells: a host has proved itself; it is gone and no other has come. */
void agent_host_came(void);
void agent_host_lost(void);

/* Ends the sandbox: TERM to everything, KILL after GRACE_MS, END on STREAM (0: none), exit. */
void agent_shutdown(uint32_t stream, uint64_t grace_ms);
bool agent_is_ending(void);

#endif
