"""A sandbox of one command: made for it, and gone with it, whatever becomes of either."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

import msgspec
from starlette.requests import HTTPConnection

from agentkernel.backends.base import Progress
from agentkernel.errors import NotFoundError
from agentkernel.ids import new_id
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.server.app import Service
from agentkernel.server.callers import caller_of, secrets_owner


class OneCommand:
    """In the block there may be a sandbox `id`; at its end there is none, however it ends."""

    def __init__(
        self,
        service: Service,
        connection: HTTPConnection,
        spec: SandboxSpec,
        ttl_seconds: float | None,
    ) -> None:
        self.id = new_id()
        self._service = service
        self._owner = caller_of(connection).owner
        self._secrets_of = secrets_owner(connection)
        self._spec = msgspec.structs.replace(spec, ephemeral=True)
        self._ttl_seconds = ttl_seconds

    @property
    def publishes(self) -> bool:
        return bool(self._spec.ports)

    @contextlib.asynccontextmanager
    async def removed_then(self) -> AsyncIterator[str]:
        try:
            yield self.id
        finally:
            await self._service.finish(_remove(self._service.kernel, self.id))

    async def make(self, progress: Progress | None = None) -> None:
        """Preconditions: within `removed_then`."""
        await self._service.kernel.create(
            self._spec,
            id=self.id,
            owner=self._owner,
            secrets_of=self._secrets_of,
            owned=True,
            ttl_seconds=self._ttl_seconds,
            progress=progress,
        )

    async def words(self, argv: Sequence[str] | None, shell: str | None) -> list[str]:
        """The command, with what its image says of it. Preconditions: it is made."""
        return await self._service.kernel.first_command(self.id, argv, shell)

    async def make_telling(self) -> AsyncGenerator[str, None]:
        """Makes it, and gives the sentences about that while it goes on."""
        loop = asyncio.get_running_loop()
        texts: asyncio.Queue[str | None] = asyncio.Queue()

        def progress(text: str) -> None:
            """Called in the thread that makes the image."""
            loop.call_soon_threadsafe(texts.put_nowait, text)

        work = asyncio.ensure_future(self.make(progress))
        work.add_done_callback(lambda _: texts.put_nowait(None))
        try:
            while (text := await texts.get()) is not None:
                yield text
            await work
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait((work,))


async def _remove(kernel: Kernel, id: str) -> None:
    with contextlib.suppress(NotFoundError):
        await kernel.remove(id, reason="the command ended")
