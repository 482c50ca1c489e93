/* Another engine's sandbox: the root is ours, the namespaces of the guest are an OCI runtime's. */
#ifndef AGENTD_LAUNCH_ENGINE_H
#define AGENTD_LAUNCH_ENGINE_H

#include "launch_plan.h"

/* The keeper: PID 1 of the pid namespace in which the runtime and everything it starts live. Returns
 * never; when it ends, for whatever reason, the kernel ends all of them. */
void keeper_main(const struct plan *plan, int listen_fd) __attribute__((noreturn));

/* agentd keep PID: what the keeper executes itself as when the container runs. */
int keep_main(int argc, char **argv);

#endif
