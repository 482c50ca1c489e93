/* The one authenticated connection to the host. */
#ifndef AGENTD_CONN_H
#define AGENTD_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "frames.h"

void conn_init(void);
/* FD has proved that it is the host's (handshake.c) and takes the place of an older one. What READER
 * holds comes first; it is empty afterwards. */
void conn_adopt(int fd, struct frame_reader *reader);

bool conn_is_up(void);
/* Queues one frame for the host. Without a host it is dropped: whoever comes next attaches anew.
 *
 * The queue is bounded. It holds answers and events only; while it is long nothing more is read from
 * the host, so a host that asks and does not read cannot fill it. Output of processes is never
 * queued, see conn_send_output. */
void conn_send(uint32_t stream, uint8_t type, const void *payload, size_t n);
/* DATA with a copy of the bytes. */
void conn_send_data(uint32_t stream, uint8_t channel, const void *bytes, size_t n);
/* Nothing waits in the queue, and the socket has not said that it is full. */
bool conn_can_send(void);
/* DATA straight from IOV, if the socket can take some of it now: true when it was sent. */
bool conn_send_output(uint32_t stream, uint8_t channel, const struct iovec *iov, int count);

/* Part of the loop's settling: sends, reads what was left, closes what broke. */
void conn_settle(void);
/* Tries for MS milliseconds to get the queue out; for the last words. */
void conn_drain(int ms);

#endif
