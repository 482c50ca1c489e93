"""Images that sandboxes are being made from and whose rows are not written yet: they stay.

class Kernel:
    @holding_images
    async def create(self, …):
        pinned = await self.images.ready(reference)     # held until create is over
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_block: ContextVar[list[Callable[[], None]] | None] = ContextVar("agentkernel_holds", default=None)


class ImageHolds:
    """Digests of manifests, and how many hold each."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def hold(self, digest: str) -> None:
        """Until the call around it that holds images is over; without one, until `release`."""
        self._counts[digest] += 1
        if (releases := _block.get()) is not None:
            releases.append(lambda: self.release(digest))

    def release(self, digest: str) -> None:
        self._counts[digest] -= 1
        if self._counts[digest] <= 0:
            del self._counts[digest]

    def digests(self) -> set[str]:
        return set(self._counts)


def holding_images(
    method: Callable[P, Coroutine[Any, Any, T]],
) -> Callable[P, Coroutine[Any, Any, T]]:
    """What the call holds is let go of when it is over."""

    @functools.wraps(method)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        releases: list[Callable[[], None]] = []
        token = _block.set(releases)
        try:
            return await method(*args, **kwargs)
        finally:
            _block.reset(token)
            for release in releases:
                release()

    return call
