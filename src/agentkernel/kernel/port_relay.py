"""A connection on the host and one inside as one: bytes both ways, and the end of each direction.

What must hold: of either direction no more is held than a window and two buffers, so an end that
does not read stops the other; and nothing is left when either end is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import struct
from typing import Any, Final

from agentkernel.guest.tcp import GuestConnection

BUFFER_BYTES: Final = 64 << 10
# How often we look whether a client is gone whose bytes nobody inside reads.
_LOOK_SECONDS: Final = 15.0
# How long a client may take for the last bytes.
_LAST_SECONDS: Final = 30.0


async def relay(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, inside: GuestConnection
) -> None:
    """Returns when both directions have ended. Raises what a lost end raises."""
    writer.transport.set_write_buffer_limits(high=BUFFER_BYTES)
    up = asyncio.create_task(_to_guest(reader, inside))
    down = asyncio.create_task(_to_client(inside, writer))
    gone = asyncio.create_task(_gone(writer))
    tasks = {up, down, gone}
    try:
        # That the client sends no more is no end: the answer may be under way.
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if up.done() and not up.exception():
            await asyncio.wait({down, gone}, return_when=asyncio.FIRST_COMPLETED)
        for task in (down, up):
            if task.done():
                task.result()
    finally:
        await ended(*tasks)


async def ended(*tasks: asyncio.Task[Any]) -> None:
    """Returns when none of them goes on; what they raised is nobody's any more."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()


async def _to_guest(reader: asyncio.StreamReader, inside: GuestConnection) -> None:
    while data := await reader.read(BUFFER_BYTES):
        await inside.write(data)
    inside.write_eof()


async def _to_client(inside: GuestConnection, writer: asyncio.StreamWriter) -> None:
    while data := await inside.read():
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
        await inside.wait_closed()


async def _gone(writer: asyncio.StreamWriter) -> None:
    """Returns when the connection was reset: while nothing is read from it, nobody would tell."""
    connection = writer.get_extra_info("socket")
    poll = select.poll()
    poll.register(connection.fileno(), 0)  # POLLERR is always told
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        if any(events & (select.POLLERR | select.POLLNVAL) for _, events in poll.poll(0)):
            return


async def close(writer: asyncio.StreamWriter) -> None:
    """Closes after the last bytes, which a client has not for ever to take."""
    with contextlib.suppress(OSError, TimeoutError):
        writer.close()
        async with asyncio.timeout(_LAST_SECONDS):
            await writer.wait_closed()
    writer.transport.abort()


def reset(writer: asyncio.StreamWriter) -> None:
    """Ends it as a refused connection ends: the client learns that this was no orderly end."""
    connection = writer.get_extra_info("socket")
    if connection is not None and connection.family != socket.AF_UNIX:
        with contextlib.suppress(OSError, ValueError):  # it is closed already
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
