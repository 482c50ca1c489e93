"""Tokens in a store of their own, with a clock that can be set."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from agentkernel.audit.trail import Trail
from agentkernel.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    ResourceExhaustedError,
    UnauthenticatedError,
)
from agentkernel.kernel import tokens as module
from agentkernel.kernel.auditing import open_trail
from agentkernel.kernel.store import Store
from agentkernel.kernel.tokens import Tokens

DAY = 86400.0


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


class Held:
    """What tests need of a kernel."""

    def __init__(self, store: Store, trail: Trail) -> None:
        self.store, self.trail, self.clock = store, trail, Clock()
        self.tokens = Tokens(store, trail, self.clock)

    async def again(self) -> Tokens:
        """As after a restart."""
        await self.tokens.close()
        other = Tokens(self.store, self.trail, self.clock)
        await other.load()
        return other


@pytest.fixture
async def held(tmp_path: Path) -> AsyncIterator[Held]:
    trail = open_trail(tmp_path, None)
    async with await Store.open(tmp_path / "state.db") as store:
        held = Held(store, trail)
        yield held
        await held.tokens.close()
    trail.close()


async def test_every_token_is_another(held: Held) -> None:
    made = [await held.tokens.create(f"t{n}") for n in range(20)]
    assert len({entry.text for entry in made}) == len({entry.record.sha256 for entry in made}) == 20
    for entry in made:
        assert held.tokens.check(entry.text).id == entry.record.id
    mixed = made[0].text[:24] + made[1].text[24:]
    with pytest.raises(UnauthenticatedError):
        held.tokens.check(mixed)


@pytest.mark.parametrize(
    "change",
    [str.upper, lambda text: text + "\n", lambda text: " " + text, lambda text: text[:-1],
     lambda text: text + "0", lambda text: text.replace("ak_", "ak-"), lambda text: "",
     lambda text: text.replace("_", "\0"), lambda text: "ä" * 88],
)  # fmt: skip
async def test_what_is_almost_one_is_none(held: Held, change: Any) -> None:
    made = await held.tokens.create("a")
    with pytest.raises(UnauthenticatedError) as refused:
        held.tokens.check(change(made.text))
    assert made.text[24:] not in str(refused.value)


async def test_the_end_of_one(held: Held) -> None:
    made = await held.tokens.create("a", expires_seconds=10)
    held.clock.now += 9.9
    assert held.tokens.check(made.text)
    held.clock.now += 0.1
    with pytest.raises(UnauthenticatedError, match="expired"):
        held.tokens.check(made.text)
    assert (await held.tokens.create("a")).record.name == "a", "its name is free again"
    with pytest.raises(NotFoundError):
        await held.tokens.revoke("nobody")


async def test_a_revocation_outlives_whatever_happens_beside_it(held: Held) -> None:
    """Others are made while it is being written down."""
    made = await held.tokens.create("victim")
    work = [held.tokens.create(f"n{n}") for n in range(30)]
    await asyncio.gather(*work[:15], held.tokens.revoke("victim"), *work[15:])
    for tokens in (held.tokens, await held.again()):
        with pytest.raises(UnauthenticatedError, match="revoked"):
            tokens.check(made.text)
        assert len(tokens.list()) == 31


async def test_who_waits_hears_of_the_end(held: Held) -> None:
    made = await held.tokens.create("a")
    waiting = [asyncio.ensure_future(held.tokens.over(made.record.id)) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    await held.tokens.revoke("a")
    async with asyncio.timeout(20):
        assert ["revoked" in str(error) for error in await asyncio.gather(*waiting)] == [True] * 3
        assert "revoked" in str(await held.tokens.over(made.record.id))
        assert "gone" in str(await held.tokens.over("nobody"))


async def test_the_last_use_is_coarse(held: Held) -> None:
    made = await held.tokens.create("a")
    first = held.clock.now
    for _ in range(100):
        held.tokens.check(made.text)
        held.clock.now += 1
    assert (await held.again()).list()[0].last_used_at == first
    held.clock.now += 3600
    held.tokens.check(made.text)
    assert (await held.again()).list()[0].last_used_at == held.clock.now


async def test_those_that_ended_are_forgotten_after_a_month(held: Held) -> None:
    await held.tokens.create("revoked")
    await held.tokens.revoke("revoked")
    await held.tokens.create("expired", expires_seconds=1)
    await held.tokens.create("kept")
    held.clock.now += 29 * DAY
    await held.tokens.create("later")
    assert len(held.tokens.list()) == 4
    held.clock.now += 2 * DAY
    await held.tokens.create("latest")
    for tokens in (held.tokens, await held.again()):
        assert {record.name for record in tokens.list()} == {"kept", "later", "latest"}


async def test_there_may_be_so_many(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TOKENS", 3)
    for name in "abc":
        await held.tokens.create(name)
    with pytest.raises(ResourceExhaustedError):
        await held.tokens.create("d")
    await held.tokens.revoke("a")
    await held.tokens.create("d")


async def test_what_makes_no_sense(held: Held) -> None:
    for wrong in ({"name": "A"}, {"name": "a", "scopes": ["all"]}, {"name": "a", "scopes": []},
                  {"name": "a", "acts_as": "x y"}, {"name": "a", "expires_seconds": -1.0},
                  {"name": "a", "expires_seconds": float("nan")}):  # fmt: skip
        with pytest.raises(InvalidInputError):
            await held.tokens.create(**cast(dict[str, Any], wrong))
    assert held.tokens.list() == []
    await held.tokens.create("a")
    with pytest.raises(ConflictError):
        await held.tokens.create("a")
    both = (held.tokens.create("b"), held.tokens.create("b"))
    made = await asyncio.gather(*both, return_exceptions=True)
    assert [isinstance(entry, ConflictError) for entry in made] == [False, True]
    assert [record.name for record in held.tokens.list()].count("b") == 1
