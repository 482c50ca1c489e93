"""`agentkernel network …`: what a sandbox may reach, why, and what it did."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

from agentkernel.cli.notices import Connected
from agentkernel.cli.tables import show
from agentkernel.cli.values import printable
from agentkernel.client._sync.network import Network
from agentkernel.client.results import Event
from agentkernel.errors import InvalidInputError

DENIED = 1
"""Exit status of `why` for what would be denied."""


def main(options: argparse.Namespace) -> int:
    verbs: dict[str, Callable[[argparse.Namespace, Network], int]] = {
        "show": _show,
        "log": _log,
        "tail": _log,
        "why": _why,
        "allow": _change,
        "deny": _change,
        "phase": _phase,
    }
    with Connected() as transport:
        return verbs[options.verb](options, Network(transport, options.name))


def _show(options: argparse.Namespace, network: Network) -> int:
    return _print(network.show(), options)


def _change(options: argparse.Namespace, network: Network) -> int:
    change = network.allow if options.verb == "allow" else network.deny
    state: dict[str, Any] = {}
    for target in options.targets:
        state = change(target, phase=options.phase)
    return _print(state, options)


def _phase(options: argparse.Namespace, network: Network) -> int:
    return _print(network.phase(options.phase), options)


def _print(state: dict[str, Any], options: argparse.Namespace) -> int:
    if options.json:
        print(json.dumps(state))
        return 0
    for name, policy in state["phases"].items():
        mark = "  (now)" if name == state["phase"] else ""
        print(f"phase {printable(name)}{mark}")
        rows = [_rule(number, rule) for number, rule in enumerate(policy.get("rules", ()), 1)]
        show(("RULE", "", "HOST", "PORTS", "ONLY", "FROM"), rows)
        print("everything else is denied")
    if not state["phases"]:
        print("no network: loopback only")
    if floor := state.get("floor"):
        print("the operator's bound, whatever stands above:")
        rows = [_rule(number, rule) for number, rule in enumerate(floor.get("rules", ()), 1)]
        show(("RULE", "", "HOST", "PORTS", "ONLY", "FROM"), rows)
    for bound in state["secrets"]:
        hosts = ", ".join(bound["hosts"])
        print(f"secret {printable(bound['reference'])} as {printable(bound['env'])} for {hosts}")
    for note in state.get("notes", ()):
        print(f"note: {printable(note)}")
    if traffic := state.get("traffic"):
        print(
            f"traffic: {traffic['connections']} connections ({traffic['flows']} open), "
            f"{traffic['denied']} denied, {traffic['up']} bytes out, {traffic['down']} bytes in"
        )
        refused = ", ".join(f"{kind} {count}" for kind, count in traffic["refused"].items())
        if refused:
            print(f"refused by the kernel: {refused}")
    return 0


def _rule(number: int, rule: dict[str, Any]) -> tuple[str, ...]:
    ports = ",".join(map(str, rule.get("ports", ()))) or "any"
    only = " ".join((*rule.get("methods", ()), *rule.get("paths", ()))) or "-"
    if rule.get("tls") == "splice":
        only = "not intercepted"
    host = rule["host"] + (" (private too)" if rule.get("private") else "")
    source = rule.get("source") or "-"
    action = rule.get("action", "allow")
    return str(number), action, printable(host), ports, printable(only), printable(source)


def _why(options: argparse.Namespace, network: Network) -> int:
    host, port = _host_and_port(options.target)
    answer = network.why(host, port, method=options.method, path=options.path)
    if options.json:
        print(json.dumps(answer))
    else:
        print(printable(answer["words"]))
        if answer.get("tls"):
            print(f"  TLS: {printable(answer['tls'])}")
        for rule in answer.get("rules", ()):
            mark = "*" if rule.get("decided") else " "
            whose = " (the operator's)" if rule.get("by_floor") else ""
            line = f"{rule['number']}{whose} {rule['text']}  [{rule.get('source', '')}]"
            print(f"{mark} {printable(line)}")
        for command in answer.get("change", ()):
            print(f"  to change it: {printable(command)}")
    return DENIED if answer["outcome"] == "deny" else 0


def _host_and_port(text: str) -> tuple[str, int]:
    """HOST, HOST:PORT, [IPV6]:PORT, or an address of version 6 alone."""
    host, colon, port = text.rpartition(":")
    if not colon or host.endswith(":") or (":" in host and not host.startswith("[")):
        return text.strip("[]"), 443
    if not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535:
        raise InvalidInputError(f"{text!r} has no port of 1 to 65535")
    return host.strip("[]"), int(port)


def _log(options: argparse.Namespace, network: Network) -> int:
    for event in network.log(follow=options.verb == "tail"):
        if options.json:
            print(json.dumps(event._asdict()), flush=True)
        elif event.kind == "gap":
            print("some events are not kept any more", flush=True)
        else:
            print(_line(event), flush=True)
    return 0


def _line(event: Event) -> str:
    body = event.body
    when = time.strftime("%H:%M:%S", time.localtime(event.at))
    port = f":{body['port']}" if body.get("port") else ""
    request = " ".join(filter(None, (body.get("method"), body.get("path"))))
    times = f"  ({body['times']} times)" if body.get("times", 1) > 1 else ""
    words = body.get("reason") or body.get("source") or body.get("what") or ""
    if event.kind == "network.allow" and body.get("rule"):
        words = f"rule {body['rule']} ({body.get('source', '')})"
    kind = event.kind.removeprefix("network.")
    where = f"{body.get('host', '')}{port}"
    return printable(f"{when}  {kind:<8} {where} {request}".rstrip() + f"  {words}{times}")
