/* Pseudo-terminals of the sandbox's own devpts. */
#ifndef AGENTD_PTY_H
#define AGENTD_PTY_H

#include <stdint.h>

#include "user.h"

/* Both ends, close-on-exec; the slave belongs to the user. 0 or an errno. */
int pty_open(const struct user_ids *user, uint64_t rows, uint64_t cols, int *master, int *slave);
/* The kernel tells the terminal's foreground group by SIGWINCH. */
void pty_resize(int master, uint64_t rows, uint64_t cols);

#endif
