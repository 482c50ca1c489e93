/* A sandbox's network namespace: loopback, and where it may have one, the way out to the gateway.
 *
 *   agentd network STATUS_FD NETWORK_FD PID [rules]
 *
 * makes that way out, or its sockets anew, for a sandbox that runs. PID is any process in its network
 * namespace. STATUS_FD takes an "E" line as in launch.h. With `rules`, nothing is made but the last of
 * the three sockets.
 *
 * NETWORK_FD is a unix stream socket, which gets one byte with three descriptors: the listening TCP
 * socket, the UDP socket for names, and a netlink socket to read by what the rules have counted.
 */
#ifndef AGENTD_NETWORK_H
#define AGENTD_NETWORK_H

/* In the namespace that the caller is in, as its root. Ends the process by launch_fail. */
void network_set_up_loopback(void);
void network_open(int network_fd);

int network_main(int argc, char **argv);

#endif
