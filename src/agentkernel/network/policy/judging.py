"""What a policy says of one connection, and of one request."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Literal, NamedTuple

import msgspec

from agentkernel.config.addresses import joined
from agentkernel.network.policy.model import ANY_NAME, OUR_NAMES, TOOLS_HOST, Policy, Rule
from agentkernel.network.policy.names import Address
from agentkernel.network.policy.paths import canonical_path, matches

Outcome = Literal["allow", "deny", "inspect"]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`inspect`: what is decided depends on a method or a path, so the request has to be seen.

    `rule` is the number of the rule that decided, from 1 (None: none did), in the sandbox's policy
    or, `by_floor`, in the operator's floor; `words` is that for people and agents.
    `private`, `port_named` and `exact` are what `addresses.vet` wants to know of the address that
    is dialled: true only if every rule that could let this connection pass says so.
    """

    outcome: Outcome
    words: str
    rule: int | None = None
    source: str = ""
    by_floor: bool = False
    private: bool = False
    port_named: bool = False
    exact: bool = False
    splice: bool = False


def judge_connection(policy: Policy, floor: Policy | None, host: str, port: int) -> Verdict:
    """`host`: a canonical name or an address. Both policies have to allow; but for the daemon's own
    tools, by which nothing is reached."""
    own = _connection(compiled(policy), host, port)
    if floor is None or own.outcome == "deny" or host == TOOLS_HOST:
        return _verdict(own, host, port)
    bound = _connection(compiled(floor), host, port)
    return _both(own, bound, host, port)


def judge_request(
    policy: Policy, floor: Policy | None, host: str, port: int, method: str, path: str
) -> Verdict:
    """As above, once the request is seen; never `inspect`. `path` is without the query."""
    plain = canonical_path(path)
    own = _request(compiled(policy), host, port, method, plain)
    if floor is None or own.outcome == "deny" or host == TOOLS_HOST:
        return _verdict(own, host, port, method, path)
    bound = _request(compiled(floor), host, port, method, plain)
    return _both(own, bound, host, port, method, path)


def judge_address(
    policy: Policy, floor: Policy | None, host: str, port: int, address: Address
) -> Verdict | None:
    """What `host` was resolved to, for a connection that is allowed: a rule that denies this range
    of addresses counts if it stands before one that could let the name pass. None: no objection."""
    for by_floor, given in ((False, policy), (True, floor)):
        if given is None:
            continue
        rules = compiled(given)
        asking, last = rules.deciding(host, port)
        could = asking if last is None else [*asking, last]
        until = max((e.number for e in could if e.rule.action == "allow"), default=0)
        for entry in rules.of_address(address, port):
            if entry.number < until and entry.rule.action == "deny" and not entry.conditional:
                decided = _Decided("deny", entry)
                return _verdict(decided, str(address), port, by_floor=by_floor)
    return None


class Entry(NamedTuple):
    """A rule as it is looked up. `bounds`: of a range of addresses, version, base and mask.
    `port_named`, `exact`: see `Verdict`."""

    number: int
    rule: Rule
    text: str
    bounds: tuple[int, int, int] | None
    methods: frozenset[str]
    paths: tuple[str, ...]
    conditional: bool
    port_named: bool
    exact: bool


class Compiled:
    """A policy's rules by what they are looked up with, each list in their order."""

    def __init__(self, policy: Policy) -> None:
        self.count = len(policy.rules)
        self.entries = tuple(_entry(n, rule) for n, rule in enumerate(policy.rules, 1))
        self._names: dict[str, list[Entry]] = {}
        self._below: dict[str, list[Entry]] = {}
        self._any: list[Entry] = []
        self._ranges: list[Entry] = []
        for entry in self.entries:
            host = entry.rule.host
            if entry.bounds is not None:
                self._ranges.append(entry)
            elif host == ANY_NAME:
                self._any.append(entry)
            elif host.startswith("*."):
                self._below.setdefault(host[2:], []).append(entry)
            else:
                self._names.setdefault(host, []).append(entry)

    def of_host(self, host: str, port: int | None) -> list[Entry]:
        """The rules for this host and port (None: any), in their order."""
        address = _address(host)
        if address is not None:
            return self.of_address(address, port)
        found = [*self._names.get(host, ()), *self._any]
        parent = host.partition(".")[2]
        while parent and self._below:
            found += self._below.get(parent, ())
            parent = parent.partition(".")[2]
        if host.endswith(OUR_NAMES):
            found = [e for e in found if e.rule.action == "deny" or e.rule.host == host]
        if len(found) > 1:
            found.sort(key=_number)
        return [e for e in found if _has_port(e, port)]

    def deciding(self, host: str, port: int) -> tuple[list[Entry], Entry | None]:
        """The rules that decide by the request, and the one that decides all that they leave."""
        asking: list[Entry] = []
        for entry in self.of_host(host, port):
            if not entry.conditional:
                return asking, entry
            asking.append(entry)
        return asking, None

    def of_address(self, address: Address, port: int | None) -> list[Entry]:
        version, number = address.version, int(address)
        return [
            entry
            for entry in self._ranges
            if entry.bounds is not None
            and entry.bounds[0] == version
            and number & entry.bounds[2] == entry.bounds[1]
            and _has_port(entry, port)
        ]


def _has_port(entry: Entry, port: int | None) -> bool:
    return port is None or not entry.rule.ports or port in entry.rule.ports


@lru_cache(maxsize=256)
def compiled(policy: Policy) -> Compiled:
    return Compiled(policy)


def rule_text(rule: Rule) -> str:
    """One line, as `network why` shows it."""
    words = [rule.action, rule.host]
    if rule.ports:
        words[1] = f"[{rule.host}]" if ":" in rule.host else rule.host
        words[1] += ":" + ",".join(str(port) for port in rule.ports)
    if rule.methods:
        words.append(",".join(rule.methods))
    words += rule.paths
    if rule.private:
        words.append("private")
    if rule.tls == "splice":
        words.append("splice")
    return " ".join(words)


class _Decided(NamedTuple):
    """One policy's answer. `entry`: the rule that decided; of `inspect`, the first that asks."""

    outcome: Outcome
    entry: Entry | None
    private: bool = False
    port_named: bool = False
    exact: bool = False
    unclear: bool = False


def _connection(rules: Compiled, host: str, port: int) -> _Decided:
    asking, last = rules.deciding(host, port)
    could = asking if last is None else [*asking, last]
    end: Outcome = "deny" if last is None else last.rule.action
    if all(entry.rule.action == end for entry in asking):
        # Whatever the request is, the answer is the same: no need to look into it.
        return _decided(end, last, could)
    return _decided("inspect", asking[0], could)


def _request(rules: Compiled, host: str, port: int, method: str, path: str | None) -> _Decided:
    for entry in rules.of_host(host, port):
        # Upper case for both: some servers take "post" for POST.
        if entry.methods and method.upper() not in entry.methods:
            continue
        if entry.paths:
            if path is None:
                return _Decided("deny", entry, unclear=True)
            if not any(matches(pattern, path) for pattern in entry.paths):
                continue
        return _decided(entry.rule.action, entry, [entry])
    return _Decided("deny", None)


def _decided(outcome: Outcome, entry: Entry | None, could: list[Entry]) -> _Decided:
    passing = [e for e in could if e.rule.action == "allow"]
    if outcome == "deny" or not passing:
        return _Decided(outcome, entry)
    return _Decided(
        outcome,
        entry,
        private=all(e.rule.private for e in passing),
        port_named=all(e.port_named for e in passing),
        exact=all(e.exact for e in passing),
    )


def _both(
    own: _Decided, bound: _Decided, host: str, port: int, method: str = "", path: str = ""
) -> Verdict:
    if bound.outcome == "deny":
        return _verdict(bound, host, port, method, path, by_floor=True)
    allowed = own._replace(
        private=own.private and bound.private,
        port_named=own.port_named and bound.port_named,
        exact=own.exact and bound.exact,
    )
    if bound.outcome == "inspect" and own.outcome == "allow":
        asked = bound._replace(
            private=allowed.private, port_named=allowed.port_named, exact=allowed.exact
        )
        return _verdict(asked, host, port, method, path, by_floor=True)
    return _verdict(allowed, host, port, method, path)


def _verdict(
    decided: _Decided,
    host: str,
    port: int,
    method: str = "",
    path: str = "",
    *,
    by_floor: bool = False,
) -> Verdict:
    entry = decided.entry
    what = f"{method} " if method else ""
    what += joined(host, port) + (_shown(path) if method else "")
    whose = "the operator's floor" if by_floor else "the sandbox's policy"
    if entry is None:
        return Verdict(outcome="deny", words=f"no rule of {whose} allows {what}", by_floor=by_floor)
    place = f"rule {entry.number} of {whose} ({entry.text}"
    place += f"; from {entry.rule.source})" if entry.rule.source else ")"
    if decided.unclear:
        words = f"the path of {what} can be read in several ways, and {place} asks for a path"
    elif decided.outcome == "inspect":
        words = f"{place} asks for a method or a path, so requests to {what} are looked at"
    else:
        words = f"{place} {'allows' if decided.outcome == 'allow' else 'denies'} {what}"
    return Verdict(
        outcome=decided.outcome,
        words=words,
        rule=entry.number,
        source=entry.rule.source,
        by_floor=by_floor,
        private=decided.private,
        port_named=decided.port_named,
        exact=decided.exact,
        splice=decided.outcome == "allow" and entry.rule.tls == "splice",
    )


def _entry(number: int, rule: Rule) -> Entry:
    network = _network(rule.host)
    # For just one host, or for loopback itself: a wider rule never means this machine.
    single = not rule.host.startswith(ANY_NAME)
    if network is not None:
        single = network.num_addresses == 1 or network.is_loopback
    methods = frozenset(method.upper() for method in rule.methods)
    paths = () if "/*" in rule.paths else rule.paths
    return Entry(
        number=number,
        rule=rule,
        text=rule_text(rule),
        bounds=None if network is None else _bounds(network),
        methods=methods,
        paths=paths,
        conditional=bool(methods or paths),
        port_named=rule.private and bool(rule.ports) and single,
        exact=network is not None and network.num_addresses == 1,
    )


def _bounds(network: IPv4Network | IPv6Network) -> tuple[int, int, int]:
    return network.version, int(network.network_address), int(network.netmask)


def _network(host: str) -> IPv4Network | IPv6Network | None:
    if ":" not in host and not host[-1:].isdigit():
        return None
    try:
        return ip_network(host, strict=False)
    except ValueError:
        return None


def _address(host: str) -> Address | None:
    """A look at its end first: most hosts are names, and none of them holds a colon."""
    if ":" not in host and not host[-1:].isdigit():
        return None
    try:
        return ip_address(host)
    except ValueError:
        return None


def _shown(path: str) -> str:
    """A guest's own words, on their way to a screen or a log."""
    path = path if len(path) <= 120 else path[:117] + "..."
    return path if path.isascii() and path.isprintable() else ascii(path)[1:-1]


def _number(entry: Entry) -> int:
    return entry.number
