/* File operations: agentd's side of a worker. */
#ifndef AGENTD_FILES_H
#define AGENTD_FILES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "file_worker.h"
#include "msgpack.h"

/* Every operation named file.* and tree.*. */
void op_file(uint32_t id, const struct mp_value *map);

/* A child that is no supervisor: is it a worker? */
bool file_is_worker(pid_t pid);
/* What wait said of a child. True when it was a worker's. */
bool file_worker_waited(pid_t pid, int status);

/* NULL, or what is wrong with it (then there is nothing to free). */
const char *file_request_parse(const struct mp_value *map, struct file_request *out, char **user);
void file_request_free(struct file_request *r);

#endif
