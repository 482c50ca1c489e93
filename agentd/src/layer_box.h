/* Where layers are unpacked and packed: a process that can reach one directory and nothing else.
 *
 *   agentd unpack PLAN_FD STATUS_FD TAR_FD
 *   agentd pack PLAN_FD STATUS_FD TAR_FD
 *
 * PLAN_FD holds a MessagePack map (docs/reference/layers.md), written by the host side and trusted.
 * What is in the archive, or in the directory that is packed, is not: whatever its names and links say,
 * the root of this process is the layer's directory, everything else is unmounted, and the tar stream
 * and the status are all that is open. Outside of host root that is in a user namespace with the user's
 * own ids; host root keeps the capabilities that files need and no others.
 */
#ifndef AGENTD_LAYER_BOX_H
#define AGENTD_LAYER_BOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "launch_plan.h"

int unpack_main(int argc, char **argv);
int pack_main(int argc, char **argv);

struct box {
    enum id_mode ids;
    uint64_t max_bytes, max_entries;
    char **exclude;
    size_t exclude_count;
    bool sync;
    int root; /* the layer's directory, "/" of this process */
    int tar;
};

/* Reads the plan and goes in; ends the process by launch_fail where that is not possible. */
void box_enter(char **argv, bool writable, struct box *box);

/* The archive, or the tree, is one that we don't take: "E 0 archive WHY NAME". */
__attribute__((noreturn)) void box_refuse(const char *why, const char *name);
/* The system does not do it: "E ERRNO files NAME". */
__attribute__((noreturn)) void box_fail(const char *name);
/* A line of results: "R KEY=NUMBER …". */
void box_report(const char *line);

#endif
