/* The arguments of file operations. */
#include <limits.h>
#include <string.h>

#include "files.h"
#include "request.h"

#define LIST_DEFAULT 1000u
#define LIST_MAX 10000u
#define TREE_FILES_DEFAULT 1000000u

static const char *const names[FILE_OPS] = {
    [FILE_STAT] = "file.stat",   [FILE_READ] = "file.read",   [FILE_WRITE] = "file.write",
    [FILE_LIST] = "file.list",   [FILE_MKDIR] = "file.mkdir", [FILE_MOVE] = "file.move",
    [FILE_REMOVE] = "file.remove", [TREE_READ] = "tree.read", [TREE_WRITE] = "tree.write",
    [FILE_WATCH] = "file.watch",
};

static bool get_path(const struct mp_value *map, const char *key, char **out) {
    return mp_get_text(map, key, out) == MP_OK && (*out)[0] == '/';
}

static bool get_mode(const struct mp_value *map, struct file_request *r) {
    enum mp_found found = mp_get_uint(map, "mode", r->op == FILE_MKDIR ? 01777 : 0777, &r->mode);

    r->has_mode = found == MP_OK;
    return found != MP_WRONG;
}

static const char *parse(const struct mp_value *map, struct file_request *r, char **user) {
    const struct mp_value *op = mp_get(map, "op");

    for (r->op = 0; r->op < FILE_OPS && !mp_equals(op, names[r->op]); r->op++)
        continue;
    if (r->op == FILE_OPS)
        return "op";
    if (!get_path(map, "path", &r->path))
        return "path";
    if (r->op == FILE_MOVE && !get_path(map, "to", &r->to))
        return "to";
    if (mp_get_text(map, "user", user) == MP_WRONG)
        return "user";
    if (mp_get_text(map, "after", &r->after) == MP_WRONG)
        return "after";
    if (!get_mode(map, r))
        return "mode";
    if (!request_window(map, &r->window))
        return "window";
    if (mp_get_bool(map, "follow", &r->follow) == MP_WRONG)
        return "follow";
    if (mp_get_bool(map, "append", &r->append) == MP_WRONG)
        return "append";
    if (mp_get_bool(map, "parents", &r->parents) == MP_WRONG)
        return "parents";
    if (mp_get_bool(map, "recursive", &r->recursive) == MP_WRONG)
        return "recursive";
    if (mp_get_bool(map, "replace", &r->replace) == MP_WRONG)
        return "replace";
    if (mp_get_bool(map, "owners", &r->owners) == MP_WRONG)
        return "owners";
    if (mp_get_uint(map, "offset", INT64_MAX, &r->offset) == MP_WRONG)
        return "offset";
    if (mp_get_uint(map, "length", INT64_MAX, &r->length) == MP_WRONG)
        return "length";
    if (mp_get_uint(map, "limit", LIST_MAX, &r->limit) == MP_WRONG || r->limit == 0)
        return "limit";
    if (mp_get_uint(map, "limit_bytes", INT64_MAX, &r->limit_bytes) == MP_WRONG)
        return "limit_bytes";
    if (mp_get_uint(map, "limit_files", INT32_MAX, &r->limit_files) == MP_WRONG)
        return "limit_files";
    return NULL;
}

const char *file_request_parse(const struct mp_value *map, struct file_request *out, char **user) {
    const char *wrong;

    *out = (struct file_request){
        .follow = true,
        .length = INT64_MAX,
        .limit = LIST_DEFAULT,
        .limit_bytes = INT64_MAX,
        .limit_files = TREE_FILES_DEFAULT,
    };
    *user = NULL;
    wrong = parse(map, out, user);
    if (wrong) {
        file_request_free(out);
        free(*user);
        *user = NULL;
    }
    return wrong;
}

void file_request_free(struct file_request *r) {
    free(r->path);
    free(r->to);
    free(r->after);
    r->path = r->to = r->after = NULL;
}
