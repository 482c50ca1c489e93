"""All sandboxes of one gateway, and what the daemon may ask of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Sequence

from agentkernel.network.gateway.accepting import (
    Acceptor,
    OriginalDestination,
    original_destination,
)
from agentkernel.network.gateway.messages import (
    GENERATION,
    Call,
    Done,
    Hello,
    Register,
    Reply,
    Secrets,
    Status,
    Stop,
    Unregister,
    Update,
    Welcome,
)
from agentkernel.network.gateway.resolver import Datagrams
from agentkernel.network.gateway.routing import Router
from agentkernel.network.gateway.subjects import Sandbox, World
from agentkernel.network.gateway.upstream import HostDialler

DESCRIPTORS = 3
_log = logging.getLogger("agentkernel.gateway")


class BadCall(Exception):
    """What was asked can't be done; the words say why."""


class Registered:
    """A sandbox with its sockets."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self._acceptor: Acceptor | None = None
        self._datagrams: Datagrams | None = None
        self._life = -1

    def attach(
        self, router: Router, destination: OriginalDestination, descriptors: Sequence[int]
    ) -> int:
        """Takes the descriptors, whatever happens. Returns the one that ends with the sandbox.
        Raises BadCall."""
        self.detach()
        tcp, udp = (socket.socket(fileno=fd) for fd in descriptors[:2])
        self._life = descriptors[2]
        if tcp.type != socket.SOCK_STREAM or udp.type != socket.SOCK_DGRAM:
            tcp.close()
            udp.close()
            raise BadCall("the descriptors are not a TCP and a UDP socket")
        self._acceptor = Acceptor(self.sandbox, router, tcp, destination)
        self._datagrams = Datagrams(self.sandbox, udp)
        return self._life

    def detach(self) -> None:
        if self._acceptor:
            self._acceptor.close()
        if self._datagrams:
            self._datagrams.close()
        if self._life >= 0:
            asyncio.get_running_loop().remove_reader(self._life)
            os.close(self._life)
        self._acceptor = self._datagrams = None
        self._life = -1


class Gateway:
    """`stopping` is set when it is to leave, `emptied` whenever its last sandbox has gone.
    `destination` tells where a connection wanted to go."""

    def __init__(
        self, state_dir: str, destination: OriginalDestination = original_destination
    ) -> None:
        self.world = World(state_dir)
        self.dialler = HostDialler(state_dir)
        self.stopping = asyncio.Event()
        self.emptied = asyncio.Event()
        self._sandboxes: dict[str, Registered] = {}
        self._destination = destination
        self._leaving: set[asyncio.Task[None]] = set()

    @property
    def sandboxes(self) -> tuple[str, ...]:
        return tuple(self._sandboxes)

    async def handle(self, call: Call, descriptors: Sequence[int]) -> Reply:
        """One call of the daemon. The descriptors are ours from here on."""
        try:
            if not isinstance(call, Register):
                _close_all(descriptors)
            return await self._carry_out(call, descriptors)
        except BadCall as exc:
            return Done(serial=call.serial, error=str(exc))
        except OSError as exc:
            return Done(serial=call.serial, error=exc.strerror or "the system refused")

    async def _carry_out(self, call: Call, descriptors: Sequence[int]) -> Reply:
        match call:
            case Hello():
                self.world.operator = call.operator
                await self._judge_all()
                return self.welcome(call.serial)
            case Secrets():
                self.world.values = dict(call.values)
            case Register():
                await self._register(call, descriptors)
            case Update():
                await self._known(call.id).sandbox.change(call.setting)
            case Unregister():
                await self._forget(self._known(call.id))
            case Status():
                return self._known(call.id).sandbox.counted(call.serial)
            case Stop():
                # Before the answer: while these are open, a sandbox can't be given other sockets.
                for registered in self._sandboxes.values():
                    registered.detach()
                self.stopping.set()
        return Done(serial=call.serial)

    def welcome(self, serial: int) -> Welcome:
        return Welcome(
            serial=serial, generation=GENERATION, pid=os.getpid(), sandboxes=self.sandboxes
        )

    def _known(self, id: str) -> Registered:
        if registered := self._sandboxes.get(id):
            return registered
        raise BadCall("there is no such sandbox here")

    async def _register(self, call: Register, descriptors: Sequence[int]) -> None:
        registered = self._sandboxes.get(call.id)
        try:
            if len(descriptors) != DESCRIPTORS:
                raise BadCall(f"{DESCRIPTORS} descriptors belong to a sandbox")
            if registered is None:
                sandbox = Sandbox(self.world, call.id, call.setting, call.names, call.owner)
                registered = Registered(sandbox)
        except BaseException:
            _close_all(descriptors)
            raise
        self._sandboxes[call.id] = registered
        router = Router(registered.sandbox, self.dialler)
        try:
            life = registered.attach(router, self._destination, descriptors)
            asyncio.get_running_loop().add_reader(life, self._died, registered)
        except BaseException:
            await self._forget(registered)
            raise
        await registered.sandbox.change(call.setting)

    def _died(self, registered: Registered) -> None:
        registered.detach()
        task = asyncio.get_running_loop().create_task(self._forget(registered))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _forget(self, registered: Registered) -> None:
        sandbox = registered.sandbox
        if self._sandboxes.get(sandbox.id) is registered:
            del self._sandboxes[sandbox.id]
        registered.detach()
        await sandbox.end()
        self.dialler.forget(sandbox.id)
        self.world.outbox.forget(sandbox.id)
        if not self._sandboxes:
            self.emptied.set()

    async def _judge_all(self) -> None:
        await asyncio.gather(*(r.sandbox.judge_again() for r in self._sandboxes.values()))

    async def close(self) -> None:
        for registered in list(self._sandboxes.values()):
            await self._forget(registered)
        for task in list(self._leaving):
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self.dialler.close()


def _close_all(descriptors: Sequence[int]) -> None:
    for fd in descriptors:
        os.close(fd)
