"""Work that tells how far it is: its newest words, its end, and what goes wrong at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

import pytest

from agentkernel.errors import NotFoundError
from agentkernel.server import telling as module
from agentkernel.server.telling import Telling

Tell = Callable[[tuple[str, int]], None]


def subject(word: tuple[str, int]) -> str:
    return word[0]


async def test_of_each_subject_the_newest_word_is_told() -> None:
    async def work(tell: Tell) -> str:
        for number in range(1000):
            tell(("a", number))
            tell(("b", -number))
        await asyncio.to_thread(tell, ("c", 1))
        return "done"

    telling = Telling(work, subject)
    await telling.begun()
    words = [word async for word in telling.words()]
    assert words[-3:] == [("a", 999), ("b", -999), ("c", 1)] and len(words) < 10
    assert telling.task.result() == "done"


async def test_what_goes_wrong_at_once_is_raised_before_anything_is_told() -> None:
    async def work(tell: Tell) -> str:
        raise NotFoundError("no")

    telling = Telling(work, subject)
    with pytest.raises(NotFoundError):
        await telling.begun()


async def test_silence_is_a_beginning_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_SECONDS", 0.01)
    never = asyncio.Event()
    ended = asyncio.Event()

    async def work(tell: Tell) -> str:
        try:
            await never.wait()
        finally:
            ended.set()
        return "done"

    telling = Telling(work, subject)
    await telling.begun()
    assert not telling.task.done()
    async with aclosing(telling.words()) as words:
        step = asyncio.ensure_future(anext(words))
        await asyncio.sleep(0)
        step.cancel()
        await asyncio.wait((step,))
    assert ended.is_set() and telling.task.cancelled()
