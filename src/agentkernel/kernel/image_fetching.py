"""One download for all who ask for an image at once, and how far it is, for each of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

from agentkernel.images.oci.progress import Overall, PullProgress, Report

# How often somebody who reads sentences is told.
_SENTENCE_SECONDS: Final = 2.0

Work = Callable[[Report], Coroutine[Any, Any, str]]


class Fetching:
    """A download that is under way. It is cancelled when the last one who waits for it leaves; what
    has come of it stays for the next try."""

    def __init__(self, work: Work) -> None:
        self._loop = asyncio.get_running_loop()
        self._overall = Overall()
        self._listeners: list[Report] = []
        self._waiting = 0
        self.task = asyncio.ensure_future(work(self.report))
        self.task.add_done_callback(_seen)

    def report(self, event: PullProgress) -> None:
        """From any thread."""
        self._loop.call_soon_threadsafe(self._tell, event)

    def _tell(self, event: PullProgress) -> None:
        self._overall.add(event)
        for listener in list(self._listeners):
            listener(event)

    async def join(self, progress: Report | None) -> str:
        """What the download gives. `progress` is told of everything, also what was before."""
        if progress is not None:
            for event in self._overall.layers:
                progress(event)
            self._listeners.append(progress)
        self._waiting += 1
        try:
            return await asyncio.shield(self.task)
        finally:
            self._waiting -= 1
            if progress is not None:
                self._listeners.remove(progress)
            if not self._waiting and not self.task.done():
                self.task.cancel()
                await asyncio.wait((self.task,))


def _seen(task: asyncio.Future[str]) -> None:
    if not task.cancelled():
        task.exception()  # whoever asked may have left


class Fetchings:
    """Those under way, by what is fetched."""

    def __init__(self) -> None:
        self._under_way: dict[object, Fetching] = {}

    async def fetch(self, key: object, work: Work, progress: Report | None) -> str:
        fetching = self._under_way.get(key)
        if fetching is None or fetching.task.done():
            fetching = self._under_way[key] = Fetching(work)
            fetching.task.add_done_callback(lambda _: self._over(key))
        return await fetching.join(progress)

    def _over(self, key: object) -> None:
        found = self._under_way.get(key)
        if found is not None and found.task.done():
            del self._under_way[key]

    async def close(self) -> None:
        tasks = [fetching.task for fetching in self._under_way.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


class Sentences:
    """Progress for those who are told in sentences, now and then."""

    def __init__(self, name: str, say: Callable[[str], None]) -> None:
        self._name = name
        self._say = say
        self._overall = Overall()
        self._due = 0.0
        self._said = ""

    def __call__(self, event: PullProgress) -> None:
        self._overall.add(event)
        now = time.monotonic()
        # Until the first comes how many there are is not known.
        if now < self._due or event.state in ("waiting", "present"):
            return
        text = self._text()
        if text != self._said:
            self._said, self._due = text, now + _SENTENCE_SECONDS
            self._say(text)

    def _text(self) -> str:
        overall = self._overall
        if any(event.state == "unpacking" for event in overall.layers):
            return f"unpacking {self._name}"
        if not overall.to_fetch:
            return f"fetching {self._name}"
        done, all = overall.fetched / (1 << 20), overall.to_fetch / (1 << 20)
        return f"fetching {self._name}: {done:.1f} of {all:.1f} MiB"
