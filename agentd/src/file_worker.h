/* File operations as seen from inside a worker: the child of agentd that carries out one of them
 * with the rights of the user it is for, and then ends.
 *
 * A worker has four descriptors: 0 content from the host, 1 content for it, 2 /dev/null, 3 a
 * SOCK_SEQPACKET socket to agentd. On the last one the worker sends one answer, whose first byte
 * says what follows; agentd sends how many bytes of content there were once the host has said that
 * it was all, so that an end of file alone (agentd gave up) is never taken for the end of a file. */
#ifndef AGENTD_FILE_WORKER_H
#define AGENTD_FILE_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "user.h"
#include "util.h"

enum file_op {
    FILE_STAT,
    FILE_READ,
    FILE_WRITE,
    FILE_LIST,
    FILE_MKDIR,
    FILE_MOVE,
    FILE_REMOVE,
    TREE_READ,
    TREE_WRITE,
    FILE_WATCH,
    FILE_OPS,
};

/* Decoded and checked by agentd. */
struct file_request {
    enum file_op op;
    struct user_ids user;
    char *path; /* absolute */
    char *to;   /* absolute */
    char *after;
    bool follow, append, parents, recursive, replace, owners;
    bool has_mode;
    uint64_t mode;
    uint64_t offset, length;
    uint64_t limit;
    uint64_t limit_bytes, limit_files;
    uint64_t window;
};

enum file_answer { FILE_ANSWER_END = 'E', FILE_ANSWER_ERROR = 'F' };
/* An answer holds a few numbers and at most two paths, which are cut to this. */
#define FILE_PATH_MAX 4096u
#define FILE_ANSWER_MAX 16384u
/* A record of channel 0 or 1: u32 length, then the map. */
#define FILE_RECORD_MAX 65536u

/* Runs in the child. */
__attribute__((noreturn)) void file_worker_main(const struct file_request *r, int in, int out,
                                                int control);

/* The operations; each ends by one of the answers. */
void file_do_stat(const struct file_request *r);
void file_do_read(const struct file_request *r);
void file_do_write(const struct file_request *r);
void file_do_list(const struct file_request *r);
void file_do_mkdir(const struct file_request *r);
void file_do_move(const struct file_request *r);
void file_do_remove(const struct file_request *r);
void file_do_tree_read(const struct file_request *r);
void file_do_tree_write(const struct file_request *r);
void file_do_watch(const struct file_request *r);

/* END with MAP (NULL: empty), after all that was written to channel 1. */
__attribute__((noreturn)) void worker_end(const struct buf *map);
/* ERROR with the name of ERR, and the path that failed. */
__attribute__((noreturn)) void worker_fail(int err, const char *path);
/* ERROR with a word that is no errno: `special`, `limit`, `bad_request`. */
__attribute__((noreturn)) void worker_refuse(const char *code, const char *why, const char *path);

/* Content for the host, buffered. */
void worker_write(const void *bytes, size_t n);
void worker_flush(void);
/* MAP as a record, and MAP is emptied. */
void worker_record(struct buf *map);

/* Content from the host; 0 at its end. */
size_t worker_read(void *bytes, size_t n);
/* At the end of the content: true when the host has said that this was all of it. */
bool worker_is_complete(void);

#endif
