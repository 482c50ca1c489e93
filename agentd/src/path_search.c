#include "path_search.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>

int path_search(const char *file, const char *path, int (*attempt)(void *context, const char *file),
                void *context) {
    size_t file_len = strlen(file);
    bool seen_eacces = false;
    int result = ENOENT;

    if (!*file)
        return ENOENT;
    if (strchr(file, '/'))
        return attempt(context, file);
    if (file_len > NAME_MAX)
        return ENAMETOOLONG;
    for (const char *at = path;;) {
        const char *end = strchr(at, ':');
        size_t len = end ? (size_t)(end - at) : strlen(at);
        char candidate[PATH_MAX + NAME_MAX + 2];

        if (len < PATH_MAX) {
            memcpy(candidate, at, len);
            if (len)
                candidate[len++] = '/';
            memcpy(candidate + len, file, file_len + 1);
            result = attempt(context, candidate);
            if (result == EACCES)
                seen_eacces = true;
            else if (result != ENOENT && result != ENOTDIR)
                return result;
        }
        if (!end)
            break;
        at = end + 1;
    }
    return seen_eacces ? EACCES : result == ENOTDIR ? ENOENT : result;
}
