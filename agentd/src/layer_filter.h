/* What a process that unpacks or packs may ask of the kernel: files below its root, and memory. */
#ifndef AGENTD_LAYER_FILTER_H
#define AGENTD_LAYER_FILTER_H

#include <stdbool.h>

/* From here on every other call fails with EPERM. Needs no_new_privs. False: errno says why not. */
bool layer_filter_install(void);

#endif
