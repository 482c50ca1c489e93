"""One file operation on the channel, and what its failures mean."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from agentkernel import faults
from agentkernel.errors import (
    AgentKernelError,
    GuestDiskFullError,
    GuestFileError,
    GuestFileExistsError,
    GuestFileNotFoundError,
    GuestFilePermissionError,
    GuestFileSpecialError,
    GuestFileTooLargeError,
    GuestIsADirectoryError,
    GuestNotADirectoryError,
    GuestProtocolError,
    GuestTimeoutError,
    InvalidInputError,
    SandboxUnavailableError,
)
from agentkernel.guest.channel import End, GuestChannel, Message, Output, Stream
from agentkernel.guest.protocol import Channel

# Nothing that waits for a disk takes longer; what waits for its caller has no limit.
ANSWER_SECONDS: Final = 60.0
_WINDOW: Final = 1 << 20

FilePath = str | os.PathLike[str]
T = TypeVar("T")

_ERRORS: Final[dict[str, type[GuestFileError]]] = {
    "ENOENT": GuestFileNotFoundError,
    "EEXIST": GuestFileExistsError,
    "EACCES": GuestFilePermissionError,
    "EPERM": GuestFilePermissionError,
    "EISDIR": GuestIsADirectoryError,
    "ENOTDIR": GuestNotADirectoryError,
    "ENOSPC": GuestDiskFullError,
    "EDQUOT": GuestDiskFullError,
}


class FileCall:
    """A stream to one worker, let go of at the end of the block: then the worker ends too."""

    def __init__(
        self, channel: GuestChannel, op: str, path: FilePath, arguments: dict[str, Any]
    ) -> None:
        self._channel = channel
        self._op = op
        self._path = path
        self._arguments = arguments
        self.stream: Stream
        self.result: dict[str, Any] = {}

    async def __aenter__(self) -> FileCall:
        faults.point("file.before")
        self.stream = self._channel.open(self._op, window=_WINDOW, **self._arguments)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.stream.release()
        if isinstance(error, AgentKernelError):
            with file_errors(self._path):
                raise error

    async def send(self, data: bytes) -> None:
        view = memoryview(data)
        for start in range(0, len(view), _WINDOW):
            await self._within(
                ANSWER_SECONDS, self.stream.send(bytes(view[start : start + _WINDOW]))
            )
            faults.point("file.midway")

    async def output(self, seconds: float | None = ANSWER_SECONDS) -> AsyncIterator[bytes]:
        """Channel 1 up to the END, which is `result` then."""
        while True:
            message = await self._next(seconds)
            if isinstance(message, End):
                self.result = message.body
                return
            if isinstance(message, Output):
                if message.channel is not Channel.STDOUT:
                    raise GuestProtocolError("a file worker has no stderr")
                yield message.data
                self.stream.consumed(message.channel, len(message.data))

    async def finish(self) -> dict[str, Any]:
        """Says that all content was sent and waits for the END."""
        self.stream.control(eof=True)
        faults.point("file.sent")
        while not isinstance(message := await self._next(ANSWER_SECONDS), End):
            if isinstance(message, Output):
                raise GuestProtocolError("agentd sent content where none is due")
        return message.body

    async def _next(self, seconds: float | None) -> Message:
        return await self._within(seconds, self.stream.next())

    async def _within(self, seconds: float | None, step: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(seconds):
                return await step
        except TimeoutError as exc:
            if isinstance(exc, AgentKernelError):
                raise
            raise GuestTimeoutError(f"agentd did not go on with {self._op}") from None


@contextmanager
def file_errors(path: FilePath) -> Iterator[None]:
    """Turns what agentd answers into the errors of files; everything else passes."""
    try:
        yield
    except AgentKernelError as exc:
        code = exc.details.get("agent_code")
        failed = exc.details.get("agent_path", os.fspath(path))
        if code == "no_such_user":
            raise InvalidInputError("the sandbox has no such user") from None
        if code == "special":
            raise GuestFileSpecialError(
                f"{failed}: not a regular file or directory",
                hint="read it with a command inside the sandbox",
                errno_name="EINVAL",
                path=failed,
            ) from None
        if code == "limit":
            raise GuestFileTooLargeError(
                f"{failed}: more than was allowed", errno_name="EFBIG", path=failed
            ) from None
        number = getattr(errno, code, None) if isinstance(code, str) else None
        if type(exc) is not SandboxUnavailableError or not isinstance(number, int):
            raise
        kind = _ERRORS.get(str(code), GuestFileError)
        # Without a path it was not the file that failed, and agentd says what was.
        told = "agent_path" not in exc.details
        why = exc.message.removeprefix("agentd: ") if told else os.strerror(number)
        raise kind(f"{failed}: {why}", errno_name=str(code), path=failed) from None
