/* The rules of a sandbox's network namespace: everything goes to the gateway, or nowhere. */
#ifndef AGENTD_NETWORK_RULES_H
#define AGENTD_NETWORK_RULES_H

#include <stdint.h>

/* The port of the gateway's two sockets, on 127.0.0.1. Nobody in the guest may bind it
 * (ip_unprivileged_port_start), so none can stand in the gateway's place while it is not there. */
#define GATEWAY_PORT 1
/* The sandbox's own address, on loopback: what programs find when they ask who they are. */
#define OWN_ADDRESS 0x0a00020fU /* 10.0.2.15 */

/* Adds them, all or none, by a NETLINK_NETFILTER socket. 0, also where they are already; -1 and errno,
 * and in *PART what the kernel did not take. */
int rules_add(int fd, const char **part);

#endif
