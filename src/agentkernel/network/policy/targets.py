"""What people write to name a host, and rules that callers write themselves: both checked, and in
the one form that judging compares.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Network, IPv6Network, ip_network

import msgspec

from agentkernel.errors import InvalidInputError
from agentkernel.network.policy.addresses import own_addresses, special_range
from agentkernel.network.policy.model import (
    ANY_NAME,
    DEFAULT_PORTS,
    MCP_MACHINE,
    THIS_MACHINE,
    Rule,
)
from agentkernel.network.policy.names import Address, written_name
from agentkernel.network.policy.paths import canonical_path

_PREFIX = re.compile(r"(splice|private):(?!\*?\Z|[0-9]+\Z)")
_METHOD = re.compile(r"[A-Z][A-Z0-9_-]{0,31}\Z")
_SYNTHETIC = IPv4Network("198.18.0.0/15")
_MOST_VALUES = 64
_LONGEST_PATH = 1024
_LONGEST_SOURCE = 300
_HINT = (
    "write HOST, HOST:PORT, HOST:* (every port), *.HOST, ADDRESS, CIDR or [IPV6]:PORT; "
    "before it splice: or private:"
)


def parse_target(text: str, *, source: str, deny: bool = False) -> Rule:
    """`HOST`, `HOST:PORT`, `HOST:*`, `*.HOST`, `*`, `ADDRESS`, `CIDR`, `[IPV6]:PORT`, and `splice:`
    or `private:` before any.

    Without a port, ports 80 and 443 are allowed and every port is denied. Raises InvalidInputError
    that says what is wrong with it.
    """
    rest, words = text, set[str]()
    while match := _PREFIX.match(rest):
        words.add(match[1])
        rest = rest[match.end() :]
    try:
        host, port = split_port(rest)
        named = bool(port) and port != "*"
        ports = (parse_port(port),) if named else () if deny or port == "*" else DEFAULT_PORTS
        rule = Rule(
            action="deny" if deny else "allow",
            host=_host(host),
            ports=ports,
            private="private" in words,
            tls="splice" if "splice" in words else "auto",
            source=source,
        )
        if not deny:
            rule = _allowed(rule, port_named=named)
        elif words:
            raise InvalidInputError(f"{words.pop()}: is for what is allowed")
    except InvalidInputError as exc:
        shown = ascii(text if len(text) <= 300 else text[:297] + "...")
        raise InvalidInputError(
            f"{shown} can't be a target: {exc.message}", hint=exc.hint or _HINT
        ) from None
    return rule


def check_rule(rule: Rule, *, source: str = "") -> Rule:
    """A caller's own rule in canonical form. `source`: for one that names none.

    Raises InvalidInputError.
    """
    for values in (rule.ports, rule.methods, rule.paths):
        if len(values) > _MOST_VALUES:
            raise InvalidInputError(
                f"the rule for {rule.host!a} has {len(values)} ports, methods or paths; "
                f"{_MOST_VALUES} are the most"
            )
    methods = tuple(dict.fromkeys(method.upper() for method in rule.methods))
    for method in methods:
        if not _METHOD.match(method):
            raise InvalidInputError(f"{method!a} is not a method")
    if rule.tls == "splice" and (methods or rule.paths):
        raise InvalidInputError(
            f"the rule for {rule.host!a} asks for methods or paths, and for TLS not to be looked "
            "into",
            hint='leave out methods and paths, or "tls"',
        )
    if len(rule.source) > _LONGEST_SOURCE or not rule.source.isprintable():
        raise InvalidInputError(f"a rule's source is printable text up to {_LONGEST_SOURCE} long")
    checked = msgspec.structs.replace(
        rule,
        host=_host(rule.host),
        ports=tuple(sorted(set(rule.ports))),
        methods=methods,
        paths=tuple(dict.fromkeys(_path(path) for path in rule.paths)),
        source=rule.source or source,
    )
    return checked if rule.action == "deny" else _allowed(checked, port_named=bool(rule.ports))


def network_of(host: str) -> IPv4Network | IPv6Network | None:
    """The range of addresses that a rule's host is; None: it is a name. Raises InvalidInputError
    for what looks like a range and is none."""
    if "/" not in host and ":" not in host and not host.rpartition(".")[2].isdigit():
        return None
    try:
        if "%" in host:
            raise ValueError
        return ip_network(host)
    except ValueError as exc:
        hint = None
        if "host bits" in str(exc):
            hint = f"did you mean {ip_network(host, strict=False)}?"
        raise InvalidInputError(f"{host!a} is not an address or a range", hint=hint) from None


def split_port(text: str) -> tuple[str, str]:
    """Host and port, the latter as it is written, or "". Raises InvalidInputError."""
    if "://" in text or "@" in text:
        raise InvalidInputError("it is a URL", hint="write the host alone, or HOST:PORT")
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")) or rest == ":":
            raise InvalidInputError("a bracket has no partner, or no port follows it")
        return host, rest[1:]
    if text.count(":") == 1:
        host, _, port = text.partition(":")
        if not port:
            raise InvalidInputError("no port follows the colon")
        return host, port
    return text, ""


def parse_port(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text[:9]) <= 65535:
        raise InvalidInputError(f"{text!a} is not a port", hint="a port is a number, 1 to 65535")
    return int(text)


def _host(text: str) -> str:
    if text == ANY_NAME:
        return text
    if text.startswith("*."):
        return "*." + written_name(text[2:])
    network = network_of(text)
    if network is None:
        return written_name(text)
    return str(network.network_address if network.num_addresses == 1 else network)


def _path(text: str) -> str:
    stem = text.removesuffix("*")
    if len(text) > _LONGEST_PATH or "*" in stem or (plain := canonical_path(stem)) is None:
        raise InvalidInputError(
            f"{text[:80]!a} is not a path that a rule can hold",
            hint='write /v1/models, or /v1/* for all below; no "..", "//" or escaped slashes',
        )
    return plain + text[len(stem) :]


def _allowed(rule: Rule, *, port_named: bool) -> Rule:
    """With `private` for what can't be meant otherwise; refused where no rule can help."""
    if rule.host in ("localhost", THIS_MACHINE, MCP_MACHINE) or rule.host.endswith(".localhost"):
        return _of_this_machine(rule, port_named)
    network = network_of(rule.host)
    if network is None:
        if rule.private and not port_named:
            raise InvalidInputError(
                "a name that may be a private address needs a port", hint="write private:HOST:PORT"
            )
        return rule
    if network.num_addresses == 1 and _is_own(network.network_address):
        return _of_this_machine(rule, port_named)
    found = special_range(network)
    if found is None:
        return rule
    if found.kind == "never":
        raise InvalidInputError(f"nothing can be reached there: it is {found.words}")
    if isinstance(network, IPv4Network) and network.subnet_of(_SYNTHETIC):
        raise InvalidInputError("inside a sandbox 198.18.0.0/15 stands for names; write the name")
    if found.kind == "loopback":
        return _of_this_machine(rule, port_named)
    if found.kind == "metadata" and network.num_addresses > 1:
        raise InvalidInputError(
            f"it is {found.words}; only single addresses of it can be allowed",
            hint="write just the address that is meant",
        )
    return msgspec.structs.replace(rule, private=True)


def _is_own(address: Address) -> bool:
    try:
        return address in own_addresses()
    except OSError:
        return False  # it is looked at again before it is dialled, and refused if in doubt


def _of_this_machine(rule: Rule, port_named: bool) -> Rule:
    if not port_named:
        raise InvalidInputError(
            "this machine's own services are allowed by a port only",
            hint=f"write {rule.host}:PORT",
        )
    return msgspec.structs.replace(rule, private=True)
