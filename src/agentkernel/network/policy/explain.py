"""Why a host can or can't be reached, in the order in which it is decided."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from agentkernel.config.addresses import joined
from agentkernel.network.intercept.deciding import bound_secrets
from agentkernel.network.policy.addresses import vet
from agentkernel.network.policy.judging import (
    Verdict,
    compiled,
    judge_address,
    judge_connection,
    judge_request,
)
from agentkernel.network.policy.model import NetworkSetting, Operator, Policy
from agentkernel.network.policy.names import parse_address


class LookedAt(msgspec.Struct, frozen=True, kw_only=True):
    """A rule for this host. `port`: it is for this port, too; if not, it was passed over."""

    number: int
    text: str
    source: str = ""
    by_floor: bool = False
    port: bool = True
    decided: bool = False


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """`outcome` is of the request if a method is given, else of the connection. `rules`: all for
    this host, in their order, the sandbox's before the floor's. `tls`: whether it is looked into,
    and why. `secrets`: variables whose secret is bound there. `address`: of the one that was
    given, why it may not be dialled, if so. `change`: commands that would."""

    host: str
    port: int
    phase: str
    outcome: str
    words: str
    rule: int | None = None
    source: str = ""
    by_floor: bool = False
    method: str = ""
    path: str = ""
    rules: tuple[LookedAt, ...] = ()
    intercepted: bool = False
    tls: str = ""
    secrets: tuple[str, ...] = ()
    address: str = ""
    address_refused: str = ""
    change: tuple[str, ...] = ()


def why(
    setting: NetworkSetting,
    operator: Operator,
    host: str,
    port: int,
    method: str = "",
    path: str = "/",
    *,
    address: str | None = None,
    name: str = "NAME",
) -> Explanation:
    """`host`: canonical. `address`: what it was resolved to. `name`: the sandbox's, for commands.

    Raises InvalidInputError for an address that is none.
    """
    policy, floor = setting.policy, operator.floor
    connection = judge_connection(policy, floor, host, port)
    verdict = connection
    if method:
        verdict = judge_request(policy, floor, host, port, method, path)
    secrets = tuple(binding.env for binding in bound_secrets(setting, host, port))
    intercepted, tls = _tls(connection, secrets)
    refused = ""
    if address is not None and verdict.outcome != "deny" and host not in operator.hosts:
        refused = _refused(policy, floor, connection, host, port, address)
    change = _commands(setting, verdict, host, port, refused, name)
    return Explanation(
        host=host,
        port=port,
        phase=setting.phase,
        outcome="deny" if refused else verdict.outcome,
        words=verdict.words,
        rule=verdict.rule,
        source=verdict.source,
        by_floor=verdict.by_floor,
        method=method,
        path=path if method else "",
        rules=tuple(_looked_at(policy, floor, host, port, verdict)),
        intercepted=intercepted,
        tls=tls,
        secrets=secrets,
        address=address or "",
        address_refused=refused,
        change=change,
    )


def _looked_at(
    policy: Policy, floor: Policy | None, host: str, port: int, verdict: Verdict
) -> Iterator[LookedAt]:
    for by_floor, given in ((False, policy), (True, floor)):
        if given is None:
            continue
        for entry in compiled(given).of_host(host, None):
            yield LookedAt(
                number=entry.number,
                text=entry.text,
                source=entry.rule.source,
                by_floor=by_floor,
                port=not entry.rule.ports or port in entry.rule.ports,
                decided=(entry.number, by_floor) == (verdict.rule, verdict.by_floor),
            )


def _tls(connection: Verdict, secrets: tuple[str, ...]) -> tuple[bool, str]:
    if connection.outcome == "deny":
        return False, "reset at once: nothing is allowed there"
    if connection.outcome == "inspect":
        return True, "looked into: a rule asks for a method or a path"
    if connection.splice:
        lost = f", so {', '.join(secrets)} is not swapped there" if secrets else ""
        return False, f"passed on as it is: the rule says splice{lost}"
    if secrets:
        return True, f"looked into: {', '.join(secrets)} is swapped there"
    return False, "passed on as it is: neither a rule nor a secret needs to see it"


def _refused(
    policy: Policy, floor: Policy | None, verdict: Verdict, host: str, port: int, text: str
) -> str:
    address = parse_address(text)
    denied = judge_address(policy, floor, host, port, address)
    if denied is not None:
        return denied.words
    found = vet(address, verdict.private, verdict.port_named, exact=verdict.exact)
    return "" if found is None else f"{address} is {found}"


def _commands(
    setting: NetworkSetting, verdict: Verdict, host: str, port: int, refused: str, name: str
) -> tuple[str, ...]:
    place = joined(host, port)
    if verdict.by_floor and verdict.outcome == "deny":
        return ("the operator's network.floor in config.toml has to allow it first",)
    if refused:
        return (f"agentkernel network allow {name} private:{place}",)
    if verdict.outcome != "deny":
        return (f"agentkernel network deny {name} {place}",)
    commands = [f"agentkernel network allow {name} {place}"]
    commands += [
        f"agentkernel network phase {name} {phase}"
        for phase, policy in setting.phases.items()
        if phase != setting.phase
        and judge_connection(policy, None, host, port).outcome in ("allow", "inspect")
    ]
    return tuple(commands)
