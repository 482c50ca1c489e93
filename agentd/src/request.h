/* An exec request, decoded and checked. */
#ifndef AGENTD_REQUEST_H
#define AGENTD_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "msgpack.h"

#define PROCESS_ID_LEN 20

struct request {
    char id[PROCESS_ID_LEN + 1];
    char **slots; /* argv, one place later */
    char **envp;
    char *cwd;
    char *user; /* NULL: the default one */
    bool has_stdin;
    bool pty;
    uint64_t rows, cols;
    bool job;
    uint64_t timeout_ms; /* 0: none */
    uint64_t window;
    uint64_t spool;
    uint64_t nofile; /* 0: the default */
    uint64_t lost_ms;
};

/* NULL, or what is wrong with it (then there is nothing to free). */
const char *request_parse(const struct mp_value *map, struct request *out);
void request_free(struct request *r);

/* `id` of any operation: true and OUT filled when it is one. */
bool request_id(const struct mp_value *map, char out[PROCESS_ID_LEN + 1]);
/* `window` of any operation; false when it is none. */
bool request_window(const struct mp_value *map, uint64_t *out);

#endif
