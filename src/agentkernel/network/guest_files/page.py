"""The page that tells an agent its network: what is allowed, what a refusal is, whom to ask.

It says what the setting says and no more: nothing of the machine, of the operator's floor or of
secrets but the names of their variables.
"""

from __future__ import annotations

from agentkernel.network.policy.model import ANY_NAME, NetworkSetting, Policy, Rule

MAX_RULES = 100

_TOP = """\
# Your network

This sandbox has no network interface but loopback. Every TCP connection and every name is answered
by a gateway outside, which allows what the rules below say. There is no UDP but DNS, no ICMP and no
IPv6: programs that try get an error at once, so there is no point in trying again.
"""
_DENIED = """\
## What a refusal looks like

- A name always resolves, allowed or not, to an address in 198.18.0.0/15; connecting always succeeds
  first. Neither means that the host may be reached.
- HTTP, and HTTPS that the gateway looks into: status 403 with JSON that names the rule.
- Other HTTPS and TCP: the connection is reset at once.

A refusal is a decision, not a fault: it stays the same until somebody changes the rules.
"""


def network_page(setting: NetworkSetting, name: str = "NAME") -> str:
    """`name`: what the sandbox is called outside, for the commands on the page."""
    parts = [_TOP, _rules(setting), _DENIED]
    if setting.secrets:
        parts.append(_secrets(setting))
    parts.append(_changes(name))
    return "\n".join(parts)


def _rules(setting: NetworkSetting) -> str:
    policy = setting.policy
    lines = [f'## What is allowed (phase "{_plain(setting.phase)}")', ""]
    if not any(rule.action == "allow" for rule in policy.rules):
        lines.append("Nothing.")
    else:
        lines.append("The first line that matches decides; what no line matches is denied.")
        lines.append("")
        lines += [f"- {_sentence(rule)}" for rule in policy.rules[:MAX_RULES]]
        if len(policy.rules) > MAX_RULES:
            lines.append(f"- … and {len(policy.rules) - MAX_RULES} more")
    caps = _caps(policy)
    return "\n".join([*lines, *([f"\n{caps}"] if caps else []), ""])


def _sentence(rule: Rule) -> str:
    host = "every public name" if rule.host == ANY_NAME else _plain(rule.host)
    if rule.ports:
        host += " port " + ", ".join(map(str, rule.ports))
    words = [rule.action, host]
    if rule.methods:
        words.append("(" + ", ".join(map(_plain, rule.methods)) + " only)")
    if rule.paths:
        words.append("paths " + ", ".join(map(_plain, rule.paths)))
    if rule.source:
        words.append(f"[{_plain(rule.source)}]")
    return " ".join(words)


def _plain(text: str) -> str:
    """One line of printable text: rules may come from somebody else than the page's reader."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)[:300]


def _caps(policy: Policy) -> str:
    caps = policy.caps
    said = [f"{caps.connections} connections at a time"]
    said += [
        f"{value:,} bytes{what}"
        for value, what in (
            (caps.upload_bytes, " sent in all"),
            (caps.download_bytes, " received in all"),
            (caps.upload_rate, " sent a second"),
            (caps.download_rate, " received a second"),
        )
        if value is not None
    ]
    return "At most " + ", ".join(said) + "."


def _secrets(setting: NetworkSetting) -> str:
    lines = ["## Secrets", ""]
    lines += [
        f"- `{_plain(item.env)}` works for {', '.join(map(_plain, item.hosts))}"
        for item in setting.secrets
        if item.env
    ]
    return "\n".join(
        [
            *lines,
            "",
            "Their values here are placeholders, which the gateway replaces on the way to those"
            " hosts. Sent anywhere else they block the request.",
            "",
        ]
    )


def _changes(name: str) -> str:
    return f"""\
## Who can change it

Nothing inside can. The person who runs this sandbox can, outside:

    agentkernel network why {name} HOST        # what decides about a host
    agentkernel network allow {name} HOST      # allow it
    agentkernel network log {name}             # what was allowed and denied

So: say which host and port you need, and what for.
"""
