/* Who may become the host. */
#ifndef AGENTD_HANDSHAKE_H
#define AGENTD_HANDSHAKE_H

/* Accepts from the listening socket (`inherited`, unless boot.listen names one) for ever; a connection that has proved itself goes to conn_adopt. */
void handshake_init(int inherited);

#endif
