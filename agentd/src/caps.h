/* Capability sets as 64-bit masks. */
#ifndef AGENTD_CAPS_H
#define AGENTD_CAPS_H

#include <stdbool.h>
#include <stdint.h>

struct caps {
    uint64_t effective;
    uint64_t permitted;
};

struct caps caps_get(void);
/* Permitted and effective become MASK, as far as they are permitted; inheritable and ambient
 * become empty. */
bool caps_set(uint64_t mask);
/* Drops everything but KEEP from the bounding set. True also when there was nothing to drop, and
 * for a process that may not drop: without CAP_SETPCAP, and with no_new_privs, the bounding set
 * gives nothing. */
bool caps_limit_bounding(uint64_t keep);

#endif
