"""A sandbox's DNS: its datagrams, and its connections to port 53 of any address."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket

from agentkernel.network.gateway import sockets
from agentkernel.network.gateway.dns import QUERY_BYTES, answer_query
from agentkernel.network.gateway.names import is_synthetic
from agentkernel.network.gateway.outbox import Bucket
from agentkernel.network.gateway.subjects import Sandbox

STREAM_SECONDS = 10.0
QUERIES_A_STREAM = 1000
_PAUSE_SECONDS = 0.05
QUERIES_A_SECOND = 500.0
QUERIES_AT_ONCE = 1000.0
_AT_ONCE = 32

_log = logging.getLogger("agentkernel.gateway")


def answer(sandbox: Sandbox, packet: bytes, *, stream: bool) -> bytes | None:
    def name_of(address: str) -> str | None:
        return sandbox.names.name_of(address) if is_synthetic(address) else None

    try:
        return answer_query(packet, sandbox.address_of, name_of, stream=stream)
    except Exception:
        # Whatever a guest sends, the next query is answered. Without its bytes, which are its own.
        _log.exception("a query of sandbox %s", sandbox.id)
        return None


def pause_after_query(sandbox: Sandbox, share: Bucket) -> float:
    """How long the next query has to wait: one process answers all sandboxes."""
    pause = share.draw(1)
    if pause:
        sandbox.tell("network.limit", "dns", "", "it asks for names faster than it may")
    return pause


class Datagrams:
    """Answers what comes to a UDP socket, some at a time, so that a flood leaves the loop free;
    what comes too fast the kernel drops."""

    def __init__(self, sandbox: Sandbox, sock: socket.socket) -> None:
        self._sandbox = sandbox
        self._socket = sock
        self._loop = asyncio.get_running_loop()
        self._share = Bucket(QUERIES_A_SECOND, QUERIES_AT_ONCE)
        self._timer: asyncio.TimerHandle | None = None
        sock.setblocking(False)
        self._resume()

    def _resume(self) -> None:
        self._timer = None
        self._loop.add_reader(self._socket.fileno(), self._read)

    def _read(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                packet, asker = self._socket.recvfrom(QUERY_BYTES + 1)
            except BlockingIOError:
                return
            except OSError:
                continue  # what the kernel could not deliver of an answer before
            if said := answer(self._sandbox, packet, stream=False):
                # Who does not take the answer asks again.
                with contextlib.suppress(OSError):
                    self._socket.sendto(said, asker)
            if pause := pause_after_query(self._sandbox, self._share):
                self._loop.remove_reader(self._socket.fileno())
                self._timer = self._loop.call_later(max(pause, _PAUSE_SECONDS), self._resume)
                return

    def close(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()


async def serve_stream(sandbox: Sandbox, client: socket.socket) -> None:
    """Queries over TCP, one after another. Raises OSError, TimeoutError."""
    share = Bucket(QUERIES_A_STREAM / 100, QUERIES_A_STREAM / 10)
    for _ in range(QUERIES_A_STREAM):
        head = await sockets.peek_exactly(client, 2, STREAM_SECONDS)
        if not head or len(head) < 2:
            return
        length = int.from_bytes(head, "big")
        if length > QUERY_BYTES:
            return
        packet = await sockets.peek_exactly(client, 2 + length, STREAM_SECONDS)
        if not packet or len(packet) < 2 + length:
            return
        sockets.consume(client, 2 + length)
        said = answer(sandbox, packet[2:], stream=True)
        if said is None:
            return
        await sockets.send_all(client, len(said).to_bytes(2, "big") + said, STREAM_SECONDS)
        await asyncio.sleep(pause_after_query(sandbox, share))
    await sockets.wait_readable(client, STREAM_SECONDS)
