/* User namespaces and their id maps. */
#ifndef AGENTD_LAUNCH_IDS_H
#define AGENTD_LAUNCH_IDS_H

#include "launch_plan.h"
#include <sys/types.h>

/* Host root: a user namespace with these maps, held only by the returned descriptor. */
int ids_make_namespace(const struct id_map *uids, const struct id_map *gids);

/* Everybody else: moves the caller into a new user, mount and network namespace, mapped by the
 * outer map. The three are made in one call because the last two must belong to the first. */
void ids_enter_outer(const struct plan *plan);

/* Writes the inner maps of a child that waits in its new user namespace. */
void ids_map_inner(const struct plan *plan, pid_t child);

#endif
