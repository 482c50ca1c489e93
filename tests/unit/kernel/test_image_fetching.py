"""One download for all who want the same, and its progress for each of them."""

from __future__ import annotations

import asyncio

import pytest

from agentkernel.errors import RegistryError
from agentkernel.images.oci.progress import PullProgress, Report, State
from agentkernel.kernel.image_fetching import Fetchings, Sentences


def word(state: State, done: int = 0, layer: str = "sha256:a") -> PullProgress:
    return PullProgress(layer, state, done, 4 << 20)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Download:
    """A piece of work that goes on when it is told to."""

    def __init__(self) -> None:
        self.begun = 0
        self.go_on = asyncio.Event()
        self.cancelled = False
        self.error: Exception | None = None

    async def __call__(self, report: Report) -> str:
        self.begun += 1
        report(word("fetching", 1))
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        if self.error:
            raise self.error
        report(word("ready", 2))
        return "sha256:done"


async def test_who_comes_later_shares_and_hears_what_was_before() -> None:
    fetchings, work = Fetchings(), Download()
    first: list[str] = []
    second: list[str] = []
    one = asyncio.create_task(fetchings.fetch("k", work, lambda event: first.append(event.state)))
    await settle()
    two = asyncio.create_task(fetchings.fetch("k", work, lambda event: second.append(event.state)))
    other = asyncio.create_task(fetchings.fetch("other", work, None))
    await settle()
    work.go_on.set()
    assert list(await asyncio.gather(one, two, other)) == ["sha256:done"] * 3
    assert work.begun == 2 and second == first == ["fetching", "ready"]
    await fetchings.fetch("k", work, None)
    assert work.begun == 3  # what is over is begun anew


async def test_it_ends_with_the_last_who_waits_for_it() -> None:
    fetchings, work = Fetchings(), Download()
    one, two = (asyncio.create_task(fetchings.fetch("k", work, None)) for _ in range(2))
    await settle()
    one.cancel()
    await settle()
    assert not work.cancelled and not two.done()
    two.cancel()
    await asyncio.wait((one, two))
    assert work.cancelled and work.begun == 1
    again = asyncio.create_task(fetchings.fetch("k", work, None))
    await settle()
    assert work.begun == 2
    await fetchings.close()
    await asyncio.wait((again,))
    assert again.cancelled()


async def test_a_failure_is_everybodys() -> None:
    fetchings, work = Fetchings(), Download()
    work.error = RegistryError("no")
    tasks = [asyncio.create_task(fetchings.fetch("k", work, None)) for _ in range(2)]
    await settle()
    work.go_on.set()
    for task in tasks:
        with pytest.raises(RegistryError):
            await task


def test_sentences_come_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    clock = 100.0
    monkeypatch.setattr("agentkernel.kernel.image_fetching.time.monotonic", lambda: clock)
    sentences = Sentences("debian:12", said.append)
    sentences(word("waiting"))
    sentences(word("fetching", 1 << 20))
    clock += 3
    sentences(word("fetching", 2 << 20))
    clock += 3
    sentences(word("unpacking", 0))
    clock += 3
    sentences(word("unpacking", 1))
    assert said == [
        "fetching debian:12: 1.0 of 4.0 MiB",
        "fetching debian:12: 2.0 of 4.0 MiB",
        "unpacking debian:12",
    ]
