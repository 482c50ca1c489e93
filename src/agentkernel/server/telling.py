"""Work that tells how far it is, as events: each subject's newest word, a few times a second, so
that neither a fast teller nor a slow reader is in the other's way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")
W = TypeVar("W")
_EVERY_SECONDS: Final = 0.1
# How long what goes wrong at once may be an answer with a status; then it is an event.
_FIRST_SECONDS: Final = 5.0
BEGUN: Final = b": begun\n\n"


class Telling(Generic[W, T]):
    """`work` is given what it tells its words to, from any thread; it begins at once. `subject`:
    of words about the same only the newest counts."""

    def __init__(
        self,
        work: Callable[[Callable[[W], None]], Coroutine[Any, Any, T]],
        subject: Callable[[W], object],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._subject = subject
        self._untold: dict[object, W] = {}
        self._heard = asyncio.Event()
        self.task: asyncio.Future[T] = asyncio.ensure_future(work(self._hear))
        self.task.add_done_callback(_seen)

    def _hear(self, word: W) -> None:
        self._loop.call_soon_threadsafe(self._note, word)

    def _note(self, word: W) -> None:
        self._untold[self._subject(word)] = word
        self._heard.set()

    async def begun(self) -> None:
        """Returns when there is a first word, or nothing was heard for a while. Raises what the
        work has raised by then."""
        heard = asyncio.ensure_future(self._heard.wait())
        try:
            await asyncio.wait(
                (self.task, heard), timeout=_FIRST_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if self.task.done():
                self.task.result()
        except BaseException:
            await self.cancel()
            raise
        finally:
            heard.cancel()

    async def words(self) -> AsyncGenerator[W, None]:
        """Until the work is done; then `task` has its result, or what it raised. Closing it before
        cancels the work."""
        try:
            done = False
            while not done:
                await asyncio.wait((self.task,), timeout=_EVERY_SECONDS)
                done = self.task.done()
                untold, self._untold = self._untold, {}
                for word in untold.values():
                    yield word
        finally:
            await self.cancel()

    async def cancel(self) -> None:
        """Idempotent; without effect when it is done."""
        if not self.task.done():
            self.task.cancel()
            await asyncio.wait((self.task,))


def _seen(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()  # whoever asked may have left
