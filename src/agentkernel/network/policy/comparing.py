"""Whether one policy gives more than another."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network

from agentkernel.network.policy.model import ANY_NAME, Caps, Policy, Rule
from agentkernel.network.policy.paths import matches
from agentkernel.network.policy.targets import network_of


def is_wider(now: Policy, before: Policy) -> bool:
    """True if `now` may allow anything that `before` does not; when in doubt, True."""
    if _more(now.caps, before.caps):
        return True
    denied: list[Rule] = []
    for rule in now.rules:
        if rule.action == "deny":
            denied.append(rule)
        elif not _is_allowed(rule, before, denied):
            return True
    return False


def _more(now: Caps, before: Caps) -> bool:
    for name in Caps.__struct_fields__:
        mine, other = getattr(now, name), getattr(before, name)
        if other is not None and (mine is None or mine > other):
            return True
    return False


def _is_allowed(rule: Rule, before: Policy, denied: list[Rule]) -> bool:
    """One rule of `before` has to allow all of it, and what is denied there before that one must
    not concern it, or be denied on this side as well."""
    for place, other in enumerate(before.rules):
        if other.action == "allow":
            if _covers(other, rule):
                # Of a host whose requests are looked at, ranges denied further down count as well.
                later = before.rules[place:] if other.methods or other.paths else ()
                return not any(
                    d.action == "deny" and network_of(d.host) and _is_new(d, rule, denied)
                    for d in later
                )
            # A path with several readings ends at the first rule that asks for one.
            if _asks_path(other) and not _asks_path(rule) and _touches(other, rule):
                return False
        elif _is_new(other, rule, denied):
            return False
    return False


def _is_new(denial: Rule, rule: Rule, denied: list[Rule]) -> bool:
    return _touches(denial, rule) and not any(_covers(mine, denial) for mine in denied)


def _covers(wide: Rule, narrow: Rule) -> bool:
    """Whether whatever matches `narrow` matches `wide`, and is given no more by the former."""
    return (
        _host_covers(wide.host, narrow.host)
        and _all_in(narrow.ports, wide.ports)
        and _all_in(narrow.methods, wide.methods)
        and _paths_cover(wide.paths, narrow.paths)
        and (wide.private or not narrow.private)
        and (wide.tls == "splice" or narrow.tls != "splice")
    )


def _asks_path(rule: Rule) -> bool:
    return bool(rule.paths) and "/*" not in rule.paths


def _all_in(narrow: tuple[object, ...], wide: tuple[object, ...]) -> bool:
    """Empty: everything."""
    return not wide or (bool(narrow) and set(narrow) <= set(wide))


def _paths_cover(wide: tuple[str, ...], narrow: tuple[str, ...]) -> bool:
    if not wide:
        return True
    return bool(narrow) and all(any(_path_covers(w, n) for w in wide) for n in narrow)


def _path_covers(wide: str, narrow: str) -> bool:
    if narrow.endswith("*") and not wide.endswith("*"):
        return False
    return matches(wide, narrow.removesuffix("*") if narrow.endswith("*") else narrow)


def _host_covers(wide: str, narrow: str) -> bool:
    mine, other = network_of(wide), network_of(narrow)
    if mine is None or other is None:
        return mine is other and _name_covers(wide, narrow)
    return _within(other, mine)


def _within(narrow: IPv4Network | IPv6Network, wide: IPv4Network | IPv6Network) -> bool:
    if isinstance(narrow, IPv4Network):
        return isinstance(wide, IPv4Network) and narrow.subnet_of(wide)
    return isinstance(wide, IPv6Network) and narrow.subnet_of(wide)


def _name_covers(wide: str, narrow: str) -> bool:
    if wide in (ANY_NAME, narrow):
        return True
    # "*.a.b" ends in ".b" as "x.b" does.
    return wide.startswith("*.") and narrow.endswith(wide[1:]) and narrow != ANY_NAME


def _touches(denial: Rule, rule: Rule) -> bool:
    """Whether a connection could match both. A range that is denied concerns names, too: what they
    resolve to (see `judging.judge_address`)."""
    if denial.ports and rule.ports and not set(denial.ports) & set(rule.ports):
        return False
    if denial.methods and rule.methods and not set(denial.methods) & set(rule.methods):
        return False
    mine, other = network_of(denial.host), network_of(rule.host)
    if mine is None:
        return other is None and (
            _name_covers(denial.host, rule.host) or _name_covers(rule.host, denial.host)
        )
    return other is None or _within(mine, other) or _within(other, mine)
