/* Mounts of a sandbox, in two halves that run with different rights. */
#ifndef AGENTD_LAUNCH_MOUNTS_H
#define AGENTD_LAUNCH_MOUNTS_H

#include "launch_plan.h"

#include <sys/types.h>

/* First half, in the launcher's own mount namespace: every host path the sandbox needs becomes a
 * numbered mount in a tmpfs at plan->staging. From here on nobody uses a host path, so none can
 * show up in the guest's mountinfo. `idmap_fd` is a user namespace to idmap by, or -1; `project_fd`
 * the one for sources that are projects, or -1: the same. */
void mounts_stage(const struct plan *plan, int idmap_fd, int project_fd);

/* Second half, in the guest's namespaces: builds the root from the staged mounts and makes it "/".
 * Returns a descriptor of the agentd binary on its read-only mount. */
int mounts_build_root(const struct plan *plan);

/* The same in the keeper's namespaces, for a runtime: the root stays in the bundle, a directory "b"
 * of the staging tmpfs, which becomes the working directory. Returns the agentd binary. */
int mounts_build_bundle(const struct plan *plan);

/* Carries out plan->late in the mount namespace of a process, which the caller then is in for good.
 * Preconditions: the working directory is the staging one; nothing of the guest runs yet. */
void mounts_finish(const struct plan *plan, pid_t container);

#endif
