"""A sandbox as the gateway knows it: what it may do, what it is doing, how much of it."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentkernel.network.gateway import sockets
from agentkernel.network.gateway.flow import CapReached, Flow
from agentkernel.network.gateway.messages import Counted, NetworkEvent, Via
from agentkernel.network.gateway.names import Names, NamesFull
from agentkernel.network.gateway.outbox import Bucket, Outbox
from agentkernel.network.policy.judging import (
    Verdict,
    judge_address,
    judge_connection,
    judge_request,
)
from agentkernel.network.policy.model import DEFAULT_PORTS, Caps, NetworkSetting, Operator

CLOSING_SECONDS = 2.0
_NAME_VERDICTS = 4096
_DEFAULT_CAPS = Caps()


@dataclass
class World:
    """What all sandboxes share."""

    state_dir: str = ""
    outbox: Outbox = field(default_factory=Outbox)
    operator: Operator = field(default_factory=Operator)
    values: dict[str, bytes] = field(default_factory=dict)


@dataclass(eq=False)
class Connection:
    """One accepted connection. `flow`: as soon as it is known where it wants to go. `answered`:
    what the guest was sent last is on its way to it, and must not be lost."""

    client: socket.socket
    task: asyncio.Task[None] | None = None
    flow: Flow | None = None
    answered: bool = False

    def hang_up(self) -> None:
        if self.answered:
            self.client.close()
        else:
            sockets.reset(self.client)


class Sandbox:
    """The Subject of its flows. Raises OSError if its file can't be made."""

    def __init__(
        self, world: World, id: str, setting: NetworkSetting, path: str, owner: str = ""
    ) -> None:
        self.id = id
        self.owner = owner
        self.names = Names(path)
        self.connections: set[Connection] = set()
        self._world = world
        self._setting = setting
        self._name_verdicts: dict[str, Verdict] = {}
        self._accepted = self._denied = 0
        self._use_caps(self._caps_now())

    # --- what flows ask ---

    @property
    def setting(self) -> NetworkSetting:
        return self._setting

    @property
    def operator(self) -> Operator:
        return self._world.operator

    @property
    def secrets(self) -> Mapping[str, bytes]:
        bound = {binding.reference for binding in self._setting.secrets}
        return {
            reference: value
            for reference, value in self._world.values.items()
            # Owners' names may have slashes, secrets' have none.
            if reference in bound or reference.rpartition("/")[0] == self.owner
        }

    @property
    def state_dir(self) -> str:
        return self._world.state_dir

    def judge(self, host: str, port: int) -> Verdict:
        return judge_connection(self._setting.policy, self.operator.floor, host, port)

    def needs_interception(self, verdict: Verdict, host: str, port: int) -> bool:
        """True if this host's TLS must not pass unseen."""
        from agentkernel.network.intercept.deciding import needs_interception

        if verdict.outcome == "inspect":
            return True
        return not verdict.splice and needs_interception(self._setting, host, port)

    def emit(self, kind: str, flow: Flow, **words: Any) -> None:
        verdict = flow.verdict
        fields: dict[str, Any] = {
            "host": flow.host,
            "port": flow.port,
            "via": flow.via,
            "rule": verdict.rule,
            "source": verdict.source,
            "reason": verdict.words,
        }
        self._tell(kind, fields | words)

    def tell(self, kind: str, via: Via, host: str, reason: str, **words: Any) -> None:
        """An event of something that is no flow, or not yet."""
        self._tell(kind, {"via": via, "host": host, "reason": reason, **words})

    def _tell(self, kind: str, fields: dict[str, Any]) -> None:
        if kind in ("network.deny", "network.blocked"):
            self._denied += 1
        event = NetworkEvent(at=time.time(), sandbox=self.id, kind=kind, **fields)
        self._world.outbox.add(event)

    async def take(self, *, up: int = 0, down: int = 0) -> None:
        if pause := self.account(up, down):
            await asyncio.sleep(pause)

    def account(self, up: int, down: int) -> float:
        """Counts bytes; how long to wait before the next. Raises CapReached."""
        totals = self.names
        totals.count(up, down)
        caps = self._caps
        if caps.upload_bytes is not None and up and totals.up > caps.upload_bytes:
            raise CapReached(f"it has sent the {caps.upload_bytes} bytes that it may send")
        if caps.download_bytes is not None and down and totals.down > caps.download_bytes:
            raise CapReached(f"it has got the {caps.download_bytes} bytes that it may get")
        pause = 0.0
        if self._up_rate and up:
            pause = self._up_rate.draw(up)
        if self._down_rate and down:
            pause = max(pause, self._down_rate.draw(down))
        return pause

    # --- names ---

    def address_of(self, name: str) -> str:
        """The synthetic address of a name, with the event that it was asked for. Raises NamesFull,
        OSError."""
        try:
            address = self.names.address_of(name, self._caps.names)
        except NamesFull:
            self.tell(
                "network.limit", "dns", name, "it has asked for as many different names as it may"
            )
            raise
        verdict = self._judge_name(name)
        self._tell(
            "network.deny" if verdict.outcome == "deny" else "network.allow",
            {
                "via": "dns",
                "host": name,
                "address": address,
                "rule": verdict.rule,
                "source": verdict.source,
                "reason": verdict.words,
            },
        )
        return address

    def _judge_name(self, name: str) -> Verdict:
        """The best that any port gets."""
        if known := self._name_verdicts.get(name):
            return known
        ports = dict.fromkeys(DEFAULT_PORTS[::-1])
        for rule in self._setting.policy.rules:
            ports.update(dict.fromkeys(rule.ports))
        verdicts = [self.judge(name, port) for port in ports]
        best = next((v for v in verdicts if v.outcome != "deny"), verdicts[0])
        if len(self._name_verdicts) < _NAME_VERDICTS:
            self._name_verdicts[name] = best
        return best

    # --- connections ---

    def admits(self) -> bool:
        """True if one more connection may be open at once."""
        return len(self.connections) < self._caps.connections

    def admission(self) -> float:
        """Counts a new connection; how long to wait before the next is accepted."""
        self._accepted += 1
        return self._new.draw(1)

    async def change(self, setting: NetworkSetting) -> None:
        """Another setting; returns when no flow is left that it does not allow."""
        self._setting = setting
        await self.judge_again()

    async def judge_again(self) -> None:
        """After another setting, or other words of the operator."""
        self._name_verdicts.clear()
        if (caps := self._caps_now()) != self._caps:
            self._use_caps(caps)
        closing = []
        for connection in self.connections:
            flow = connection.flow
            if flow is None:
                continue
            verdict = self.judge(flow.host, flow.port)
            why = self._why_not(flow, verdict)
            flow.verdict = verdict
            if why:
                self.emit("network.deny", flow, reason=f"closed, because {why}")
                closing.append(connection)
        await self.close(closing)

    def _why_not(self, flow: Flow, verdict: Verdict) -> str:
        """Why a flow that runs may not go on. What is intercepted judges what comes next itself; a
        connection that is only told its denial may be told."""
        if flow.verdict.outcome == "deny":
            return ""
        if verdict.outcome == "deny":
            return f"the policy has changed: {verdict.words}"
        for right in ("private", "port_named", "exact"):
            if getattr(flow.verdict, right) and not getattr(verdict, right):
                return "the rule that allowed its address is gone"
        if flow.extra.get("spliced") and self.needs_interception(verdict, flow.host, flow.port):
            return "its requests have to be seen now"
        if flow.extra.get("unseen") and not verdict.splice:
            return "the rule that let it pass unseen is gone"
        denied = self._denied_now(flow)
        return f"the policy has changed: {denied.words}" if denied else ""

    def _denied_now(self, flow: Flow) -> Verdict | None:
        """Of what was judged besides the host: the address it meant, a name that TLS said of an
        address, the request that is being answered."""
        policy, floor, port = self._setting.policy, self.operator.floor, flow.port
        found: list[Verdict | None] = []
        if address := flow.extra.get("vetted"):
            found.append(judge_address(policy, floor, flow.host, port, address))
        if name := flow.extra.get("named"):
            found.append(self.judge(name, port))
        if request := flow.extra.get("request"):
            found.append(judge_request(policy, floor, flow.host, port, *request))
        return next((verdict for verdict in found if verdict and verdict.outcome == "deny"), None)

    async def close(self, connections: Iterable[Connection]) -> None:
        """Ends connections, whatever they are doing."""
        tasks = []
        chosen = list(connections)
        for connection in chosen:
            if connection.task and connection.task is not asyncio.current_task():
                connection.task.cancel()
                tasks.append(connection.task)
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSING_SECONDS)
        for connection in chosen:
            connection.hang_up()

    def counted(self, serial: int) -> Counted:
        return Counted(
            serial=serial,
            flows=len(self.connections),
            connections=self._accepted,
            denied=self._denied,
            up=self.names.up,
            down=self.names.down,
            names=len(self.names),
        )

    async def end(self) -> None:
        """Its connections, and what it holds."""
        await self.close(self.connections)
        self.names.close()

    def _caps_now(self) -> Caps:
        floor = self.operator.floor
        return narrower(self._setting.policy.caps, floor.caps if floor else Caps())

    def _use_caps(self, caps: Caps) -> None:
        self._caps = caps
        self._new = Bucket(caps.connections_per_second, caps.connections_per_second)
        self._up_rate = _rate(caps.upload_rate)
        self._down_rate = _rate(caps.download_rate)


def narrower(caps: Caps, floor: Caps) -> Caps:
    """A sandbox's caps within the operator's. What the floor leaves at its default, it does not
    say."""
    found = {}
    for name in Caps.__struct_fields__:
        own, bound = getattr(caps, name), getattr(floor, name)
        if bound != getattr(_DEFAULT_CAPS, name):
            own = bound if own is None else min(own, bound)
        found[name] = own
    return Caps(**found)


def _rate(bytes_a_second: int | None) -> Bucket | None:
    return Bucket(bytes_a_second, bytes_a_second) if bytes_a_second else None
