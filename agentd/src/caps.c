#define _GNU_SOURCE
#include "caps.h"

#include <errno.h>
#include <unistd.h>

#include "sys.h"

struct caps caps_get(void) {
    struct sys_cap_header header = {.version = SYS_CAPABILITY_VERSION_3};
    struct sys_cap_data data[2] = {{0}, {0}};

    if (syscall(SYS_capget, &header, data) < 0)
        return (struct caps){0};
    return (struct caps){
        .effective = data[0].effective | (uint64_t)data[1].effective << 32,
        .permitted = data[0].permitted | (uint64_t)data[1].permitted << 32,
    };
}

bool caps_set(uint64_t mask) {
    struct sys_cap_header header = {.version = SYS_CAPABILITY_VERSION_3};
    uint64_t keep = mask & caps_get().permitted;
    struct sys_cap_data data[2] = {
        {.effective = (uint32_t)keep, .permitted = (uint32_t)keep},
        {.effective = (uint32_t)(keep >> 32), .permitted = (uint32_t)(keep >> 32)},
    };

    /* Kernels without ambient capabilities (before 4.3) have nothing to clear. */
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 && errno != EINVAL)
        return false;
    return syscall(SYS_capset, &header, data) == 0;
}

bool caps_limit_bounding(uint64_t keep) {
    bool may = caps_get().effective & SYS_CAP_BIT(SYS_CAP_SETPCAP);

    for (int cap = 0; cap <= SYS_CAP_LAST; cap++) {
        int held;

        if (keep & SYS_CAP_BIT(cap))
            continue;
        held = prctl(PR_CAPBSET_READ, cap, 0, 0, 0);
        if (held < 0)
            break; /* beyond the kernel's last one */
        if (held && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0 && may)
            return false;
    }
    return true;
}
