"""Reaching the other side: resolved here, every address vetted, then dialled.

The address the guest sees is synthetic, so it can't bring one of its own: what a name means is
asked at every connection, and only an address that was vetted is dialled. So a name server that
answers first this and then that gains nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from agentkernel.errors import InvalidInputError
from agentkernel.network.gateway import upstream_proxy
from agentkernel.network.gateway.flow import Flow, Refused
from agentkernel.network.gateway.targets import is_address
from agentkernel.network.policy.addresses import vet
from agentkernel.network.policy.judging import judge_address
from agentkernel.network.policy.model import (
    MCP_MACHINE,
    THIS_MACHINE,
    TOOLS_GREETING,
    TOOLS_HOST,
    TOOLS_SOCKET,
    Operator,
)
from agentkernel.network.policy.names import Address, parse_address

RESOLVE_SECONDS = 8.0
CONNECT_SECONDS = 10.0
FALLBACK_SECONDS = 0.3
"""How long an address has before the next one is tried beside it."""
_ADDRESSES = 8
_THREADS = 16
_LOOKUPS_OF_ONE = 6


class HostDialler:
    """The Dialler of a gateway. `state_dir`: where the daemon's socket for tools is."""

    def __init__(self, state_dir: str = "") -> None:
        self._state_dir = state_dir
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="resolve")
        self._turns: dict[str, asyncio.Semaphore] = {}

    def forget(self, sandbox: str) -> None:
        self._turns.pop(sandbox, None)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def dial(self, flow: Flow) -> tuple[socket.socket, str]:
        operator = flow.subject.operator
        # Before anybody's own addresses: what is sent there is meant for nobody else.
        if flow.host == TOOLS_HOST:
            return await self._dial_tools(flow), "the daemon"
        if flow.host == MCP_MACHINE:
            return await self._connect(flow, self._vetted(flow, [parse_address("127.0.0.1")]))
        written = operator.hosts.get(flow.host)
        if written is not None:
            return await self._dial_written(flow, written)
        if flow.host == THIS_MACHINE:
            return await self._connect(flow, self._vetted(flow, [parse_address("127.0.0.1")]))
        proxy = upstream_proxy.find(operator.upstream_proxy, flow.host, flow.port)
        if proxy is not None:
            # Whoever needs a proxy often has no resolver: the proxy is told the name and resolves
            # it. An address is vetted before all the same.
            if is_address(flow.host):
                self._vetted(flow, [parse_address(flow.host)])
            return await self._through(flow, proxy)
        found = await self._resolve(flow, operator)
        sock, address = await self._connect(flow, self._vetted(flow, found))
        try:
            # Again: the policy may have changed meanwhile. From here on a change finds it.
            flow.extra["vetted"] = self._vetted(flow, [parse_address(address)])[0]
        except Refused:
            sock.close()
            raise
        return sock, address

    async def _dial_tools(self, flow: Flow) -> socket.socket:
        """A guest says nothing of who it is: which sandbox this is, we know."""
        greeting = f"{TOOLS_GREETING} {flow.subject.id}\n".encode()
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        # Through the directory's descriptor, as a path may have 107 bytes only.
        directory = -1
        try:
            directory = os.open(self._state_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            loop = asyncio.get_running_loop()
            async with asyncio.timeout(CONNECT_SECONDS):
                await loop.sock_connect(sock, f"/proc/self/fd/{directory}/{TOOLS_SOCKET}")
                await loop.sock_sendall(sock, greeting)
        except (OSError, TimeoutError):
            sock.close()
            raise Refused(
                "the sandbox's tools are not there now: the daemon does not run"
            ) from None
        except BaseException:
            sock.close()
            raise
        finally:
            if directory >= 0:
                os.close(directory)
        flow.extra["address"] = "the daemon"
        return sock

    async def _dial_written(self, flow: Flow, written: str) -> tuple[socket.socket, str]:
        """An address that the operator wrote is taken as it is."""
        try:
            address = parse_address(written)
        except InvalidInputError:
            raise Refused(f"network.hosts has no address for {flow.host}: {written!r}") from None
        return await self._connect(flow, [address])

    async def _resolve(self, flow: Flow, operator: Operator) -> list[Address]:
        if is_address(flow.host):
            return [parse_address(flow.host)]
        # So that one sandbox's slow lookups do not keep all threads: a turn is over with its thread
        # only, which goes on when nobody waits for it any more.
        turn = self._turns.setdefault(flow.subject.id, asyncio.Semaphore(_LOOKUPS_OF_ONE))
        try:
            async with asyncio.timeout(RESOLVE_SECONDS):
                if operator.resolver:
                    async with turn:
                        found = await ask_resolver(operator.resolver, flow.host)
                else:
                    await turn.acquire()
                    found = await self._ask_system(flow.host, turn.release)
        except TimeoutError:
            raise Refused(f"{flow.host} could not be resolved in time on the host") from None
        if not found:
            raise Refused(f"the host knows no address of {flow.host}")
        return found

    async def _ask_system(
        self, host: str, ended: Callable[[], None] = lambda: None
    ) -> list[Address]:
        """`ended` is called, in the loop, when the lookup is over, or will not begin."""
        loop = asyncio.get_running_loop()

        def tell(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # there is no loop any more
                loop.call_soon_threadsafe(ended)

        lookup = self._threads.submit(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM)
        lookup.add_done_callback(tell)
        try:
            infos = await asyncio.wrap_future(lookup)
        except (socket.gaierror, UnicodeError):
            return []
        return _distinct([str(info[4][0]) for info in infos])

    def _vetted(self, flow: Flow, found: Sequence[Address]) -> list[Address]:
        """Those that may be dialled: all of them, or none. A name that means a public and a private
        address at once is a trick, or a fault that should be seen."""
        verdict, setting = flow.verdict, flow.subject.setting
        for address in found:
            denied = judge_address(
                setting.policy, flow.subject.operator.floor, flow.host, flow.port, address
            )
            if denied is not None:
                raise Refused(f"{flow.host} means {address}: {denied.words}", denied=True)
            why = vet(address, verdict.private, verdict.port_named, exact=verdict.exact)
            if why is not None:
                what = "it" if str(address) == flow.host else f"{flow.host} means {address}: it"
                raise Refused(f"{what} is {why}", denied=True)
        return list(found)

    async def _connect(self, flow: Flow, addresses: Sequence[Address]) -> tuple[socket.socket, str]:
        sock, address = await connect_first(addresses[:_ADDRESSES], flow.port, flow.host)
        flow.extra["address"] = address
        return sock, address

    async def _through(self, flow: Flow, proxy: upstream_proxy.Proxy) -> tuple[socket.socket, str]:
        try:
            async with asyncio.timeout(RESOLVE_SECONDS):
                found = await self._ask_proxy_address(proxy.host)
        except TimeoutError:
            found = []
        if not found:
            raise Refused(f"the host's proxy {proxy.host} can't be resolved")
        sock, _ = await connect_first(found[:_ADDRESSES], proxy.port, f"the proxy {proxy.host}")
        try:
            await upstream_proxy.ask(sock, proxy, flow.host, flow.port)
        except BaseException:
            sock.close()
            raise
        address = f"proxy {proxy.host}:{proxy.port}"
        flow.extra["address"] = address
        return sock, address

    async def _ask_proxy_address(self, host: str) -> list[Address]:
        try:
            return [parse_address(host)]
        except InvalidInputError:
            return await self._ask_system(host)


async def connect_first(
    addresses: Sequence[Address], port: int, what: str
) -> tuple[socket.socket, str]:
    """Dials them one after another, the next as soon as one is slow; the first that answers is
    taken and the others are closed. Raises Refused."""
    loop = asyncio.get_running_loop()
    pending: set[asyncio.Task[socket.socket]] = set()
    owners: dict[asyncio.Task[socket.socket], Address] = {}
    waiting = list(addresses)
    failure: BaseException | None = None
    end = loop.time() + CONNECT_SECONDS
    try:
        while waiting or pending:
            if waiting:
                address = waiting.pop(0)
                task = loop.create_task(_connect_one(address, port))
                pending.add(task)
                owners[task] = address
            left = end - loop.time()
            if left <= 0:
                break
            done, pending = await asyncio.wait(
                pending,
                timeout=min(FALLBACK_SECONDS, left) if waiting else left,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in done:
                if (problem := task.exception()) is None:
                    won = owners.pop(task)
                    return task.result(), str(won)
                failure = problem
    finally:
        for task in owners:
            task.add_done_callback(_close_late)
            task.cancel()
    if isinstance(failure, OSError) and failure.errno:
        why = os.strerror(failure.errno).lower()
        raise Refused(f"{what} port {port} can't be reached: {why}")
    raise Refused(f"{what} port {port} does not answer")


def _close_late(task: asyncio.Task[socket.socket]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()


async def _connect_one(address: Address, port: int) -> socket.socket:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        await asyncio.get_running_loop().sock_connect(sock, (str(address), port))
    except BaseException:
        sock.close()
        raise
    return sock


async def ask_resolver(resolver: str, host: str) -> list[Address]:
    """Asks the operator's name server for both kinds of address."""
    import dns.asyncresolver
    import dns.exception
    import dns.resolver

    server, _, port = resolver.rpartition(":")
    asker = dns.asyncresolver.Resolver(configure=False)
    try:
        asker.nameservers = [server.strip("[]")]
        asker.port = int(port)
    except (ValueError, dns.exception.DNSException):
        raise Refused(f"network.resolver is not ADDRESS:PORT: {resolver!r}") from None
    asker.lifetime = RESOLVE_SECONDS / 2

    async def ask(kind: str) -> list[str]:
        try:
            answer = await asker.resolve(f"{host}.", kind, search=False)
        except (dns.exception.DNSException, OSError):
            return []
        return [record.to_text() for record in answer]

    four, six = await asyncio.gather(ask("A"), ask("AAAA"))
    return _distinct([*four, *six])


def _distinct(texts: Sequence[str]) -> list[Address]:
    found: dict[Address, None] = {}
    for text in texts:
        try:
            found[parse_address(text)] = None
        except InvalidInputError:
            # A link-local address with its zone: nobody reaches the internet by it.
            continue
    return list(found)
