/* A file that appears whole or not at all. One at a time. */
#ifndef AGENTD_FILE_ATOMIC_H
#define AGENTD_FILE_ATOMIC_H

#include <sys/stat.h>

/* A new file, without a name if the file system can do that, for the directory DIR, which stays
 * the caller's. Its descriptor (mode 0600), or -1 and errno. */
int atomic_begin(int dir);
/* It becomes NAME in its directory, in the place of what had that name: 0, or -1 and errno. */
int atomic_commit(const char *name);
/* Nothing is left of it. Does nothing when there is none. */
void atomic_abandon(void);

/* A symbolic link in the place of what has that name. */
int atomic_link(int dir, const char *name, const char *target);

/* Mode and owner of the file that is being replaced (OLD, may be NULL). What it can't have it does
 * not get; setuid and setgid never. */
void atomic_resemble(int fd, const struct stat *old, int has_mode, mode_t mode);

#endif
