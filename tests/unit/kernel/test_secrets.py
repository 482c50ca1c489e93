"""Secrets of a kernel: each owner's own, changed as a whole, shown without their values."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentkernel.errors import InvalidInputError, NotFoundError, StateError
from agentkernel.kernel.auditing import open_trail
from agentkernel.kernel.secrets import Secrets
from agentkernel.kernel.store import SandboxRecord
from agentkernel.network.policy.model import NetworkSetting, SecretBinding
from agentkernel.network.secrets.store import Hidden, SecretStore

VALUE = b"ghp_k3Jx9QmZt7Vb2NcR5Ld8WfY1"
OTHER = b"ghp_Another0ne0fTheSameLengt"


class Rows:
    """What secrets ask of the store of sandboxes."""

    def __init__(self) -> None:
        self.records: list[SandboxRecord] = []

    async def all_sandboxes(self) -> list[SandboxRecord]:
        return self.records

    def bind(self, name: str, owner: str, *bindings: SecretBinding) -> None:
        setting = msgspec.to_builtins(NetworkSetting(secrets=bindings))
        record: Any = type(
            "Record", (), {"id": f"id-of-{name}", "name": name, "owner": owner, "network": setting}
        )()
        self.records.append(record)


class Held:
    def __init__(self, secrets: Secrets, rows: Rows, state: Path) -> None:
        self.secrets, self.rows, self.state = secrets, rows, state
        self.changes = 0
        secrets.on_change = self._count

    async def _count(self) -> None:
        self.changes += 1


@pytest.fixture
async def held(tmp_path: Path) -> AsyncIterator[Held]:
    trail = open_trail(tmp_path, None)
    rows: Any = Rows()
    secrets = Secrets(tmp_path, rows, trail)
    yield Held(secrets, rows, tmp_path)
    await secrets.close()
    trail.close()


async def test_set_rotate_remove(held: Held) -> None:
    secrets = held.secrets
    with pytest.raises(NotFoundError, match="no secret TOKEN") as caught:
        await secrets.rotate("TOKEN", Hidden(VALUE), owner="local")
    assert "secret set TOKEN" in str(caught.value.hint)
    made = await secrets.set("TOKEN", Hidden(VALUE), owner="local")
    assert (made.name, made.rotated_at, made.sandboxes) == ("TOKEN", None, [])
    assert await secrets.values(["local/TOKEN", "local/NONE"]) == {"local/TOKEN": VALUE}
    await secrets.rotate("TOKEN", Hidden(OTHER), owner="local")
    assert await secrets.values(["local/TOKEN"]) == {"local/TOKEN": OTHER}
    await secrets.remove("TOKEN", owner="local")
    assert await secrets.values(["local/TOKEN"]) == {} and held.changes == 3
    with pytest.raises(NotFoundError):
        await secrets.remove("TOKEN", owner="local")
    assert held.changes == 3


async def test_an_owners_name_that_another_begins_with_is_another(held: Held) -> None:
    await held.secrets.set("TOKEN", Hidden(VALUE), owner="team")
    await held.secrets.set("TOKEN", Hidden(OTHER), owner="team/b")
    assert await held.secrets.values_of(["team"]) == {"team/TOKEN": VALUE}
    assert await held.secrets.values_of(["team/b"]) == {"team/b/TOKEN": OTHER}


async def test_each_owner_has_its_own(held: Held) -> None:
    secrets = held.secrets
    await secrets.set("TOKEN", Hidden(VALUE), owner="local")
    await secrets.set("TOKEN", Hidden(OTHER), owner="token:ci")
    await secrets.set("A", Hidden(OTHER), owner="local")
    assert [each.name for each in await secrets.list(owner="local")] == ["A", "TOKEN"]
    assert [each.name for each in await secrets.list(owner="token:ci")] == ["TOKEN"]
    assert await secrets.list(owner="token:c") == []
    assert await secrets.values_of(["local"]) == {"local/TOKEN": VALUE, "local/A": OTHER}
    with pytest.raises(NotFoundError):
        await secrets.remove("A", owner="token:ci")
    with pytest.raises(NotFoundError):
        await secrets.resolve(["A@a.test"], owner="token:ci")


async def test_bindings_and_who_uses_them(held: Held) -> None:
    secrets = held.secrets
    await secrets.set("TOKEN", Hidden(VALUE), owner="local")
    assert await secrets.resolve([], owner="local") == ()
    (binding,) = await secrets.resolve(["MINE=TOKEN@a.test"], owner="local")
    assert (binding.reference, binding.env, binding.hosts) == ("local/TOKEN", "MINE", ("a.test",))
    assert len(binding.placeholder) == len(VALUE) and binding.placeholder.encode() != VALUE
    held.rows.bind("box", "local", binding)
    held.rows.bind("other", "token:ci", binding)
    (shown,) = await secrets.list(owner="local")
    assert shown.sandboxes == ["box", "id-of-other"], "somebody else's by its id"
    assert (await secrets.remove("TOKEN", owner="local")).sandboxes == ["box", "id-of-other"]
    with pytest.raises(NotFoundError, match="no secret TOKEN"):
        await secrets.resolve(["TOKEN@a.test"], owner="local")
    with pytest.raises(InvalidInputError, match="names no host"):
        await secrets.resolve(["TOKEN"], owner="local")


async def test_a_locked_keyring_is_said(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    await held.secrets.set("TOKEN", Hidden(VALUE), owner="local")
    monkeypatch.setattr(SecretStore, "values", lambda _: ({}, ["local/TOKEN"]))
    again = Secrets(held.state, held.rows, held.secrets.trail)  # type: ignore[arg-type]
    with pytest.raises(StateError, match="keyring") as caught:
        await again.resolve(["TOKEN@a.test"], owner="local")
    assert "unlock" in str(caught.value.hint)
    monkeypatch.undo()
    assert await again.resolve(["TOKEN@a.test"], owner="local"), "once it is unlocked"


@pytest.mark.parametrize("name", ["", "a b", "x/y", "é", "x" * 65, "a\n"])
async def test_names(held: Held, name: str) -> None:
    for call in (
        held.secrets.set(name, Hidden(VALUE), owner="local"),
        held.secrets.remove(name, owner="local"),
    ):
        with pytest.raises(InvalidInputError, match="not a secret's name"):
            await call


async def test_who_leaves_does_not_cut_a_change_in_two(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    put = SecretStore.put

    def slow(*arguments: Any) -> Any:
        begun.set()
        assert go_on.wait(30)
        return put(*arguments)

    monkeypatch.setattr(SecretStore, "put", slow)
    asking = asyncio.ensure_future(held.secrets.set("TOKEN", Hidden(VALUE), owner="local"))
    assert await asyncio.to_thread(begun.wait, 30)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    go_on.set()
    await held.secrets.close()
    assert held.changes == 1
    assert await held.secrets.values(["local/TOKEN"]) == {"local/TOKEN": VALUE}


async def test_the_audit_log_has_the_name_alone(held: Held) -> None:
    await held.secrets.set("TOKEN", Hidden(VALUE), owner="local")
    await held.secrets.rotate("TOKEN", Hidden(OTHER), owner="local")
    await held.secrets.remove("TOKEN", owner="local")
    text = "".join(path.read_text() for path in (held.state / "audit").glob("*.jsonl"))
    for action in ("secret.set", "secret.rotate", "secret.remove"):
        assert f'"{action}"' in text
    assert '"name":"TOKEN"' in text.replace(" ", "")
    assert VALUE.decode() not in text and OTHER.decode() not in text
