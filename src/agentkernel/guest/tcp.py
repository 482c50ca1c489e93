"""A byte stream to a port inside: connections from the host come in this way, and no other.

agentd connects to the sandbox's own loopback, so this works with every engine and with the network
closed. What must hold: no more than a window is held of what the port sends, and no more is under
way to it than agentd granted; so an end that does not read stops the other.
"""

from __future__ import annotations

import asyncio
from typing import Final

from agentkernel.errors import (
    AgentKernelError,
    GuestPortError,
    GuestProtocolError,
    GuestTimeoutError,
    ResourceExhaustedError,
    SandboxUnavailableError,
)
from agentkernel.guest import protocol
from agentkernel.guest.channel import Control, GuestChannel, Output, Stream

CONNECT_SECONDS: Final = 10.0
# A server may listen on one of them alone: `localhost` is ::1 to some.
_LOOPBACK: Final = ("127.0.0.1", "::1")
# What tells that nobody is there, or that there is no such address in this sandbox.
_ABSENT: Final = frozenset({"ECONNREFUSED", "EADDRNOTAVAIL", "EAFNOSUPPORT", "ENETUNREACH"})


class GuestConnection:
    """One connection. Read to the end, write, close either direction, then `release`."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._given: Output | None = None
        self._ended = False

    async def read(self) -> bytes:
        """The next bytes; empty when the port sends no more.

        Asking for more says that what was given before is out of the caller's hands.
        """
        if self._given:
            self._stream.consumed(self._given.channel, len(self._given.data))
            self._given = None
        while not self._ended:
            message = await self._stream.next()
            if isinstance(message, Output):
                self._given = message
                return message.data
            if not isinstance(message, Control) or message.body.get("ev") == "eof":
                self._ended = True
        return b""

    async def wait_closed(self) -> None:
        """Returns when both directions are closed. Preconditions: `read` gave its end."""
        while not self._stream.ended:
            await self._stream.next()

    async def write(self, data: bytes) -> None:
        """Returns when it is on its way: a port that does not read makes this wait. What is written
        after both ends closed is thrown away."""
        await self._stream.send(data)

    def write_eof(self) -> None:
        """The port reads to the end of what was written, and may go on sending."""
        self._stream.control(eof=True)

    def abort(self, error: AgentKernelError) -> None:
        """Closes both directions at once; whoever reads or writes here gets `error`."""
        self._stream.fail(error)

    def release(self) -> None:
        """Lets go of it: what is still open is closed inside."""
        self._stream.release()


async def open_tcp(
    channel: GuestChannel,
    port: int,
    *,
    window: int = protocol.DEFAULT_WINDOW,
    seconds: float = CONNECT_SECONDS,
) -> GuestConnection:
    """A connection to the sandbox's own `port`. Raises GuestPortError, GuestTimeoutError, and what
    a lost channel raises."""
    try:
        async with asyncio.timeout(seconds):
            for host in _LOOPBACK:
                if connection := await _connect(channel, host, port, window):
                    return connection
    except TimeoutError:
        raise GuestTimeoutError(
            f"port {port} in the sandbox took no connection within {seconds:g} s",
            hint="a program listens there, but accepts nothing",
            port=port,
        ) from None
    raise GuestPortError(
        f"nothing listens on port {port} in the sandbox",
        hint="start the server in it, on 127.0.0.1 or on all addresses",
        port=port,
    )


async def _connect(
    channel: GuestChannel, host: str, port: int, window: int
) -> GuestConnection | None:
    """None: nobody is there at this address."""
    stream = channel.open("tcp", port=port, host=host, window=window)
    try:
        message = await stream.next()
    except SandboxUnavailableError as exc:
        stream.release()
        if channel.closed.done():
            raise
        code = exc.details.get("agent_code")
        if code in _ABSENT:
            return None
        raise _failure(port, str(code)) from None
    except BaseException:
        stream.release()
        raise
    if not isinstance(message, Control) or message.body.get("ev") != "connected":
        stream.release()
        raise GuestProtocolError("agentd did not say that it connected")
    return GuestConnection(stream)


def _failure(port: int, code: str) -> AgentKernelError:
    if code in ("EMFILE", "ENFILE", "ENOBUFS", "ENOMEM"):
        return ResourceExhaustedError(f"the sandbox has no room for another connection: {code}")
    return GuestPortError(f"port {port} in the sandbox can't be reached: {code}", port=port)
