"""Published ports: what of a sandbox can be reached from this machine, by a port or a preview.

A port is a line in the sandbox's row before anything listens, so that it is opened again by the
next start of the sandbox or of the kernel. One that can't be opened then (somebody else has the
host's port) is told by an event and shown; it keeps nothing else from going on.

What must hold: a connection leads to a published port of its sandbox and nowhere else; what stays
open is bounded, counts as use of the sandbox, and ends with the sandbox and with the publication.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import secrets
import socket
from builtins import list as List
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from agentkernel.audit.trail import Trail, audited
from agentkernel.config.addresses import joined
from agentkernel.config.ports import parse_port
from agentkernel.errors import (
    AgentKernelError,
    ConflictError,
    HostError,
    InvalidInputError,
    NotFoundError,
    PolicyDeniedError,
    ResourceExhaustedError,
    SandboxUnavailableError,
)
from agentkernel.guest.tcp import GuestConnection, open_tcp
from agentkernel.kernel import port_relay
from agentkernel.kernel.live import Live
from agentkernel.kernel.store import SandboxRecord, Store, event_of

log = logging.getLogger("agentkernel.kernel")

MAX_PORTS: Final = 64
# Of one sandbox, over all its ports; each may hold a window in memory.
MAX_CONNECTIONS: Final = 128
_BACKLOG: Final = 128
_PAUSE_SECONDS: Final = 0.1
_TOKEN_PREFIX: Final = "akp_"


class PublishedPort(msgspec.Struct, frozen=True, kw_only=True):
    """As it stands in the row. `address` None: as a preview alone. `host_port` 0: one that is free,
    not chosen yet. `public`: its preview asks for no token."""

    port: Annotated[int, Meta(ge=1, le=65535)]
    address: str | None
    host_port: int
    public: bool = False
    token: str


class PortState(msgspec.Struct, frozen=True, kw_only=True):
    """A published port, and whether it can be used now; if not, why."""

    published: PublishedPort
    open: bool
    error: str | None = None


class _Gate:
    """A published port of a sandbox that runs."""

    def __init__(self, published: PublishedPort) -> None:
        self.published = published
        self.listener: socket.socket | None = None
        self.accepting: asyncio.AbstractEventLoop | None = None
        self.connections: set[GuestConnection] = set()
        self.error: str | None = None
        self.closed = False

    def close(self) -> None:
        self.closed = True
        if self.listener:
            if self.accepting:
                self.accepting.remove_reader(self.listener)
            self.listener.close()
        over = SandboxUnavailableError("the port was closed")
        for connection in list(self.connections):
            connection.abort(over)


class _Open:
    """What is open of one sandbox."""

    def __init__(self) -> None:
        self.gates: dict[int, _Gate] = {}
        self.count = 0


class Ports:
    """The published ports of all sandboxes of a kernel."""

    def __init__(
        self,
        store: Store,
        find: Callable[[str, str | None], Awaitable[tuple[SandboxRecord, Live]]],
        trail: Trail,
    ) -> None:
        self._store = store
        self._find = find
        self.trail = trail
        self._open: dict[str, _Open] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # -- asked for ------------------------------------------------------------------------------

    @audited("port.publish")
    async def publish(
        self, id: str, port: str, *, public: bool = False, owner: str | None = None
    ) -> PortState:
        """Opens one more port, now or when the sandbox is started. `port` is written as
        `config.ports` says. Raises ConflictError where something is published, or listens."""
        wanted = wanted_ports([port], public=public)[0]
        record, live = await self._find(id, owner)
        async with live.changing:
            record = await self._store.get_sandbox(record.id)
            there = ports_of(record)
            if any(entry.port == wanted.port for entry in there):
                raise ConflictError(
                    f"port {wanted.port} of this sandbox is published already",
                    hint="unpublish it first",
                )
            if len(there) >= MAX_PORTS:
                raise ResourceExhaustedError(
                    f"{len(there)} ports are published, which is the most there may be",
                    hint="unpublish some",
                )
            gate = None
            if live.sandbox:
                gate = _Gate(wanted)
                _bind(gate)
            published = gate.published if gate else wanted
            try:
                record = await self._store.update_sandbox(
                    record.id,
                    ports=msgspec.to_builtins([*there, published]),
                    events=[event_of(record, "port.published", **_told(published))],
                )
            except BaseException:
                if gate:
                    gate.close()
                raise
            if gate:
                self._open.setdefault(record.id, _Open()).gates[wanted.port] = gate
                self._accept(live, gate)
            return self._state(record.id, published)

    @audited("port.unpublish")
    async def unpublish(self, id: str, port: int, *, owner: str | None = None) -> None:
        """Closes it and what is connected to it. Its preview's token is worth nothing then."""
        record, live = await self._find(id, owner)
        async with live.changing:
            record = await self._store.get_sandbox(record.id)
            there = ports_of(record)
            left = [entry for entry in there if entry.port != port]
            if len(left) == len(there):
                raise NotFoundError(f"port {port} of this sandbox is not published")
            await self._store.update_sandbox(
                record.id,
                ports=msgspec.to_builtins(left) or None,
                events=[event_of(record, "port.unpublished", port=port)],
            )
            opened = self._open.get(record.id)
            if opened and (gate := opened.gates.pop(port, None)):
                gate.close()

    async def list(self, id: str, *, owner: str | None = None) -> List[PortState]:
        """By their numbers inside."""
        record = await self._store.get_sandbox(id, owner)
        found = [self._state(record.id, entry) for entry in ports_of(record)]
        return sorted(found, key=lambda state: state.published.port)

    @contextlib.asynccontextmanager
    async def connection(
        self, id: str, port: int, *, owner: str | None = None
    ) -> AsyncIterator[GuestConnection]:
        """A connection to a published port, for as long as the block lasts."""
        record, live = await self._find(id, owner)
        with live.used():  # says first what there is to say of a sandbox that does not run
            opened = self._open.get(record.id)
        gate = opened.gates.get(port) if opened else None
        if gate is None:
            raise NotFoundError(f"port {port} of this sandbox is not published")
        async with self._connected(live, gate) as inside:
            yield inside

    # -- the life of a sandbox ------------------------------------------------------------------

    def open_new(self, record: SandboxRecord) -> List[dict[str, Any]] | None:
        """Takes the host's ports of a sandbox that is being made; its row's new `ports`. Nothing is
        accepted before `serve`. Raises ConflictError, and then none is taken."""
        published = ports_of(record)
        if not published:
            return None
        opened = self._open[record.id] = _Open()
        for entry in published:
            gate = opened.gates[entry.port] = _Gate(entry)
            try:
                _bind(gate)
            except AgentKernelError:
                self.close(record.id)
                raise
        rows: List[dict[str, Any]] = msgspec.to_builtins(
            [gate.published for gate in opened.gates.values()]
        )
        return rows

    def serve(self, live: Live) -> None:
        """Accepts, from now on, what comes to the ports that were taken."""
        opened = self._open.get(live.id)
        for gate in list(opened.gates.values()) if opened else ():
            self._accept(live, gate)

    async def open_again(self, record: SandboxRecord, live: Live) -> None:
        """Opens what is published of a sandbox that runs again, as far as that can be done."""
        published = ports_of(record)
        if not published:
            return
        self.close(record.id)
        opened = self._open[record.id] = _Open()
        events = []
        for entry in published:
            gate = opened.gates[entry.port] = _Gate(entry)
            try:
                _bind(gate)
            except AgentKernelError as exc:
                gate.error = f"not open: {exc.message}"
                events.append(event_of(record, "port.not_open", reason=exc.message, **_told(entry)))
        now = [gate.published for gate in opened.gates.values()]
        if events or now != published:
            await self._store.update_sandbox(
                record.id, ports=msgspec.to_builtins(now), events=events
            )
        self.serve(live)

    async def open_all(self, lives: Mapping[str, Live]) -> None:
        """After a restart: those of every sandbox that runs."""
        for record in await self._store.all_sandboxes():
            live = lives.get(record.id)
            if record.ports and live and live.sandbox:
                try:
                    await self.open_again(record, live)
                except AgentKernelError as exc:
                    log.warning("ports of %s are not open: %s", record.id, exc.message)

    def close(self, id: str) -> None:
        """Closes all that is open of a sandbox; what is published stays so."""
        if opened := self._open.pop(id, None):
            for gate in opened.gates.values():
                gate.close()

    async def close_all(self) -> None:
        for id in list(self._open):
            self.close(id)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # -- connections ----------------------------------------------------------------------------

    def _accept(self, live: Live, gate: _Gate) -> None:
        listener = gate.listener
        if listener is None or gate.accepting or gate.closed:
            return
        gate.accepting = asyncio.get_running_loop()
        gate.accepting.add_reader(listener, self._take, live, gate, listener)

    def _take(self, live: Live, gate: _Gate, listener: socket.socket) -> None:
        """One connection. By a callback: a coroutine that is cancelled in `sock_accept` may have
        accepted one already, which then nobody closes."""
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            return
        except OSError:  # no descriptor is left, or the client was gone already
            self._pause(live, gate, listener)
            return
        connection.setblocking(False)
        task = asyncio.create_task(self._serve(live, gate, connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Also if it was cancelled before it began.
        task.add_done_callback(partial(_close_unused, connection))

    def _pause(self, live: Live, gate: _Gate, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener)

        def again() -> None:
            if not gate.closed:
                loop.add_reader(listener, self._take, live, gate, listener)

        loop.call_later(_PAUSE_SECONDS, again)

    async def _serve(self, live: Live, gate: _Gate, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(
            sock=connection, limit=port_relay.BUFFER_BYTES
        )
        try:
            async with self._connected(live, gate) as inside:
                await port_relay.relay(reader, writer, inside)
        except (AgentKernelError, OSError):
            port_relay.reset(writer)
        except BaseException:
            port_relay.reset(writer)
            raise
        else:
            await port_relay.close(writer)

    @contextlib.asynccontextmanager
    async def _connected(self, live: Live, gate: _Gate) -> AsyncIterator[GuestConnection]:
        opened = self._open.get(live.id)
        if opened is None or gate.closed:
            raise NotFoundError(f"port {gate.published.port} is not published any more")
        if opened.count >= MAX_CONNECTIONS:
            raise ResourceExhaustedError(
                f"{opened.count} connections to the sandbox are open, which is the most there may "
                "be",
                hint="close some",
            )
        opened.count += 1
        try:
            with live.used() as sandbox:
                inside = await open_tcp(sandbox.channel, gate.published.port)
                gate.connections.add(inside)
                try:
                    if gate.closed:
                        raise NotFoundError("the port was closed")
                    yield inside
                finally:
                    gate.connections.discard(inside)
                    inside.release()
        finally:
            opened.count -= 1

    def _state(self, id: str, published: PublishedPort) -> PortState:
        opened = self._open.get(id)
        gate = opened.gates.get(published.port) if opened else None
        if gate is None:
            return PortState(
                published=published, open=False, error="not open: the sandbox does not run"
            )
        return PortState(published=gate.published, open=gate.error is None, error=gate.error)


def _close_unused(connection: socket.socket, task: asyncio.Task[None]) -> None:
    """A transport closes what it was given; nobody else closes what never became one's."""
    connection.close()
    if not task.cancelled() and (error := task.exception()):
        log.error("a connection to a published port failed: %s", type(error).__name__)


def wanted_ports(texts: Iterable[str], *, public: bool = False) -> List[PublishedPort]:
    """What is to be published, each with a token of its own. Raises InvalidInputError."""
    found: List[PublishedPort] = []
    for text in texts:
        mapping = parse_port(text)
        if any(mapping.port == entry.port for entry in found):
            raise InvalidInputError(f"port {mapping.port} is to be published twice")
        found.append(
            PublishedPort(
                port=mapping.port,
                address=mapping.address,
                host_port=mapping.host_port,
                public=public,
                token=_TOKEN_PREFIX + secrets.token_hex(24),
            )
        )
    return found


def ports_of(record: SandboxRecord) -> List[PublishedPort]:
    return msgspec.convert(record.ports or [], List[PublishedPort])


def _bind(gate: _Gate) -> None:
    """Takes the host's port. Raises ConflictError if somebody else has it, or HostError."""
    published = gate.published
    if published.address is None:
        return
    six = ":" in published.address
    where = joined(published.address, published.host_port)
    listener = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if six:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        # Inherited by what is accepted: a client that vanished is noticed within some minutes.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind((published.address, published.host_port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as exc:
        listener.close()
        raise _not_bound(exc, published, where) from None
    gate.listener = listener
    gate.published = msgspec.structs.replace(published, host_port=listener.getsockname()[1])


def _not_bound(exc: OSError, published: PublishedPort, where: str) -> AgentKernelError:
    details: dict[str, Any] = {"address": published.address, "host_port": published.host_port}
    if exc.errno == errno.EADDRINUSE:
        return ConflictError(
            f"port {published.host_port} is in use",
            hint=f"another program listens on {where}; choose another port, or 0 for a free one",
            **details,
        )
    if exc.errno in (errno.EACCES, errno.EPERM):
        return PolicyDeniedError(
            f"this user may not listen on {where}", hint="choose a port above 1023", **details
        )
    return HostError(f"{where} can't be listened on: {exc.strerror}", **details)


def _told(published: PublishedPort) -> dict[str, Any]:
    """Without its token."""
    return {
        "port": published.port,
        "address": published.address,
        "host_port": published.host_port if published.address else None,
        "public": published.public,
    }
