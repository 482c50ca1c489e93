"""What may be asked and changed of a sandbox's network while it lives: `kernel.network`.

The row is written first; when a call returns, the gateway has carried it out, and flows that are
not allowed any more are closed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from agentkernel.audit.trail import Trail, audited
from agentkernel.config.addresses import joined
from agentkernel.errors import AgentKernelError, InvalidInputError
from agentkernel.images.view import View
from agentkernel.kernel.jobs import Find
from agentkernel.kernel.live import Live
from agentkernel.kernel.network_making import NetworkMaking
from agentkernel.kernel.networks import Networks
from agentkernel.kernel.store import SandboxRecord, Store, event_of
from agentkernel.network.guest_files.page import network_page
from agentkernel.network.guest_files.paths import PAGE
from agentkernel.network.policy.explain import Explanation, why
from agentkernel.network.policy.model import Action, NetworkSetting, Policy, Rule
from agentkernel.network.policy.names import parse_address, written_name
from agentkernel.network.policy.request import NetworkRequest, Target, check_phase, parse_target
from agentkernel.network.policy.targets import check_rule

MOST_RULES = 2048
ImageView = Callable[[SandboxRecord], Awaitable[View | None]]


class RuleChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule to stand before all others of a phase, in words (`target`) or in full."""

    action: Action = "allow"
    target: Target | None = None
    rule: Rule | None = None
    phase: str | None = None


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What would become of a connection, or of a request."""

    host: Annotated[str, Meta(min_length=1, max_length=300)]
    port: Annotated[int, Meta(ge=1, le=65535)] = 443
    method: Annotated[str, Meta(pattern=r"\A[A-Za-z]{1,32}\Z")] | None = None
    path: Annotated[str, Meta(max_length=1024)] | None = None


class Asked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a sandbox would like to have of its user, in the words of whatever runs in it: a host to
    reach, or (without one) a port of its own to be published."""

    host: Annotated[str, Meta(max_length=300)] = ""
    port: Annotated[int, Meta(ge=1, le=65535)] = 443
    reason: Annotated[str, Meta(max_length=500)] = ""


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """So far. Bytes `up` are the guest's own; `refused` is what the kernel turned away, by kind."""

    flows: int = 0
    connections: int = 0
    denied: int = 0
    up: int = 0
    down: int = 0
    names: int = 0
    refused: dict[str, int] = {}


class NetworkState(msgspec.Struct, frozen=True, kw_only=True):
    """What a sandbox may reach and what it did. `gateway`: "running"; "waiting": it is started by
    the first connection; "none": there is no way out. `notes`: what of this machine's registries
    could not be used."""

    phase: str
    phases: dict[str, Policy]
    floor: Policy | None
    secrets: list[dict[str, Any]]
    gateway: Literal["running", "waiting", "none"]
    notes: list[str] = []
    traffic: Traffic | None = None


class NetworkControl:
    """See the module."""

    def __init__(
        self,
        store: Store,
        find: Find,
        trail: Trail,
        networks: Networks,
        making: NetworkMaking,
        view: ImageView,
    ) -> None:
        self._store = store
        self._find = find
        self.trail = trail
        self._networks = networks
        self._making = making
        self._view = view

    async def show(self, id: str, *, owner: str | None = None) -> NetworkState:
        record, live = await self._find(id, owner)
        setting = setting_of(record)
        if setting is None:
            return NetworkState(
                phase=NetworkSetting().phase, phases={}, floor=None, secrets=[], gateway="none"
            )
        return NetworkState(
            phase=setting.phase,
            phases=setting.phases,
            floor=self._networks.operator.floor,
            secrets=[_shown(bound) for bound in setting.secrets],
            gateway="running" if self._networks.gateway_runs else "waiting",
            notes=self._making.notes(),
            traffic=await self._traffic(live),
        )

    async def why(self, id: str, question: Question, *, owner: str | None = None) -> Explanation:
        """What would become of it, by which rule, and what would change that. Nothing is sent."""
        record, _ = await self._find(id, owner)
        return why(
            setting_of(record) or NetworkSetting(),
            self._networks.operator,
            _canonical(question.host),
            question.port,
            question.method or "",
            question.path or "/",
            name=record.name or record.id,
        )

    @audited("network.ask")
    async def ask(self, id: str, wish: Asked, *, owner: str | None = None) -> str:
        """Tells the user, by an event, that the sandbox asks for something. Nothing else changes:
        to give it is the user's to do, by the command that is returned."""
        record, _ = await self._find(id, owner)
        name = record.name or record.id
        body: dict[str, Any] = {"port": wish.port, "reason": _line(wish.reason)}
        if wish.host:
            host = _canonical(wish.host)
            target = joined(host, wish.port)
            parse_target(target, source="")  # one that could be given
            body |= {"host": host, "what": "host"}
            command = f"agentkernel network allow {name} {target}"
        else:
            body["what"] = "port"
            command = f"agentkernel port publish {name} {wish.port}"
        event = event_of(record, "network.asked", **body, change=command)
        await self._store.append_events([event])
        return command

    @audited("network.replace")
    async def replace(
        self, id: str, request: NetworkRequest, *, owner: str | None = None
    ) -> NetworkState:
        """Another network altogether; its secrets stay."""
        record, live = await self._find(id, owner)
        async with live.changing:
            record = await self._store.get_sandbox(record.id)
            before = setting_of(record) or NetworkSetting()
            setting = self._making.setting(request, str(record.blueprint.get("profile")))
            setting = msgspec.structs.replace(setting, secrets=before.secrets)
            await self._change(record, live, setting, what="replaced")
        return await self.show(record.id)

    @audited("network.rule")
    async def add_rule(
        self, id: str, change: RuleChange, *, owner: str | None = None
    ) -> NetworkState:
        """The rule stands first. The same one, if it stood elsewhere, does not any more."""
        rule = _rule(change)
        record, live = await self._find(id, owner)
        async with live.changing:
            record = await self._store.get_sandbox(record.id)
            setting = setting_of(record) or NetworkSetting()
            phase = setting.phase if change.phase is None else check_phase(change.phase)
            policy = setting.phases.get(phase, Policy())
            others = [known for known in policy.rules if not _is_same(known, rule)]
            if len(others) >= MOST_RULES:
                raise InvalidInputError(f"a phase has at most {MOST_RULES} rules")
            policy = msgspec.structs.replace(policy, rules=(rule, *others))
            setting = msgspec.structs.replace(setting, phases={**setting.phases, phase: policy})
            words = f"{rule.action} {rule.host}"
            await self._change(record, live, setting, what=words, phase=phase)
        return await self.show(record.id)

    @audited("network.phase")
    async def switch_phase(self, id: str, phase: str, *, owner: str | None = None) -> NetworkState:
        record, live = await self._find(id, owner)
        async with live.changing:
            record = await self._store.get_sandbox(record.id)
            setting = setting_of(record) or NetworkSetting()
            if phase not in setting.phases:
                known = ", ".join(sorted(setting.phases)) or "none"
                raise InvalidInputError(
                    f"the sandbox has no phase {phase!r}", hint=f"its phases: {known}"
                )
            setting = msgspec.structs.replace(setting, phase=phase)
            await self._change(record, live, setting, what="phase", phase=phase)
        return await self.show(record.id)

    async def _change(
        self, record: SandboxRecord, live: Live, setting: NetworkSetting, **told: str
    ) -> None:
        """Preconditions: `changing` is held."""
        changes: dict[str, Any] = {"network": msgspec.to_builtins(setting)}
        setup = None
        if record.network is None:
            view = await self._view(record)
            setup = await self._making.setup(setting, view, record.name or record.id)
            changes["blueprint"] = {
                **record.blueprint,
                "network": msgspec.to_builtins(setup),
                "without_network": "",
            }
        await self._store.update_sandbox(
            record.id, events=[event_of(record, "network.changed", **told)], **changes
        )
        if live.sandbox is None:
            return
        if setup is not None:
            # It was made without: its namespace is given a way out now, and it is told of it.
            try:
                await self._networks.attach(live.sandbox, record.owner, setting)
            except AgentKernelError:
                await self._store.update_sandbox(
                    record.id, network=None, blueprint=record.blueprint
                )
                raise
            await self._making.tell_inside(live.sandbox, setup.files)
        else:
            await self._networks.update(record.id, setting)
            await self._making.tell_inside(
                live.sandbox, {PAGE: network_page(setting, record.name or record.id)}
            )

    async def _traffic(self, live: Live) -> Traffic:
        counted = await self._networks.counted(live.id)
        refused: dict[str, int] = {}
        if live.sandbox is not None:
            try:
                refused = await live.sandbox.network_refusals()
            except AgentKernelError:
                refused = {}  # it is ending, or its rules can't be read: then nothing is claimed
        if counted is None:
            return Traffic(refused=refused)
        return Traffic(
            flows=counted.flows,
            connections=counted.connections,
            denied=counted.denied,
            up=counted.up,
            down=counted.down,
            names=counted.names,
            refused=refused,
        )


def _canonical(host: str) -> str:
    """As people write it."""
    try:
        return str(parse_address(host))
    except InvalidInputError:
        return written_name(host)


def _line(text: str) -> str:
    """Whatever a guest wrote, as one line for a screen."""
    return "".join(letter if letter.isprintable() else " " for letter in text).strip()


def setting_of(record: SandboxRecord) -> NetworkSetting | None:
    return None if record.network is None else msgspec.convert(record.network, NetworkSetting)


def _rule(change: RuleChange) -> Rule:
    if (change.target is None) == (change.rule is None):
        raise InvalidInputError("either a target or a rule is needed, not both")
    source = f"network {change.action}"
    if change.target is not None:
        return parse_target(change.target, source=source, deny=change.action == "deny")
    assert change.rule is not None
    rule = msgspec.structs.replace(change.rule, action=change.action, source=source)
    return check_rule(rule)


def _is_same(one: Rule, other: Rule) -> bool:
    """Said by the same means of the same, whichever of the two it said."""
    ours = ("network allow", "network deny")
    return (
        one.source in ours
        and msgspec.structs.replace(one, action=other.action, source=other.source) == other
    )


def _shown(bound: Any) -> dict[str, Any]:
    """A binding without its placeholder, which is the guest's."""
    shown: dict[str, Any] = msgspec.to_builtins(bound)
    shown.pop("placeholder", None)
    return shown
