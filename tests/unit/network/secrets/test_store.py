"""Secrets on the host: encrypted, replaced as a whole, useless without their key."""

from __future__ import annotations

import pickle
import stat
from pathlib import Path

import pytest

from agentkernel.errors import NotFoundError, StateCorruptError, StateError
from agentkernel.network.secrets.keyrings import Keyring
from agentkernel.network.secrets.sealing import FILE_NAME, SealedFile, key_file
from agentkernel.network.secrets.store import Hidden, SecretStore

VALUE = b"ghp_k3Jx9QmZt7Vb2NcR5Ld8WfY1"
OTHER = b"ghp_Another0ne0fTheSameLengt"


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def state(tmp_path: Path) -> Path:
    path = tmp_path / "state"
    path.mkdir()
    return path


def no_keyring() -> None:
    return None


def opened(state: Path) -> SecretStore:
    return SecretStore(state, keyring=no_keyring)


def revealed(store: SecretStore) -> dict[str, bytes]:
    return {reference: value.reveal() for reference, value in store.values()[0].items()}


def test_set_rotate_remove_over_restarts(state: Path) -> None:
    made = opened(state).put("local", "TOKEN", Hidden(VALUE))
    assert made.rotated_at is None and made.kept == "file"
    assert revealed(opened(state)) == {"local/TOKEN": VALUE}
    rotated = opened(state).put("local", "TOKEN", Hidden(OTHER))
    assert rotated.created_at == made.created_at and rotated.rotated_at is not None
    store = opened(state)
    store.put("token:ci", "TOKEN", Hidden(VALUE))
    assert revealed(store) == {"local/TOKEN": OTHER, "token:ci/TOKEN": VALUE}
    store.remove("local", "TOKEN")
    with pytest.raises(NotFoundError):
        store.remove("local", "TOKEN")
    assert revealed(opened(state)) == {"token:ci/TOKEN": VALUE}


def test_the_state_alone_is_of_no_use(state: Path) -> None:
    opened(state).put("local", "TOKEN", Hidden(VALUE))
    sealed = (state / FILE_NAME).read_bytes()
    assert VALUE not in sealed and b"TOKEN" not in sealed
    assert stat.S_IMODE((state / FILE_NAME).stat().st_mode) == 0o600
    assert stat.S_IMODE(key_file().stat().st_mode) == 0o600
    assert [path.name for path in state.iterdir()] == [FILE_NAME], "nothing is left over"
    assert [path.name for path in key_file().parent.iterdir()] == [key_file().name]
    key_file().rename(key_file().with_name("elsewhere"))
    with pytest.raises(StateCorruptError, match="key is gone") as caught:
        opened(state).records()
    assert "backup" in str(caught.value.hint)
    with pytest.raises(StateCorruptError):
        opened(state).put("local", "OTHER", Hidden(VALUE))
    assert (state / FILE_NAME).read_bytes() == sealed, "what can't be read is not written over"
    key_file().with_name("elsewhere").rename(key_file())
    assert revealed(opened(state)) == {"local/TOKEN": VALUE}


def test_what_is_damaged_is_said_and_left(state: Path) -> None:
    opened(state).put("local", "TOKEN", Hidden(VALUE))
    sealed = (state / FILE_NAME).read_bytes()
    for damaged in (b"", sealed[:-1], sealed[:-1] + bytes([sealed[-1] ^ 1]), b"x" + sealed[1:]):
        (state / FILE_NAME).write_bytes(damaged)
        with pytest.raises(StateCorruptError) as caught:
            opened(state).records()
        assert "set the secrets again" in str(caught.value.hint)
        assert (state / FILE_NAME).read_bytes() == damaged
    (state / FILE_NAME).write_bytes(sealed)
    key_file().write_text("not a key")
    with pytest.raises(StateCorruptError, match="is not a key"):
        opened(state).records()


def test_contents_of_another_version(state: Path) -> None:
    SealedFile(state / FILE_NAME).write(b"\x93\x01\x02\x03")
    with pytest.raises(StateCorruptError, match="does not know"):
        opened(state).records()


def test_a_disk_that_takes_nothing(state: Path) -> None:
    store = opened(state)
    store.put("local", "TOKEN", Hidden(VALUE))
    gone = state.with_name("gone")
    state.rename(gone)
    with pytest.raises(StateError):
        store.put("local", "TOKEN", Hidden(OTHER))
    gone.rename(state)
    assert revealed(store) == revealed(opened(state)) == {"local/TOKEN": VALUE}


def test_a_value_is_not_shown(state: Path) -> None:
    hidden = Hidden(VALUE)
    store = opened(state)
    record = store.put("local", "TOKEN", hidden)
    for shown in (repr(hidden), str(hidden), f"{hidden}", repr(record), repr(store._entries)):
        assert VALUE.decode() not in shown
    with pytest.raises(TypeError):
        pickle.dumps(hidden)


class Desk:
    """A keyring's backend in memory, which can be locked."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}
        self.locked = False

    def _look(self) -> None:
        if self.locked:
            raise RuntimeError("locked")

    def get_password(self, service: str, account: str) -> str | None:
        self._look()
        return self.kept.get((service, account))

    def set_password(self, service: str, account: str, value: str) -> None:
        self._look()
        self.kept[service, account] = value

    def delete_password(self, service: str, account: str) -> None:
        self._look()
        del self.kept[service, account]


def test_values_are_in_the_keyring_where_there_is_one(state: Path) -> None:
    desk = Desk()
    store = SecretStore(state, keyring=lambda: Keyring(desk))
    assert store.put("local", "TOKEN", Hidden(VALUE)).kept == "keyring"
    assert list(desk.kept.values()) == [VALUE.decode()]
    data = SealedFile(state / FILE_NAME).read()
    assert data is not None and VALUE not in data and b"TOKEN" in data
    again = SecretStore(state, keyring=lambda: Keyring(desk))
    assert revealed(again) == {"local/TOKEN": VALUE}
    # Without it the name is there, and the value is said to be missing.
    desk.locked = True
    assert again.values() == ({}, ["local/TOKEN"])
    assert opened(state).values() == ({}, ["local/TOKEN"])
    assert again.put("local", "TOKEN2", Hidden(OTHER)).kept == "file"
    desk.locked = False
    again.remove("local", "TOKEN")
    assert desk.kept == {} and revealed(again) == {"local/TOKEN2": OTHER}
