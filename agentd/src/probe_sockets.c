/* Socket families, and what of a network is there. No byte is ever sent: the one datagram that is, to an
 * address that nobody has, is empty. */
#define _GNU_SOURCE
#include "probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "network_rules.h"
#include "util.h"

#define NETLINK 16

/* Of any type. If none can be made: why the first could not, unless only its type was wrong. */
static void try_family(struct probe_answer *answer, const struct probe_try *self) {
    static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET, SOCK_RAW};
    int error = 0;

    for (size_t i = 0; i < COUNT_OF(types); i++) {
        int fd = socket((int)self->number, types[i] | SOCK_CLOEXEC, 0);

        if (fd >= 0) {
            answer_word(answer, "ok");
            return;
        }
        if (!error || (errno != EPERM && errno != EAFNOSUPPORT))
            error = errno;
    }
    errno = error;
    answer_result(answer, -1);
}

static void try_socket(struct probe_answer *answer, const struct probe_try *self) {
    answer_result(answer, socket((int)self->args[0], (int)self->args[1] | SOCK_CLOEXEC,
                                 (int)self->args[2]));
}

/* Every protocol of netlink but the one of routes. */
static void try_netlink(struct probe_answer *answer, const struct probe_try *self) {
    (void)self;
    for (int protocol = 1; protocol < 32; protocol++) {
        int fd = socket(NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);

        if (fd >= 0) {
            answer_add(answer, "%d", protocol);
            close(fd);
        }
    }
    answer_values(answer);
}

/* Names of interfaces other than loopback, out of a file that has them in a column. */
static void try_interfaces(struct probe_answer *answer, const struct probe_try *self) {
    FILE *file = fopen(self->path, "re");
    char line[512];

    if (!file)
        return answer_result(answer, -1);
    for (int number = 0; fgets(line, sizeof line, file); number++) {
        char *end = number < 2 ? NULL : strchr(line, ':');
        char *name = line;

        if (!end)
            continue;
        *end = 0;
        while (*name == ' ')
            name++;
        if (strcmp(name, "lo") != 0)
            answer_add(answer, "%s", name);
    }
    answer_values(answer);
}

static void try_routes(struct probe_answer *answer, const struct probe_try *self) {
    FILE *file = fopen("/proc/self/net/route", "re");
    char line[512], name[64], to[64];

    (void)self;
    if (!file)
        return answer_result(answer, -1);
    for (int number = 0; fgets(line, sizeof line, file); number++)
        if (number > 0 && sscanf(line, "%63s %63s", name, to) == 2)
            answer_add(answer, "%s %s", name, to);
    answer_values(answer);
}

/* A datagram socket's connect asks for a route and sends nothing. */
static void try_route_to(struct probe_answer *answer, const struct probe_try *self) {
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(53)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(53)};
    bool is_six = strchr(self->path, ':') != NULL;
    int fd = socket(is_six ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return answer_result(answer, fd);
    if (is_six && inet_pton(AF_INET6, self->path, &six.sin6_addr) == 1)
        answer_result(answer, connect(fd, (struct sockaddr *)&six, sizeof six));
    else if (inet_pton(AF_INET, self->path, &four.sin_addr) == 1)
        answer_result(answer, connect(fd, (struct sockaddr *)&four, sizeof four));
}

/* The sockets that a way out leads to are for what the rules turn round to them. */
static void try_gateway_dial(struct probe_answer *answer, const struct probe_try *self) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(GATEWAY_PORT)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)self;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    answer_result(answer, fd < 0 ? fd : connect(fd, (struct sockaddr *)&to, sizeof to));
}

static void try_gateway_bind(struct probe_answer *answer, const struct probe_try *self) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(GATEWAY_PORT)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)self;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    answer_result(answer, fd < 0 ? fd : bind(fd, (struct sockaddr *)&at, sizeof at));
}

/* To the port that throws everything away. */
static void try_datagram_out(struct probe_answer *answer, const struct probe_try *self) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (inet_pton(AF_INET, self->path, &to.sin_addr) != 1)
        return;
    ssize_t sent = fd < 0 ? fd : sendto(fd, "", 0, MSG_NOSIGNAL, (struct sockaddr *)&to, sizeof to);
    answer_result(answer, sent < 0 ? -1 : fd);
}

static void try_host_tcp(struct probe_answer *answer, const struct probe_try *self) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)probe_bait.tcp_port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)self;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd >= 0 && probe_bait.tcp_port == 0)
        return answer_word(answer, "none");
    answer_result(answer, fd < 0 ? fd : connect(fd, (struct sockaddr *)&to, sizeof to));
}

static void try_host_abstract(struct probe_answer *answer, const struct probe_try *self) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t n = probe_bait.abstract ? strlen(probe_bait.abstract) : 0;

    (void)self;
    if (fd < 0)
        return answer_result(answer, fd);
    if (n == 0 || n >= sizeof to.sun_path)
        return answer_word(answer, "none");
    memcpy(to.sun_path + 1, probe_bait.abstract, n);
    answer_result(answer, connect(fd, (struct sockaddr *)&to,
                                  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)));
}

/* Names of the unix sockets in this network namespace that are no files of ours. */
static void try_unix_names(struct probe_answer *answer, const struct probe_try *self) {
    FILE *file = fopen("/proc/self/net/unix", "re");
    char line[512];

    (void)self;
    if (!file)
        return answer_result(answer, -1);
    for (int number = 0; fgets(line, sizeof line, file); number++) {
        char *name = strpbrk(line, "/@");

        if (number == 0 || !name)
            continue;
        name[strcspn(name, "\n")] = 0;
        if (*name == '/' && access(name, F_OK) < 0)
            answer_add(answer, "%s", name);
    }
    answer_values(answer);
}

/* Sets the flags that loopback has: no change, and yet a change of the network. */
static void try_configure(struct probe_answer *answer, const struct probe_try *self) {
    struct ifreq request = {.ifr_name = "lo"};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    (void)self;
    if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &request) < 0)
        return answer_result(answer, -1);
    answer_result(answer, ioctl(fd, SIOCSIFFLAGS, &request));
}

#define FAMILY(name, number) {"socket." name, try_family, NULL, number, {0}}

const struct probe_try probe_sockets[] = {
    FAMILY("unspec", 0),     FAMILY("unix", 1),       FAMILY("inet", 2),
    FAMILY("ax25", 3),       FAMILY("ipx", 4),        FAMILY("appletalk", 5),
    FAMILY("netrom", 6),     FAMILY("bridge", 7),     FAMILY("atmpvc", 8),
    FAMILY("x25", 9),        FAMILY("inet6", 10),     FAMILY("rose", 11),
    FAMILY("decnet", 12),    FAMILY("netbeui", 13),   FAMILY("security", 14),
    FAMILY("key", 15),       FAMILY("netlink", 16),   FAMILY("packet", 17),
    FAMILY("ash", 18),       FAMILY("econet", 19),    FAMILY("atmsvc", 20),
    FAMILY("rds", 21),       FAMILY("sna", 22),       FAMILY("irda", 23),
    FAMILY("pppox", 24),     FAMILY("wanpipe", 25),   FAMILY("llc", 26),
    FAMILY("ib", 27),        FAMILY("mpls", 28),      FAMILY("can", 29),
    FAMILY("tipc", 30),      FAMILY("bluetooth", 31), FAMILY("iucv", 32),
    FAMILY("rxrpc", 33),     FAMILY("isdn", 34),      FAMILY("phonet", 35),
    FAMILY("ieee802154", 36), FAMILY("caif", 37),     FAMILY("alg", 38),
    FAMILY("nfc", 39),       FAMILY("vsock", 40),     FAMILY("kcm", 41),
    FAMILY("qipcrtr", 42),   FAMILY("smc", 43),       FAMILY("xdp", 44),
    FAMILY("mctp", 45),
    {"socket.netlink_others", try_netlink, NULL, 0, {0}},
    {"socket.raw", try_socket, NULL, 0, {AF_INET, SOCK_RAW, IPPROTO_ICMP}},
    {"socket.inet_packet", try_socket, NULL, 0, {AF_INET, SOCK_PACKET, 0}},
    {"socket.sctp", try_socket, NULL, 0, {AF_INET, SOCK_STREAM, 132}},
    {"socket.mptcp", try_socket, NULL, 0, {AF_INET, SOCK_STREAM, 262}},
    {"network.interfaces", try_interfaces, "/proc/self/net/dev", 0, {0}},
    {"network.routes", try_routes, NULL, 0, {0}},
    {"network.route_out", try_route_to, "198.51.100.1", 0, {0}},
    {"network.route_out6", try_route_to, "2001:db8::1", 0, {0}},
    {"network.metadata", try_route_to, "169.254.169.254", 0, {0}},
    {"network.datagram_out", try_datagram_out, "198.51.100.1", 0, {0}},
    {"network.gateway_dial", try_gateway_dial, NULL, 0, {0}},
    {"network.gateway_bind", try_gateway_bind, NULL, 0, {0}},
    {"network.host_tcp", try_host_tcp, NULL, 0, {0}},
    {"network.host_abstract", try_host_abstract, NULL, 0, {0}},
    {"network.unix_names", try_unix_names, NULL, 0, {0}},
    {"network.configure", try_configure, NULL, 0, {0}},
    {0},
};
