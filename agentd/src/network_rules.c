/* What becomes of a packet that a process of the guest sends. In the order of the kernel's hooks:
 *
 *   track   To the sandbox itself: not tracked. Servers and clients inside talk as much as they like
 *           without filling the table of connections, which costs the machine memory.
 *   limit   New flows over a rate are dropped, and counted: with the short timeouts of network.c that
 *           bounds the table for all the rest. TCP tries again by itself, a second later.
 *   nat     TCP, and datagrams to port 53, are turned round to the gateway's sockets.
 *   filter  What was turned round, and what stays inside, goes on. Nobody else talks to the gateway's
 *           sockets. The rest is counted by kind and refused at once, by an ICMP message, so that
 *           programs learn it at once too.
 *
 * Replies of the gateway's sockets pass as packets to the sandbox's own addresses do. IPv6 needs no
 * rules: loopback is all the routes it has.
 */
#define _GNU_SOURCE
#include "network_rules.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>

#include "netlink.h"

/* linux/netfilter/nf_tables.h: ABI. Attributes are named after the message they are in. */
enum { BATCH_BEGIN = 0x10, BATCH_END = 0x11, SUBSYSTEM = 10 };
enum { NEW_TABLE = SUBSYSTEM << 8, NEW_CHAIN = NEW_TABLE + 3, NEW_RULE = NEW_TABLE + 6, NEW_OBJECT = NEW_TABLE + 18 };
enum { TABLE_NAME = 1 };
enum { CHAIN_TABLE = 1, CHAIN_NAME = 3, CHAIN_HOOK = 4, CHAIN_POLICY = 5, CHAIN_TYPE = 7 };
enum { HOOK_NUMBER = 1, HOOK_PRIORITY = 2, HOOK_OUTPUT = 3 };
enum { OBJECT_TABLE = 1, OBJECT_NAME = 2, OBJECT_TYPE = 3, OBJECT_DATA = 4, OBJECT_COUNTER = 1 };
enum { RULE_TABLE = 1, RULE_CHAIN = 2, RULE_EXPRESSIONS = 4 };
enum { LIST_ELEMENT = 1, EXPRESSION_NAME = 1, EXPRESSION_DATA = 2 };
enum { DATA_VALUE = 1, DATA_VERDICT = 2, VERDICT_CODE = 1 };
enum { REGISTER_VERDICT = 0, REGISTER = 1 };
enum { PAYLOAD_REGISTER = 1, PAYLOAD_BASE = 2, PAYLOAD_OFFSET = 3, PAYLOAD_LENGTH = 4 };
enum { NETWORK_HEADER = 1, TRANSPORT_HEADER = 2 };
enum { LOAD_REGISTER = 1, LOAD_KEY = 2, META_L4PROTO = 16, CT_STATE = 0, CT_STATUS = 2 };
enum { STATE_NEW = 8, STATUS_TURNED = 0x20 /* IPS_DST_NAT */ };
enum { CMP_REGISTER = 1, CMP_OPERATION = 2, CMP_DATA = 3, EQUAL = 0, DIFFERENT = 1 };
enum { BITWISE_FROM = 1, BITWISE_TO = 2, BITWISE_LENGTH = 3, BITWISE_MASK = 4, BITWISE_XOR = 5 };
enum { IMMEDIATE_REGISTER = 1, IMMEDIATE_DATA = 2, REDIRECT_PORT = 1 };
enum { REJECT_TYPE = 1, REJECT_CODE = 2, REJECT_ICMP = 0, REJECT_RESET = 1, PROHIBITED = 13 };
enum { LIMIT_RATE = 1, LIMIT_UNIT = 2, LIMIT_BURST = 3, LIMIT_FLAGS = 5, LIMIT_OVER = 1 };
enum { REFERENCE_TYPE = 1, REFERENCE_NAME = 2 };
enum { DROP = 0, ACCEPT = 1, FAMILY_IP = 2 };

#define TABLE "agentkernel"
#define NEW_FLOWS_A_SECOND 2000

struct message {
    uint8_t family, version;
    uint16_t subsystem;
};

static void begin(struct nl_batch *b, uint16_t type, uint16_t flags) {
    struct message head = {.family = FAMILY_IP};
    nl_begin(b, type, flags | NL_ACK | NL_CREATE, &head, sizeof head);
}

/* Begin and end of what is done as a whole or not at all. */
static void bracket(struct nl_batch *b, uint16_t type) {
    struct message head = {.subsystem = htons(SUBSYSTEM)};
    nl_begin(b, type, 0, &head, sizeof head);
    nl_end(b);
}

static void chain(struct nl_batch *b, const char *name, const char *type, int priority, uint32_t policy) {
    begin(b, NEW_CHAIN, 0);
    nl_text(b, CHAIN_TABLE, TABLE);
    nl_text(b, CHAIN_NAME, name);
    nl_text(b, CHAIN_TYPE, type);
    nl_be32(b, CHAIN_POLICY, policy);
    size_t hook = nl_open(b, CHAIN_HOOK);
    nl_be32(b, HOOK_NUMBER, HOOK_OUTPUT);
    nl_be32(b, HOOK_PRIORITY, (uint32_t)priority);
    nl_close(b, hook);
    nl_end(b);
}

static void counter(struct nl_batch *b, const char *name) {
    begin(b, NEW_OBJECT, 0);
    nl_text(b, OBJECT_TABLE, TABLE);
    nl_text(b, OBJECT_NAME, name);
    nl_be32(b, OBJECT_TYPE, OBJECT_COUNTER);
    nl_close(b, nl_open(b, OBJECT_DATA));
    nl_end(b);
}

/* -- A rule is a list of expressions: each goes on to the next, or ends the rule. -------------------- */

static size_t rule(struct nl_batch *b, const char *chain_name) {
    begin(b, NEW_RULE, NL_APPEND);
    nl_text(b, RULE_TABLE, TABLE);
    nl_text(b, RULE_CHAIN, chain_name);
    return nl_open(b, RULE_EXPRESSIONS);
}

static void end_rule(struct nl_batch *b, size_t opened) {
    nl_close(b, opened);
    nl_end(b);
}

struct expression {
    size_t element, data;
};

static struct expression open_expression(struct nl_batch *b, const char *name) {
    struct expression e = {.element = nl_open(b, LIST_ELEMENT)};
    nl_text(b, EXPRESSION_NAME, name);
    e.data = nl_open(b, EXPRESSION_DATA);
    return e;
}

static void close_expression(struct nl_batch *b, struct expression e) {
    nl_close(b, e.data);
    nl_close(b, e.element);
}

static void data(struct nl_batch *b, uint16_t type, const void *bytes, size_t size) {
    size_t opened = nl_open(b, type);
    nl_bytes(b, DATA_VALUE, bytes, size);
    nl_close(b, opened);
}

static void compare(struct nl_batch *b, uint32_t operation, const void *bytes, size_t size) {
    struct expression e = open_expression(b, "cmp");
    nl_be32(b, CMP_REGISTER, REGISTER);
    nl_be32(b, CMP_OPERATION, operation);
    data(b, CMP_DATA, bytes, size);
    close_expression(b, e);
}

static void load_header(struct nl_batch *b, uint32_t base, uint32_t offset, uint32_t size) {
    struct expression e = open_expression(b, "payload");
    nl_be32(b, PAYLOAD_REGISTER, REGISTER);
    nl_be32(b, PAYLOAD_BASE, base);
    nl_be32(b, PAYLOAD_OFFSET, offset);
    nl_be32(b, PAYLOAD_LENGTH, size);
    close_expression(b, e);
}

static void load(struct nl_batch *b, const char *what, uint32_t key) {
    struct expression e = open_expression(b, what);
    nl_be32(b, LOAD_REGISTER, REGISTER);
    nl_be32(b, LOAD_KEY, key);
    close_expression(b, e);
}

static void if_protocol(struct nl_batch *b, uint32_t operation, uint8_t protocol) {
    load(b, "meta", META_L4PROTO);
    compare(b, operation, &protocol, 1);
}

/* The sandbox itself: 127.0.0.0/8, or its own address. */
static void if_to_loopback(struct nl_batch *b) {
    uint8_t first = 127;
    load_header(b, NETWORK_HEADER, 16, 1);
    compare(b, EQUAL, &first, 1);
}

static void if_to_own_address(struct nl_batch *b) {
    uint32_t address = htonl(OWN_ADDRESS);
    load_header(b, NETWORK_HEADER, 16, 4);
    compare(b, EQUAL, &address, 4);
}

/* TCP, UDP and all that have ports have them in the same place: from, to. */
static void if_port(struct nl_batch *b, uint32_t offset, uint32_t operation, uint16_t port) {
    port = htons(port);
    load_header(b, TRANSPORT_HEADER, offset, 2);
    compare(b, operation, &port, 2);
}
static void if_not_from_gateway(struct nl_batch *b) { if_port(b, 0, DIFFERENT, GATEWAY_PORT); }
static void if_to_port(struct nl_batch *b, uint16_t port) { if_port(b, 2, EQUAL, port); }

/* Of the packet's connection; a packet without one matches nothing. */
static void if_connection(struct nl_batch *b, uint32_t key, uint32_t bit) {
    uint32_t none = 0;
    load(b, "ct", key);
    struct expression e = open_expression(b, "bitwise");
    nl_be32(b, BITWISE_FROM, REGISTER);
    nl_be32(b, BITWISE_TO, REGISTER);
    nl_be32(b, BITWISE_LENGTH, sizeof bit);
    data(b, BITWISE_MASK, &bit, sizeof bit);
    data(b, BITWISE_XOR, &none, sizeof none);
    close_expression(b, e);
    compare(b, DIFFERENT, &none, sizeof none);
}

static void if_over_rate(struct nl_batch *b) {
    struct expression e = open_expression(b, "limit");
    nl_be64(b, LIMIT_RATE, NEW_FLOWS_A_SECOND);
    nl_be64(b, LIMIT_UNIT, 1);
    nl_be32(b, LIMIT_BURST, NEW_FLOWS_A_SECOND);
    nl_be32(b, LIMIT_FLAGS, LIMIT_OVER);
    close_expression(b, e);
}

static void count(struct nl_batch *b, const char *name) {
    struct expression e = open_expression(b, "objref");
    nl_be32(b, REFERENCE_TYPE, OBJECT_COUNTER);
    nl_text(b, REFERENCE_NAME, name);
    close_expression(b, e);
}

static void verdict(struct nl_batch *b, uint32_t code) {
    struct expression e = open_expression(b, "immediate");
    nl_be32(b, IMMEDIATE_REGISTER, REGISTER_VERDICT);
    size_t value = nl_open(b, IMMEDIATE_DATA), inner = nl_open(b, DATA_VERDICT);
    nl_be32(b, VERDICT_CODE, code);
    nl_close(b, inner);
    nl_close(b, value);
    close_expression(b, e);
}

static void do_not_track(struct nl_batch *b) { close_expression(b, open_expression(b, "notrack")); }

static void turn_to_gateway(struct nl_batch *b) {
    uint16_t port = htons(GATEWAY_PORT);
    struct expression e = open_expression(b, "immediate");
    nl_be32(b, IMMEDIATE_REGISTER, REGISTER);
    data(b, IMMEDIATE_DATA, &port, sizeof port);
    close_expression(b, e);
    e = open_expression(b, "redir");
    nl_be32(b, REDIRECT_PORT, REGISTER);
    close_expression(b, e);
}

static void refuse(struct nl_batch *b, uint32_t type) {
    uint8_t code = PROHIBITED;
    struct expression e = open_expression(b, "reject");
    nl_be32(b, REJECT_TYPE, type);
    if (type == REJECT_ICMP) nl_bytes(b, REJECT_CODE, &code, 1);
    close_expression(b, e);
}

/* -- The chains ----------------------------------------------------------------------------------------- */

/* An ICMP message belongs to the flow that it is about, which may be a tracked one. */
static void add_track(struct nl_batch *b, void (*if_inside)(struct nl_batch *)) {
    size_t r = rule(b, "track");
    if_protocol(b, DIFFERENT, IPPROTO_ICMP);
    if_not_from_gateway(b);
    if_inside(b);
    do_not_track(b);
    end_rule(b, r);
}

static void add_limit(struct nl_batch *b) {
    size_t r = rule(b, "limit");
    if_connection(b, CT_STATE, STATE_NEW);
    if_over_rate(b);
    count(b, "limit");
    verdict(b, DROP);
    end_rule(b, r);
}

static void add_exempt(struct nl_batch *b, const char *name, void (*if_inside)(struct nl_batch *)) {
    size_t r = rule(b, name);
    if_inside(b);
    verdict(b, ACCEPT);
    end_rule(b, r);
}

static void add_turn(struct nl_batch *b, uint8_t protocol, uint16_t port) {
    size_t r = rule(b, "nat");
    if_protocol(b, EQUAL, protocol);
    if (port) if_to_port(b, port);
    turn_to_gateway(b);
    end_rule(b, r);
}

static void add_turned(struct nl_batch *b) {
    size_t r = rule(b, "filter");
    if_connection(b, CT_STATUS, STATUS_TURNED);
    verdict(b, ACCEPT);
    end_rule(b, r);
}

/* Not turned round, and yet to the gateway's port: somebody dials it by its number. */
static void add_no_direct(struct nl_batch *b, uint8_t protocol, uint32_t how) {
    size_t r = rule(b, "filter");
    if_protocol(b, EQUAL, protocol);
    if_to_loopback(b);
    if_to_port(b, GATEWAY_PORT);
    refuse(b, how);
    end_rule(b, r);
}

/* KIND counts what PROTOCOL (0: anything) sends. */
static void add_refusal(struct nl_batch *b, uint8_t protocol, const char *kind, uint32_t how) {
    size_t r = rule(b, "filter");
    if (protocol) if_protocol(b, EQUAL, protocol);
    if (kind) count(b, kind);
    refuse(b, how);
    end_rule(b, r);
}

static void fill(struct nl_batch *b) {
    bracket(b, BATCH_BEGIN);
    begin(b, NEW_TABLE, NL_EXCLUSIVE);
    nl_text(b, TABLE_NAME, TABLE);
    nl_end(b);
    counter(b, "udp");
    counter(b, "icmp");
    counter(b, "other");
    counter(b, "limit");
    chain(b, "track", "filter", -300, ACCEPT);
    add_track(b, if_to_loopback);
    add_track(b, if_to_own_address);
    chain(b, "limit", "filter", -150, ACCEPT);
    add_limit(b);
    chain(b, "nat", "nat", -100, ACCEPT);
    add_exempt(b, "nat", if_to_loopback);
    add_exempt(b, "nat", if_to_own_address);
    add_turn(b, IPPROTO_TCP, 0);
    add_turn(b, IPPROTO_UDP, 53);
    chain(b, "filter", "filter", 0, DROP);
    add_turned(b);
    add_no_direct(b, IPPROTO_TCP, REJECT_RESET);
    add_no_direct(b, IPPROTO_UDP, REJECT_ICMP);
    add_exempt(b, "filter", if_to_loopback);
    add_exempt(b, "filter", if_to_own_address);
    /* Every connection is turned round: this is of one that the kernel has forgotten. */
    add_refusal(b, IPPROTO_TCP, NULL, REJECT_RESET);
    add_refusal(b, IPPROTO_UDP, "udp", REJECT_ICMP);
    add_refusal(b, IPPROTO_ICMP, "icmp", REJECT_ICMP);
    add_refusal(b, 0, "other", REJECT_ICMP);
    bracket(b, BATCH_END);
}

/* For whoever has to find out what a kernel lacks. */
static const char *part_of(uint32_t number) {
    static const char *const parts[] = {
        "tables", "table", "counter", "counter", "counter", "counter",
        "chain track", "notrack", "notrack", "chain limit", "limit",
        "chain nat", "nat", "nat", "redirect", "redirect",
    };
    return number - 1 < sizeof parts / sizeof *parts ? parts[number - 1] : "chain filter";
}

int rules_add(int fd, const char **part) {
    static struct nl_batch batch;
    uint32_t failed;
    batch.len = batch.count = 0;
    batch.wants = 0;
    fill(&batch);
    if (nl_exchange(fd, &batch, &failed) == 0) return 0;
    /* The table is made exclusively, and with all that is in it: it was done before. */
    if (errno == EEXIST && failed == 2) return 0;
    *part = failed ? part_of(failed) : "tables";
    return -1;
}
