/* What an OPEN asks for. */
#ifndef AGENTD_OPS_H
#define AGENTD_OPS_H

#include <stdint.h>

#include "msgpack.h"

/* Answers on stream ID, or opens it. MAP is valid during the call. */
void ops_open(uint32_t id, const struct mp_value *map);

/* The ones about processes. */
void op_exec(uint32_t id, const struct mp_value *map);
void op_attach(uint32_t id, const struct mp_value *map);
void op_list(uint32_t id, const struct mp_value *map);
void op_signal(uint32_t id, const struct mp_value *map);
void op_forget(uint32_t id, const struct mp_value *map);
/* Bytes to and from a port. */
void op_tcp(uint32_t id, const struct mp_value *map);

#endif
