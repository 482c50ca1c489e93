"""The order of things between sandboxes that come and go, their policies, and the gateway."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agentkernel.backends.base import NetworkSockets
from agentkernel.errors import HostError, StateCorruptError
from agentkernel.kernel import networks as module
from agentkernel.kernel.networks import Networks
from agentkernel.network.gateway.messages import Register, Secrets, Unregister, Update
from agentkernel.network.link import GatewayLink, OtherBuild
from agentkernel.network.policy.model import NetworkSetting, Operator, Policy, Rule

WIDE = NetworkSetting(phases={"default": Policy(rules=(Rule(host="*"),))})
NARROW = NetworkSetting(phases={"default": Policy()})


class Sandbox:
    """One with sockets of our own where its namespace's would be."""

    def __init__(self, id: str = "one") -> None:
        self.id = id
        self.pid = os.getpid()
        self.opened: list[NetworkSockets] = []

    async def open_network(self) -> NetworkSockets:
        tcp, names, rules = (socket.socket(type=socket.SOCK_DGRAM) for _ in range(3))
        self.opened.append(NetworkSockets(tcp=tcp, names=names, rules=rules))
        return self.opened[-1]


class Link:
    """A gateway that answers when it is told to."""

    def __init__(self) -> None:
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.asked: asyncio.Queue[type[Any]] = asyncio.Queue()
        self.answers: dict[type[Any], asyncio.Event] = {}
        self.refuses: dict[type[Any], str] = {}
        self.settings: dict[str, NetworkSetting] = {}
        self.held: list[int] = []
        self._turn = asyncio.Lock()

    def hold(self, kind: type[Any]) -> asyncio.Event:
        self.answers[kind] = asyncio.Event()
        return self.answers[kind]

    async def call(self, kind: type[Any], *descriptors: int, **fields: Any) -> None:
        self.asked.put_nowait(kind)
        async with self._turn:  # one after another, as messages are read
            await self._carry_out(kind, *descriptors, **fields)

    async def _carry_out(self, kind: type[Any], *descriptors: int, **fields: Any) -> None:
        if kind in self.answers:
            await self.answers[kind].wait()
        if words := self.refuses.pop(kind, None):
            raise HostError(words)
        self.held += [os.fstat(fd).st_ino for fd in descriptors[:2]]
        if kind in (Register, Update):
            self.settings[fields["id"]] = fields["setting"]
        elif kind is Unregister:
            self.settings.pop(fields["id"], None)

    async def until(self, kind: type[Any]) -> None:
        async with asyncio.timeout(10):
            while await self.asked.get() is not kind:
                pass

    def close(self) -> None:
        if not self.closed.done():
            self.closed.set_result(None)


class Rows:
    def __init__(self) -> None:
        self.told: list[Any] = []
        self.any = asyncio.Event()

    def post_events(self, events: list[Any]) -> None:
        self.told += events
        self.any.set()


class Lab:
    def __init__(self, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        rows: Any = Rows()
        self.rows = rows
        self.link = Link()
        self.failure: Exception | None = None
        self.networks = Networks(state, rows, Operator(), self._values)
        monkeypatch.setattr(self.networks, "_linked", self._linked)
        monkeypatch.setattr(self.networks, "_link", self.link)

    async def _values(self, owners: Any, references: Any) -> dict[str, bytes]:
        if self.failure:
            raise self.failure
        return {}

    async def _linked(self) -> Link:
        return self.link

    async def settled(self) -> None:
        async with asyncio.timeout(10):
            while tasks := set(self.networks._tasks):
                await asyncio.wait(tasks)


@pytest.fixture
async def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lab]:
    monkeypatch.setattr(module, "_PAUSES", (0.0, 0.01))
    monkeypatch.setattr(Networks._open_later, "__defaults__", (0.01,))
    made = Lab(tmp_path, monkeypatch)
    yield made
    await made.networks.close()


async def test_a_policy_that_is_narrowed_while_the_gateway_is_told_of_the_sandbox_counts(
    lab: Lab,
) -> None:
    answer = lab.link.hold(Register)
    sandbox: Any = Sandbox()
    await lab.networks.attach(sandbox, "local", WIDE)
    await lab.link.until(Register)  # with the old one
    changing = asyncio.create_task(lab.networks.update("one", NARROW))
    await asyncio.sleep(0)
    answer.set()
    await changing
    assert lab.link.settings == {"one": NARROW}, "when it returns, nothing else is in force"


async def test_a_gateway_that_refuses_a_change_does_not_go_on_with_what_was_before(
    lab: Lab,
) -> None:
    sandbox: Any = Sandbox()
    await lab.networks.attach(sandbox, "local", WIDE)
    await lab.settled()
    assert lab.link.settings == {"one": WIDE}
    lab.link.refuses[Update] = "no such sandbox here"
    await lab.networks.update("one", NARROW)
    assert lab.link.settings == {}
    await lab.settled()
    assert lab.link.settings == {"one": NARROW}


async def test_a_sandbox_that_ends_while_it_is_handed_over_leaves_no_descriptor_and_no_entry(
    lab: Lab,
) -> None:
    answer = lab.link.hold(Register)
    sandbox: Any = Sandbox()
    await lab.networks.attach(sandbox, "local", WIDE)
    mine = os.fstat(sandbox.opened[0].tcp.fileno()).st_ino
    await lab.link.until(Register)
    await lab.networks.release("one")
    strangers = [socket.socket() for _ in range(3)]  # take the numbers that are free now
    answer.set()
    await lab.settled()
    assert lab.link.held[0] == mine, "not whatever has its number by now"
    assert lab.link.settings == {}
    for sock in strangers:
        sock.close()


async def test_one_that_comes_again_under_its_id_is_not_forgotten(lab: Lab) -> None:
    answer = lab.link.hold(Register)
    first: Any = Sandbox()
    await lab.networks.attach(first, "local", WIDE)
    await lab.link.until(Register)
    await lab.networks.release("one")
    again: Any = Sandbox()
    await lab.networks.attach(again, "local", NARROW)
    answer.set()
    await lab.settled()
    assert lab.link.settings == {"one": NARROW}


@pytest.mark.parametrize("cause", ["gateway", "secrets", "disk"])
async def test_what_keeps_a_sandbox_from_its_network_is_told_and_tried_again(
    lab: Lab, cause: str, tmp_path: Path
) -> None:
    if cause == "gateway":
        lab.link.refuses[Register] = "No space left on device"
    elif cause == "secrets":
        lab.failure = StateCorruptError("the file of secrets can't be read")
    else:
        (tmp_path / "network").write_text("in the way")
    sandbox: Any = Sandbox()
    await lab.networks.attach(sandbox, "local", WIDE)
    async with asyncio.timeout(10):
        await lab.rows.any.wait()
    lab.failure = None
    with contextlib.suppress(OSError):
        (tmp_path / "network").unlink()
    await lab.settled()
    assert lab.link.settings == {"one": WIDE}
    assert {event.kind for event in lab.rows.told} == {"network.fault"}


async def test_secrets_that_cant_be_read_keep_no_daemon_from_starting(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def connect(*_: Any) -> Link:
        return lab.link

    async def welcome(_: Any) -> set[str]:
        return {"one"}

    monkeypatch.setattr(GatewayLink, "connect", connect)
    monkeypatch.setattr(lab.networks, "_welcome", welcome)
    lab.failure = StateCorruptError("the file of secrets can't be read")
    sandbox: Any = Sandbox()
    await lab.networks.find([(sandbox, "local", NARROW)])
    assert lab.link.settings == {"one": NARROW}, "what the row says is in force"
    assert Secrets not in list(lab.link.asked._queue)  # type: ignore[attr-defined]


async def test_a_gateway_that_stays_of_another_build_is_told_of(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of a daemon that runs were changed: every gateway it starts is of the new ones."""
    deaths = 0

    async def linked() -> Link:
        nonlocal deaths
        deaths += 1
        lab.networks._deaths += 1
        raise OtherBuild("the gateway was of another version, and has left")

    monkeypatch.setattr(lab.networks, "_linked", linked)
    sandbox: Any = Sandbox()
    await lab.networks.attach(sandbox, "local", WIDE)
    async with asyncio.timeout(10):
        await lab.rows.any.wait()
    assert deaths == 2, "the first may be one that was left by another daemon"
    assert "daemon restart" in lab.rows.told[0].body["reason"]
