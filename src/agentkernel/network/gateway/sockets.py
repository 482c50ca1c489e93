"""Waiting for raw sockets, and looking at what they hold without taking it.

Raw, because a connection is handed from one part to the next with nothing consumed, which event
loops' own streams can't do.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import struct
import time

_RESET = struct.pack("ii", 1, 0)
_KEEPALIVE = (
    (socket.TCP_KEEPIDLE, 60),
    (socket.TCP_KEEPINTVL, 20),
    (socket.TCP_KEEPCNT, 4),
)


async def wait_readable(sock: socket.socket, seconds: float | None) -> bool:
    """False if nothing came in that time. A connection's end counts as something."""
    return await wait_any((sock,), seconds) is not None


async def wait_any(socks: tuple[socket.socket, ...], seconds: float | None) -> socket.socket | None:
    """The first of `socks` that can be read; of several, the one that stands first."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    found: set[socket.socket] = set()

    def note(sock: socket.socket) -> None:
        found.add(sock)
        if not ready.done():
            ready.set_result(None)

    for sock in socks:
        loop.add_reader(sock.fileno(), note, sock)
    try:
        async with asyncio.timeout(seconds):
            await ready
    except TimeoutError:
        return None
    finally:
        for sock in socks:
            loop.remove_reader(sock.fileno())
    return next(sock for sock in socks if sock in found)


def peek(sock: socket.socket, most: int) -> bytes:
    """What can be read at once, left where it is. Raises BlockingIOError, OSError."""
    return sock.recv(most, socket.MSG_PEEK)


def is_ended(sock: socket.socket) -> bool:
    """True if the other end will send no more than what is there to be read."""
    poller = select.poll()
    poller.register(sock.fileno(), select.POLLRDHUP)
    return bool(poller.poll(0))


async def wait_for_more(sock: socket.socket, have: int, deadline: float) -> bool:
    """Waits until more than `have` bytes can be peeked. False: the time is over, or no more come.

    The low-water mark keeps the loop from turning for bytes that were seen already.
    """
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, have + 1)
        while (left := deadline - time.monotonic()) > 0:
            if not await wait_readable(sock, left):
                return False
            try:
                if len(peek(sock, have + 1)) > have:
                    return True
            except BlockingIOError:
                continue
            if is_ended(sock):
                return False
            await asyncio.sleep(0.02)
        return False
    except OSError:
        return False
    finally:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


async def peek_until(sock: socket.socket, mark: bytes, most: int, seconds: float) -> bytes | None:
    """All up to and including `mark`, left where it is. None: it does not come in time, or not
    within `most` bytes."""
    deadline = time.monotonic() + seconds
    data = b""
    while len(data) < most:
        if not await wait_for_more(sock, len(data), deadline):
            return None
        try:
            data = peek(sock, most)
        except OSError:
            return None
        if (at := data.find(mark)) >= 0:
            return data[: at + len(mark)]
    return None


async def peek_exactly(sock: socket.socket, count: int, seconds: float) -> bytes | None:
    if not await wait_for_more(sock, count - 1, time.monotonic() + seconds):
        return None
    try:
        return peek(sock, count)
    except OSError:
        return None


def consume(sock: socket.socket, count: int) -> None:
    """Takes what was peeked."""
    while count:
        count -= len(sock.recv(count)) or count


async def send_all(sock: socket.socket, data: bytes, seconds: float = 10) -> None:
    """Raises OSError, TimeoutError."""
    async with asyncio.timeout(seconds):
        await asyncio.get_running_loop().sock_sendall(sock, data)


def reset(sock: socket.socket) -> None:
    """Closes it in a way the other end notices at once, whatever is under way."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    sock.close()


def tune(sock: socket.socket) -> None:
    """For connections that carry other programs' bytes: no delay, and dead peers are noticed."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
