/* Killing whole process trees. */
#ifndef AGENTD_TREE_H
#define AGENTD_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* One tree that has to die: everything below a supervisor, until the owner hears that the
 * supervisor has exited and calls tree_kill_stop; or (supervisor 0) every orphan: what belongs to
 * PID 1 without being a supervisor, because its own was killed, and what is below it. */
struct tree_kill {
    pid_t supervisor;
    bool active;
    bool stopped;    /* nobody was left to stop: kill */
    unsigned passes;
    unsigned quiet;  /* passes in a row that found nobody */
    struct tree_kill *next;
};

/* Holds /proc open: a guest may mount over the path later. */
void tree_init(bool (*is_supervisor)(pid_t pid));
/* That descriptor. */
int tree_proc(void);
/* Begins with the next turn of the event loop and goes on until the tree is gone. */
void tree_kill_start(struct tree_kill *kill);
void tree_kill_stop(struct tree_kill *kill);
/* Processes in the sandbox, without agentd and supervisors. */
size_t tree_count(void);

#endif
