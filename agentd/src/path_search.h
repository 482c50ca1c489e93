/* Which file a program's name means. */
#ifndef AGENTD_PATH_SEARCH_H
#define AGENTD_PATH_SEARCH_H

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* Calls TRY with each file that FILE may mean under the search path PATH, as execvp does: one with
 * a slash only with itself; one without with each directory's, an empty one being the current.
 * TRY returns an errno, or does not return (it has executed the file). The result is the errno to
 * report: EACCES if any file was there but not allowed, else that of the last. */
int path_search(const char *file, const char *path, int (*attempt)(void *context, const char *file),
                void *context);

#endif
