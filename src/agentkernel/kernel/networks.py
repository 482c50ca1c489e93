"""The ways out of all running sandboxes: their sockets, the gateway's process, what it is told.

A sandbox's sockets are held here, so that the gateway is started when the first of its connections
comes and not before, and can be given them again when it dies. What must hold: the row is the
truth, and is written before the gateway is told; a gateway that is not there, or was not told,
means no network. The gateway outlives this process; whoever comes next finds it, and tells it what
the rows say.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agentkernel.backends.base import NetworkSockets, Sandbox
from agentkernel.errors import AgentKernelError, HostError
from agentkernel.kernel.store import NewEvent, Store
from agentkernel.network.gateway.messages import (
    Counted,
    Events,
    NetworkEvent,
    Register,
    Secrets,
    Unregister,
    Update,
)
from agentkernel.network.link import GatewayLink, LinkClosed, OtherBuild
from agentkernel.network.policy.model import NetworkSetting, Operator
from agentkernel.network.starting import reap, start_gateway

log = logging.getLogger("agentkernel.kernel")

Values = Callable[[Iterable[str], Iterable[str]], Awaitable[Mapping[str, bytes]]]
"""All of these owners, and these, by reference."""
_PAUSES = (0.0, 0.2, 1.0, 5.0)
"""Before the gateway is started again, each time it dies without having lived for a while."""
_LONG_LIFE_S = 60.0
_CHANGED = (
    "agentkernel's files have changed since this daemon began, and the gateway is of the new ones; "
    "until `agentkernel daemon restart` nothing gets out"
)


@dataclass
class WayOut:
    """One sandbox's. `sockets` is None where the gateway has them from an earlier daemon."""

    sandbox: Sandbox
    owner: str
    setting: NetworkSetting
    sockets: NetworkSockets | None
    registered: bool = False
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)


class Networks:
    """See the module. `values` gives secrets."""

    def __init__(self, state_dir: Path, store: Store, operator: Operator, values: Values) -> None:
        self._state_dir = state_dir
        self._names = state_dir / "network" / "names"
        self._store = store
        self._values = values
        self.operator = operator
        self._ways: dict[str, WayOut] = {}
        self._link: GatewayLink | None = None
        self._linking = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._decisions: Counter[str] = Counter()
        self._deaths = 0
        self._closed = False

    @property
    def decisions(self) -> Mapping[str, int]:
        """Decisions of the gateway since this process started, by kind."""
        return self._decisions

    @property
    def ways(self) -> int:
        """Running sandboxes that have a way out."""
        return len(self._ways)

    @property
    def gateway_runs(self) -> bool:
        return self._link is not None and not self._link.closed.done()

    # -- sandboxes come and go ------------------------------------------------------------------

    async def attach(self, sandbox: Sandbox, owner: str, setting: NetworkSetting) -> None:
        """A sandbox was made or started. Raises HostError where it can have no network."""
        way = WayOut(sandbox, owner, setting, await sandbox.open_network())
        self._ways[sandbox.id] = way
        self._listen(way)

    async def find(self, found: Iterable[tuple[Sandbox, str, NetworkSetting]]) -> None:
        """What runs already when we come: a gateway that still has it is told what its row says."""
        kept: set[str] = set()
        with contextlib.suppress(LinkClosed):
            link = await GatewayLink.connect(self._state_dir, self._tell)
            kept = await self._welcome(link)
        for sandbox, owner, setting in found:
            known = sandbox.id in kept
            way = WayOut(sandbox, owner, setting, None, registered=known)
            self._ways[sandbox.id] = way
            if known:
                await self._update(way)
            else:
                await self._open(way)
        if self._link:
            for id in kept - self._ways.keys():
                await self._forget(id)
            try:
                await self._send_secrets()
            except AgentKernelError as exc:
                # Sandboxes can be looked at and ended without: the gateway has what it had.
                log.warning("network: %s", exc.message)

    async def release(self, id: str) -> None:
        """It is about to end, or has."""
        way = self._ways.pop(id, None)
        if way is None:
            return
        self._unlisten(way)
        if way.sockets:
            way.sockets.close()
        if way.registered:
            await self._forget(id)

    async def update(self, id: str, setting: NetworkSetting) -> None:
        """The row says so now. When this returns, nothing goes on that it does not allow."""
        way = self._ways.get(id)
        if way is None:
            return
        way.setting = setting
        # A gateway that is being told of the sandbox at this moment may be told what was before.
        async with way.changing:
            if way.registered:
                await self._update(way)
                await self._send_secrets()

    async def secrets_changed(self) -> None:
        """Values were set, rotated or removed: at once."""
        await self._send_secrets()

    async def counted(self, id: str) -> Counted | None:
        """Its traffic so far. None: there was none, or the gateway is away."""
        way = self._ways.get(id)
        if way is None or not way.registered or self._link is None:
            return None
        with contextlib.suppress(LinkClosed):
            return await self._link.count(id)
        return None

    def remove(self, id: str) -> None:
        """Nothing of the sandbox is to stay."""
        self._names_file(id).unlink(missing_ok=True)

    def keep_only(self, ids: Container[str]) -> None:
        """What a crash between a sandbox's end and ours left of others."""
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self._names):
                if name not in ids:
                    self.remove(name)

    def _names_file(self, id: str) -> Path:
        """Which name has which address in that sandbox: the gateway writes it."""
        return self._names / id

    async def close(self) -> None:
        """Lets go; the gateway goes on with what it has."""
        self._closed = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for way in self._ways.values():
            self._unlisten(way)
            if way.sockets:
                way.sockets.close()
        self._ways.clear()
        if self._link:
            self._link.close()
        reap()

    # -- the first connection -------------------------------------------------------------------

    def _listen(self, way: WayOut) -> None:
        """Nothing is read here: that something came is enough."""
        if way.sockets is None:
            return
        if self.gateway_runs:
            self._start(self._register(way))
            return
        loop = asyncio.get_running_loop()
        for sock in (way.sockets.tcp, way.sockets.names):
            loop.add_reader(sock, self._wake, way)

    def _unlisten(self, way: WayOut) -> None:
        if way.sockets is not None:
            loop = asyncio.get_running_loop()
            for sock in (way.sockets.tcp, way.sockets.names):
                loop.remove_reader(sock)

    def _wake(self, way: WayOut) -> None:
        self._unlisten(way)
        self._start(self._register(way))

    def _start(self, work: Awaitable[None]) -> None:
        async def guarded() -> None:
            try:
                await work
            except AgentKernelError as exc:
                log.warning("network: %s", exc.message)

        task = asyncio.create_task(guarded(), name="network")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- the gateway ----------------------------------------------------------------------------

    async def _register(self, way: WayOut) -> None:
        async with way.changing:
            if way.registered or not self._is_there(way):
                return
            try:
                await self._hand_over(way)
            except ProcessLookupError:
                return
            except LinkClosed as exc:
                if isinstance(exc, OtherBuild) and self._deaths > 1:
                    # One that was left from before is replaced; one that we started ourselves says
                    # that the files of this program are others than when this daemon began.
                    self._fault(way, _CHANGED)
                self._open_later(way, self._pause())
            except (AgentKernelError, OSError) as exc:
                # Whatever it was, a full disk perhaps, may be over later.
                self._fault(way, exc.message if isinstance(exc, AgentKernelError) else str(exc))
                self._open_later(way)

    async def _hand_over(self, way: WayOut) -> None:
        """Preconditions: `changing` is held. Raises AgentKernelError, OSError."""
        self._names.mkdir(mode=0o700, parents=True, exist_ok=True)
        link = await self._linked()
        if way.sockets is None:
            opened = await way.sandbox.open_network()
            if not self._is_there(way):
                opened.close()
                return
            way.sockets = opened
        await self._send_secrets()
        if not self._is_there(way):
            return  # and its sockets are closed
        with contextlib.ExitStack() as stack:
            # Copies: `release` may close the others while the message waits for its turn, and their
            # numbers may be another sandbox's by then.
            copies = [stack.enter_context(s.dup()) for s in (way.sockets.tcp, way.sockets.names)]
            pid = os.pidfd_open(way.sandbox.pid)
            stack.callback(os.close, pid)
            await link.call(
                Register,
                *(sock.fileno() for sock in copies),
                pid,
                id=way.sandbox.id,
                owner=way.owner,
                setting=way.setting,
                names=str(self._names_file(way.sandbox.id)),
            )
        way.registered = not link.closed.done()
        if way.sandbox.id not in self._ways:
            await self._forget(way.sandbox.id)
        elif not way.registered:
            raise LinkClosed

    def _is_there(self, way: WayOut) -> bool:
        return self._ways.get(way.sandbox.id) is way

    async def _open(self, way: WayOut) -> None:
        """By entering the namespace, where a guest may be in the way: then it is tried again."""
        try:
            if way.sockets is None:
                opened = await way.sandbox.open_network()
                if not self._is_there(way):
                    opened.close()
                    return
                way.sockets = opened
            self._listen(way)
        except AgentKernelError as exc:
            self._fault(way, exc.message)
            self._open_later(way)

    def _open_later(self, way: WayOut, seconds: float = _PAUSES[-1]) -> None:
        async def later() -> None:
            await asyncio.sleep(seconds)
            if self._is_there(way) and not way.registered:
                await self._open(way)

        self._start(later())

    async def _linked(self) -> GatewayLink:
        async with self._linking:
            if self._link is not None and not self._link.closed.done():
                return self._link
            link = await start_gateway(self._state_dir, self._tell)
            try:
                await self._welcome(link)
            except LinkClosed:
                self._deaths += 1
                raise
            assert self._link is not None
            return self._link

    async def _welcome(self, link: GatewayLink) -> set[str]:
        welcome = await link.greet(self.operator)
        self._link = link
        born = asyncio.get_running_loop().time()
        link.closed.add_done_callback(lambda _: self._lost(link, born))
        return set(welcome.sandboxes)

    def _lost(self, link: GatewayLink, born: float) -> None:
        """The gateway died, or was killed. What it had is given to the next one."""
        if self._closed or self._link is not link:
            return
        self._link = None
        lived = asyncio.get_running_loop().time() - born
        self._deaths = 0 if lived > _LONG_LIFE_S else self._deaths + 1
        orphans = [way for way in self._ways.values() if way.registered]
        for way in orphans:
            way.registered = False
            self._fault(way, "the gateway has ended and is started again")

        async def again() -> None:
            await asyncio.sleep(self._pause())
            for way in orphans:
                await self._register(way)

        if orphans:
            self._start(again())

    def _pause(self) -> float:
        return _PAUSES[min(self._deaths - 1, len(_PAUSES) - 1)] if self._deaths else 0.0

    async def _update(self, way: WayOut) -> None:
        if self._link is None:
            return
        try:
            await self._link.call(Update, id=way.sandbox.id, setting=way.setting)
        except LinkClosed:
            pass  # a gateway that ended knows nothing any more: the next one is told all
        except HostError as exc:
            # It must not go on with what was before. It may just have seen the sandbox end.
            await self._forget(way.sandbox.id)
            way.registered = False
            self._fault(way, exc.message)
            self._open_later(way)

    async def _forget(self, id: str) -> None:
        if self._link:
            with contextlib.suppress(LinkClosed, HostError):
                await self._link.call(Unregister, id=id)

    async def _send_secrets(self) -> None:
        if self._link is None:
            return
        wanted = {bound.reference for way in self._ways.values() for bound in way.setting.secrets}
        values = await self._values({way.owner for way in self._ways.values()}, wanted)
        with contextlib.suppress(LinkClosed):
            await self._link.call(Secrets, values=dict(values))

    # -- events ---------------------------------------------------------------------------------

    def _tell(self, told: Events) -> None:
        if self._closed:
            return
        for event in told.events:
            self._decisions[event.kind.removeprefix("network.")] += event.times
        self._store.post_events([self._event(event) for event in told.events])
        if told.dropped:
            self._store.post_events(
                [NewEvent(kind="network.dropped", body={"events": told.dropped})]
            )

    def _event(self, event: NetworkEvent) -> NewEvent:
        way = self._ways.get(event.sandbox)
        body = {
            name: value
            for name in _SHOWN
            if (value := getattr(event, name)) not in ("", None, 0) or name == "host"
        }
        return NewEvent(
            kind=event.kind,
            sandbox_id=event.sandbox,
            owner=way.owner if way else None,
            at=event.at,
            body=body,
        )

    def _fault(self, way: WayOut, words: str) -> None:
        self._store.post_events(
            [
                NewEvent(
                    kind="network.fault",
                    sandbox_id=way.sandbox.id,
                    owner=way.owner,
                    body={"reason": words},
                )
            ]
        )


_SHOWN = tuple(
    name for name in NetworkEvent.__struct_fields__ if name not in ("at", "sandbox", "kind")
)
