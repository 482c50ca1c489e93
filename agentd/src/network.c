/* See network.h. The namespace belongs to the outer user namespace, in which nothing of the guest ever
 * runs: neither its rules nor its settings can be changed, or its rules so much as read, from inside.
 */
#define _GNU_SOURCE
#include "network.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launch.h"
#include "netlink.h"
#include "network_rules.h"

/* Connections that nobody has taken yet; the gateway takes them as they come. */
#define BACKLOG 256
#define LOOPBACK_INDEX 1
#define OWNER_OF_NAMESPACE 0xb701  /* NS_GET_USERNS */
#define PARENT_OF_NAMESPACE 0xb702 /* NS_GET_PARENT */

/* linux/rtnetlink.h, linux/if_addr.h: ABI. */
enum { NEW_ADDRESS = 20, ADDRESS_ADDRESS = 1, ADDRESS_LOCAL = 2 };
enum { NEW_ROUTE = 24, ROUTE_INTERFACE = 4, ROUTE_SOURCE = 7 };
enum { TABLE_MAIN = 254, BY_ADMINISTRATOR = 4, SCOPE_LINK = 253, UNICAST = 1 };

struct address_head {
    uint8_t family, prefix, flags, scope;
    uint32_t index;
};
struct route_head {
    uint8_t family, to_prefix, from_prefix, tos, table, protocol, scope, type;
    uint32_t flags;
};

static int write_setting(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : write(fd, text, strlen(text));
    int saved = errno;
    if (fd >= 0) close(fd);
    errno = saved;
    return n < 0 ? -1 : 0;
}

/* A guest may bind every port but the gateway's. */
void network_set_up_loopback(void) {
    char first[8];
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) < 0) launch_fail("loopback", "lo");
    close(fd);
    snprintf(first, sizeof first, "%d", GATEWAY_PORT + 1);
    if (write_setting("/proc/sys/net/ipv4/ip_unprivileged_port_start", first) < 0)
        launch_fail("loopback", "ports");
}

/* What an ended connection or a datagram costs, and for how long. Kernels differ in which of these they
 * leave to a namespace; without them the rate of new flows is the only bound. */
static void bound_memory(void) {
    static const char *const settings[][2] = {
        {"/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_syn_sent", "20"},
        {"/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_syn_recv", "20"},
        {"/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_time_wait", "5"},
        {"/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close", "5"},
        {"/proc/sys/net/netfilter/nf_conntrack_udp_timeout", "10"},
        {"/proc/sys/net/netfilter/nf_conntrack_udp_timeout_stream", "20"},
        {"/proc/sys/net/ipv4/tcp_max_tw_buckets", "4096"},
        {"/proc/sys/net/ipv4/tcp_tw_reuse", "1"},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        (void)write_setting(settings[i][0], settings[i][1]);
}

static void send_route(const char *stage, const struct nl_batch *batch) {
    uint32_t failed;
    int fd = nl_socket(NL_ROUTE);
    if (fd < 0 || (nl_exchange(fd, batch, &failed) < 0 && errno != EEXIST)) launch_fail(stage, "");
    close(fd);
}

/* An address that is not 127.0.0.1, without which some programs don't even ask for names; and a route
 * for everything, so that there are packets which the rules can turn round. It leads to loopback. */
static void add_address_and_route(void) {
    uint32_t address = htonl(OWN_ADDRESS), index = LOOPBACK_INDEX;
    struct address_head local = {.family = AF_INET, .prefix = 32, .index = LOOPBACK_INDEX};
    struct nl_batch *batch = calloc(1, sizeof *batch);
    if (!batch) launch_fail("memory", "");
    nl_begin(batch, NEW_ADDRESS, NL_CREATE | NL_ACK, &local, sizeof local);
    nl_bytes(batch, ADDRESS_LOCAL, &address, sizeof address);
    nl_bytes(batch, ADDRESS_ADDRESS, &address, sizeof address);
    nl_end(batch);
    send_route("network-address", batch);

    struct route_head route = {.family = AF_INET, .table = TABLE_MAIN, .protocol = BY_ADMINISTRATOR,
                               .scope = SCOPE_LINK, .type = UNICAST};
    memset(batch, 0, sizeof *batch);
    nl_begin(batch, NEW_ROUTE, NL_CREATE | NL_EXCLUSIVE | NL_ACK, &route, sizeof route);
    nl_bytes(batch, ROUTE_INTERFACE, &index, sizeof index);
    nl_bytes(batch, ROUTE_SOURCE, &address, sizeof address);
    nl_end(batch);
    send_route("network-route", batch);
    free(batch);
}

static void add_rules(void) {
    const char *part = "";
    int fd = nl_socket(NL_NETFILTER);
    if (fd < 0) launch_fail("network-rules", "netlink");
    if (rules_add(fd, &part) < 0) launch_fail("network-rules", part);
    close(fd);
}

/* Connections of a gateway before us may still end on this port. */
static int bound_socket(int type) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(GATEWAY_PORT)};
    int one = 1, fd = socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0 ||
        bind(fd, (struct sockaddr *)&at, sizeof at) < 0)
        launch_fail("network-sockets", type == SOCK_STREAM ? "tcp" : "udp");
    return fd;
}

static void send_descriptors(int network_fd, const int *fds, size_t count) {
    union {
        char bytes[CMSG_SPACE(3 * sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec byte = {.iov_base = (char *)"n", .iov_len = 1};
    struct msghdr message = {.msg_iov = &byte, .msg_iovlen = 1, .msg_control = control.bytes,
                             .msg_controllen = CMSG_SPACE(count * sizeof *fds)};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(count * sizeof *fds);
    memcpy(CMSG_DATA(head), fds, count * sizeof *fds);
    if (sendmsg(network_fd, &message, MSG_NOSIGNAL) != 1) launch_fail("network-send", "");
}

/* The rules come first: there is no moment at which a packet could go another way. */
void network_open(int network_fd) {
    add_rules();
    add_address_and_route();
    bound_memory();
    int fds[3] = {bound_socket(SOCK_STREAM), bound_socket(SOCK_DGRAM), nl_socket(NL_NETFILTER)};
    if (fds[2] < 0) launch_fail("network-sockets", "netlink");
    if (listen(fds[0], BACKLOG) < 0) launch_fail("network-sockets", "listen");
    send_descriptors(network_fd, fds, 3);
    for (size_t i = 0; i < 3; i++) close(fds[i]);
}

static void send_rules_socket(int network_fd) {
    int fd = nl_socket(NL_NETFILTER);
    if (fd < 0) launch_fail("network-sockets", "netlink");
    send_descriptors(network_fd, &fd, 1);
}

/* The outer user namespace is a child of ours. One that a guest made is not: there we would be among
 * processes that have every right over us. */
static bool is_child_of_ours(int user) {
    struct stat own, parent;
    int fd = ioctl(user, PARENT_OF_NAMESPACE);
    bool known = fd >= 0 && fstat(fd, &parent) == 0 && stat("/proc/self/ns/user", &own) == 0;
    if (fd >= 0) close(fd);
    return known && parent.st_dev == own.st_dev && parent.st_ino == own.st_ino;
}

/* A network namespace says to which user namespace it belongs: the outer one. Whoever made that, or is
 * root of the machine, has every right in it. */
static void enter(int pid) {
    char path[40];
    snprintf(path, sizeof path, "/proc/%d/ns/net", pid);
    int network = open(path, O_RDONLY | O_CLOEXEC);
    if (network < 0) launch_fail("network-enter", path);
    int user = ioctl(network, OWNER_OF_NAMESPACE);
    if (user < 0) launch_fail("network-enter", "owner");
    if (!is_child_of_ours(user)) launch_fail("network-enter", "not the sandbox's own");
    if (setns(user, CLONE_NEWUSER) < 0 || setns(network, CLONE_NEWNET) < 0)
        launch_fail("network-enter", "namespaces");
    close(user);
    close(network);
}

int network_main(int argc, char **argv) {
    bool only_rules = argc == 6 && !strcmp(argv[5], "rules");
    if (argc != 5 && !only_rules) {
        dprintf(2, "usage: agentd network STATUS_FD NETWORK_FD PID [rules]\n");
        return 2;
    }
    launch_set_status_fd(atoi(argv[2]));
    enter(atoi(argv[4]));
    if (only_rules)
        send_rules_socket(atoi(argv[3]));
    else
        network_open(atoi(argv[3]));
    return 0;
}
