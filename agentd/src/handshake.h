/* Who may become the host. */
#ifndef AGENTD_HANDSHAKE_H
#define AGENTD_HANDSHAKE_H

/* Accepts from the listening socket for ever; a connection that has proved itself goes to conn_adopt. */
void handshake_init(void);

#endif
