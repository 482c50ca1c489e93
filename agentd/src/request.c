#include "request.h"

#include <string.h>

#include "boot.h"
#include "flow.h"
#include "util.h"

#define SPOOL_DEFAULT 67108864u
#define LOST_DEFAULT_MS 10000

bool request_id(const struct mp_value *map, char out[PROCESS_ID_LEN + 1]) {
    const struct mp_value *id = mp_get(map, "id");

    if (!id || id->type != MP_STR || id->len != PROCESS_ID_LEN)
        return false;
    for (size_t i = 0; i < PROCESS_ID_LEN; i++) {
        char c = (char)id->bytes[i];

        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9'))
            return false;
        out[i] = c;
    }
    out[PROCESS_ID_LEN] = '\0';
    return true;
}

bool request_window(const struct mp_value *map, uint64_t *out) {
    *out = FLOW_WINDOW;
    return mp_get_uint(map, "window", FLOW_WINDOW_MAX, out) != MP_WRONG;
}

static bool parse_argv(const struct mp_value *map, struct request *r) {
    const struct mp_value *argv = NULL;

    if (mp_get_array(map, "argv", &argv) != MP_OK || argv->len == 0)
        return false;
    for (uint32_t i = 0; i < argv->len; i++) {
        if (!mp_is_text(&argv->items[i]))
            return false;
    }
    r->slots = xcalloc((size_t)argv->len + 2, sizeof(*r->slots));
    for (uint32_t i = 0; i < argv->len; i++)
        r->slots[i + 1] = mp_text(&argv->items[i]);
    return true;
}

static bool parse_env(const struct mp_value *map, struct request *r) {
    size_t count = 0;

    switch (mp_get_texts(map, "env", &r->envp, &count)) {
    case MP_ABSENT:
        r->envp = xcalloc(1, sizeof(*r->envp));
        return true;
    case MP_WRONG:
        return false;
    case MP_OK:
        break;
    }
    for (size_t i = 0; i < count; i++) {
        if (!strchr(r->envp[i], '='))
            return false;
    }
    return true;
}

static bool parse_pty(const struct mp_value *map, struct request *r) {
    const struct mp_value *pty = NULL;

    if (mp_get(map, "pty") && mp_get(map, "pty")->type == MP_NIL)
        return true;
    switch (mp_get_map(map, "pty", &pty)) {
    case MP_ABSENT:
        return true;
    case MP_WRONG:
        return false;
    case MP_OK:
        break;
    }
    r->pty = true;
    r->rows = 24;
    r->cols = 80;
    return mp_get_uint(pty, "rows", UINT16_MAX, &r->rows) != MP_WRONG &&
           mp_get_uint(pty, "cols", UINT16_MAX, &r->cols) != MP_WRONG;
}

static const char *parse(const struct mp_value *map, struct request *r) {
    if (!request_id(map, r->id))
        return "id";
    if (!parse_argv(map, r))
        return "argv";
    if (!parse_env(map, r))
        return "env";
    if (mp_get_text(map, "cwd", &r->cwd) == MP_WRONG)
        return "cwd";
    if (mp_get_text(map, "user", &r->user) == MP_WRONG)
        return "user";
    if (mp_get_bool(map, "stdin", &r->has_stdin) == MP_WRONG)
        return "stdin";
    if (!parse_pty(map, r))
        return "pty";
    if (mp_get_bool(map, "job", &r->job) == MP_WRONG)
        return "job";
    if (mp_get_uint(map, "timeout_ms", UINT32_MAX, &r->timeout_ms) == MP_WRONG)
        return "timeout_ms";
    if (!request_window(map, &r->window))
        return "window";
    if (mp_get_uint(map, "spool", UINT64_MAX, &r->spool) == MP_WRONG)
        return "spool";
    if (mp_get_uint(map, "nofile", UINT32_MAX, &r->nofile) == MP_WRONG)
        return "nofile";
    if (mp_get_uint(map, "lost_ms", UINT32_MAX, &r->lost_ms) == MP_WRONG)
        return "lost_ms";
    return NULL;
}

const char *request_parse(const struct mp_value *map, struct request *out) {
    const char *wrong;

    *out = (struct request){.spool = SPOOL_DEFAULT, .lost_ms = LOST_DEFAULT_MS};
    wrong = parse(map, out);
    if (wrong) {
        request_free(out);
        return wrong;
    }
    if (out->spool > boot.spool_max)
        out->spool = boot.spool_max;
    if (!out->cwd)
        out->cwd = boot.cwd ? xmemdup_text(boot.cwd, strlen(boot.cwd)) : xmemdup_text("/", 1);
    if (!out->user && boot.user)
        out->user = xmemdup_text(boot.user, strlen(boot.user));
    return NULL;
}

void request_free(struct request *r) {
    for (char **arg = r->slots ? r->slots + 1 : NULL; arg && *arg; arg++)
        free(*arg);
    free(r->slots);
    mp_free_texts(r->envp);
    free(r->cwd);
    free(r->user);
    *r = (struct request){0};
}
