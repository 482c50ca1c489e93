/* Bytes between a guest's descriptor and a stream of the host, under credit. */
#ifndef AGENTD_FLOW_H
#define AGENTD_FLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loop.h"
#include "spool.h"
#include "streams.h"

#define FLOW_WINDOW 262144u
#define FLOW_WINDOW_MAX 16777216u

/* From the guest to the host. */
struct source {
    struct watch watch;
    struct spool spool;
    uint64_t sent;     /* offset of the next byte for the host */
    uint64_t limit;    /* offset up to which the host takes bytes */
    uint64_t consumed; /* offset up to which it needs no byte again, once it was sent */
    uint8_t channel;
    bool started;
    bool eof;     /* the descriptor is closed */
    bool discard; /* what comes is read and thrown away */
    bool queued;
    struct stream *stream; /* NULL: nobody listens */
    struct source *next_ready;
    struct timer retry;
    /* Bytes were read or sent, or the end of file was seen. May free the source. */
    void (*changed)(struct source *source);
};

/* FD is owned from now on; non-blocking; -1 is one at its end. KEEP and ROLLING are the spool's.
 * Nothing is read before source_start. */
void source_init(struct source *s, int fd, uint8_t channel, uint64_t keep, bool rolling,
                 void (*changed)(struct source *));
void source_start(struct source *s);
/* Sends to STREAM from OFFSET on (as near to it as is kept), WINDOW bytes at first. */
void source_attach(struct source *s, struct stream *stream, uint64_t offset, uint64_t window);
void source_detach(struct source *s);
void source_credit(struct source *s, uint32_t bytes);
/* Reads once, within the room of the spool; true when there was something. Does not call CHANGED. */
bool source_read(struct source *s);
/* Everything from here on is thrown away. */
void source_discard(struct source *s);
void source_free(struct source *s);
static inline bool source_all_sent(const struct source *s) { return s->sent == s->spool.end; }

/* From the host to the guest. */
struct sink {
    struct watch watch;
    struct spool queue;
    uint64_t granted;  /* the host may send up to this offset; queue.end is what it has sent */
    uint64_t returned; /* of queue.base, what was already granted anew */
    bool tty;          /* end of file is a character */
    bool socket;       /* end of file is a shutdown */
    bool eof;          /* the host has sent all */
    bool closed;       /* nothing more can be written; what comes is thrown away */
    bool mid_line;     /* tty: the last byte written was no newline */
    struct stream *stream;
    /* It was closed, from the event loop. May be NULL; may free the sink. */
    void (*changed)(struct sink *sink);
};

void sink_init(struct sink *s, int fd);
void sink_attach(struct sink *s, struct stream *stream);
/* What a host that attaches now may send at first. */
uint64_t sink_credit(const struct sink *s);
/* Negative: more than was granted. */
int sink_data(struct sink *s, const uint8_t *bytes, size_t n);
void sink_eof(struct sink *s);
void sink_free(struct sink *s);

/* Sends what may be sent, in turns; part of the loop's settling. */
void flow_settle(void);

#endif
