/* What the protocol calls an entry. */
#ifndef AGENTD_FILE_ENTRY_H
#define AGENTD_FILE_ENTRY_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "msgpack.h"

const char *entry_type(mode_t mode);
/* Milliseconds since 1970; 0 for what was before. */
uint64_t entry_mtime(const struct stat *st);
/* All fields but the name. A link's target is read from NAME in DIR ("": DIR itself). */
void entry_add(struct mp_map *map, const struct stat *st, int dir, const char *name);

#endif
