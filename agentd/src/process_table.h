/* Finding processes: by id while they have a record, by supervisor while that lives. */
#ifndef AGENTD_PROCESS_TABLE_H
#define AGENTD_PROCESS_TABLE_H

#include <stdbool.h>
#include <sys/types.h>

#include "process.h"

/* Under its id and its supervisor; it has both. */
void process_add(struct process *p);
void process_remove_record(struct process *p);
void process_remove_supervisor(struct process *p);

struct process *process_find_supervised(pid_t supervisor);
/* A supervisor lives, or a record has not ended. */
bool process_any_unfinished(void);

#endif
