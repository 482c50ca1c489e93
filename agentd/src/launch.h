/* The launcher: makes a sandbox out of a plan and becomes its PID 1.
 *
 *   agentd launch PLAN_FD STATUS_FD LISTEN_FD RECORD_FD [NETWORK_FD] PARENT_PID
 *
 * PLAN_FD holds one MessagePack map (docs/reference/launch-plan.md), written by the host side and
 * trusted. STATUS_FD takes lines: "P <pid>" when the sandbox's first process exists, or
 * "E <errno> <stage> <detail>" for the first thing that failed. Its end of file without an "E" line
 * means that agentd is running. RECORD_FD takes the guest's pid and start time before the guest may
 * do anything, for whoever has to find it should the host side be killed meanwhile. NETWORK_FD is there
 * if the plan has a network, and gets its sockets (network.h) before the guest exists.
 */
#ifndef AGENTD_LAUNCH_H
#define AGENTD_LAUNCH_H

#include "launch_plan.h"

int launch_main(int argc, char **argv);

/* agentd remove PLAN_FD STATUS_FD: see launch_remove.c. */
int remove_main(int argc, char **argv);

/* agentd measure PLAN_FD STATUS_FD RESULT_FD: see launch_measure.c. */
int measure_main(int argc, char **argv);

/* Says what failed, then ends the process. Every stage has one name, which the host side turns into
 * a cause and a remedy, so a stage is never reported for two different things. */
void launch_fail(const char *stage, const char *detail) __attribute__((noreturn));
void launch_set_status_fd(int fd);
/* The boot configuration, to be read from its beginning. */
int launch_boot_descriptor(const struct plan *plan);
/* FD under a number that no child expects something else under. */
int launch_move_high(int fd);

#endif
