"""Logins as docker and podman keep them, and the programs that keep them instead."""

from __future__ import annotations

import base64
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from agentkernel.errors import InvalidInputError
from agentkernel.images.oci.registry import helpers
from agentkernel.images.oci.registry.credentials import Credentials, Login, find_login
from agentkernel.images.oci.registry.helpers import HelperFailed, ask_helper

DOCKER = ("https://index.docker.io/v1/", "docker.io")


def pair(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def write(path: Path, body: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(body if isinstance(body, str) else json.dumps(body))


def find(home: Path, *names: str, repository: str = "a/b", **environment: str) -> Login:
    return find_login(names, repository, {"HOME": str(home), **environment})


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"auth": pair("alice:pass:word")}, Credentials("alice", "pass:word")),
        ({"auth": pair("alice:word\0\0")}, Credentials("alice", "word")),
        ({"username": "bob", "password": "word"}, Credentials("bob", "word")),
        ({"auth": pair("<token>:"), "identitytoken": "t"}, Credentials("<token>", identity="t")),
        ({"registrytoken": "t"}, Credentials(token="t")),
        ({"auth": None, "username": "bob", "password": "word"}, Credentials("bob", "word")),
        ({}, None),
        ({"auth": "not base64!"}, None),
        ({"auth": pair("nobody")}, None),
        (None, None),
    ],
)
def test_an_entry_of_dockers_file(
    tmp_path: Path, entry: dict[str, str] | None, expected: Credentials | None
) -> None:
    write(tmp_path / ".docker" / "config.json", {"auths": {"r.example": entry}, "other": 1})
    assert find(tmp_path, "r.example").credentials == expected


@pytest.mark.parametrize(
    ("key", "names", "found"),
    [
        ("https://index.docker.io/v1/", DOCKER, True),
        ("docker.io", DOCKER, True),
        ("https://r.example", ("r.example",), True),
        ("https://r.example/v2/", ("r.example",), True),
        ("R.Example", ("r.example",), True),
        ("r.example/a/b", ("r.example",), True),
        ("r.example/a", ("r.example",), True),
        ("r.example/a/b/c", ("r.example",), False),
        ("r.example/x", ("r.example",), False),
        ("r.example:5000", ("r.example",), False),
        ("r.example", ("r.example:5000",), False),
        ("r.example.evil", ("r.example",), False),
        ("evil.r.example", ("r.example",), False),
    ],
)
def test_whose_login_it_is(tmp_path: Path, key: str, names: tuple[str, ...], found: bool) -> None:
    write(tmp_path / ".docker" / "config.json", {"auths": {key: {"auth": pair("a:b")}}})
    assert (find(tmp_path, *names).credentials is not None) is found


def test_the_most_specific_login_counts(tmp_path: Path) -> None:
    auths = {"r.example": {"auth": pair("all:x")}, "r.example/a": {"auth": pair("team:x")}}
    write(tmp_path / ".config" / "containers" / "auth.json", {"auths": auths})
    for repository, user in (("a/b", "team"), ("other", "all")):
        found = find(tmp_path, "r.example", repository=repository).credentials
        assert found is not None
        assert found.username == user


def test_files_in_their_order(tmp_path: Path) -> None:
    def login(user: str) -> Any:
        return {"auths": {"r.example": {"auth": pair(f"{user}:x")}}}

    environment = {
        "REGISTRY_AUTH_FILE": str(tmp_path / "named.json"),
        "DOCKER_CONFIG": str(tmp_path / "docker"),
        "XDG_RUNTIME_DIR": str(tmp_path / "run"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }
    files = [
        (tmp_path / "named.json", "named"),
        (tmp_path / "docker" / "config.json", "docker"),
        (tmp_path / "run" / "containers" / "auth.json", "run"),
        (tmp_path / "config" / "containers" / "auth.json", "config"),
    ]
    for path, user in files:
        write(path, login(user))
    for path, user in files:
        found = find(tmp_path, "r.example", **environment).credentials
        assert found is not None
        assert found.username == user
        path.unlink()
    assert find(tmp_path, "r.example", **environment) == Login()


@pytest.mark.parametrize("content", ["{", "[]", '{"auths": 5}', "\udcff", "[" * 100_000])
def test_a_file_that_can_not_be_read_is_named_and_not_quoted(tmp_path: Path, content: str) -> None:
    path = tmp_path / ".docker" / "config.json"
    path.parent.mkdir()
    path.write_text(content + "secret-word", errors="surrogateescape")
    with pytest.raises(InvalidInputError, match=str(path)) as caught:
        find(tmp_path, "r.example")
    assert "secret-word" not in str(caught.value.to_dict())


def test_a_file_that_is_none_hangs_nobody(tmp_path: Path) -> None:
    (tmp_path / ".docker").mkdir()
    os.mkfifo(tmp_path / ".docker" / "config.json")
    with pytest.raises(InvalidInputError, match="it is no file"):
        find(tmp_path, "r.example")


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    found = Credentials("alice", "word-1", "word-2", "word-3")
    assert "word" not in repr(found)
    assert found.secrets == {"word-1", "word-2", "word-3", pair("alice:word-1")}


# -- programs ------------------------------------------------------------------------------------


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")
    return directory


def program(directory: Path, name: str, text: str) -> None:
    path = directory / f"docker-credential-{name}"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


ANSWER = 'echo "{\\"ServerURL\\":\\"x\\",\\"Username\\":\\"alice\\",\\"Secret\\":\\"word\\"}"'


def test_a_helper_is_told_on_its_input(tmp_path: Path, programs: Path) -> None:
    program(programs, "good", f'cat > "{tmp_path}/asked"; echo "$@" > "{tmp_path}/argv"; {ANSWER}')
    write(tmp_path / ".docker" / "config.json", {"credsStore": "good"})
    assert find(tmp_path, *DOCKER) == Login(Credentials("alice", "word"))
    assert (tmp_path / "asked").read_text() == "https://index.docker.io/v1/"
    assert (tmp_path / "argv").read_text() == "get\n"


def test_the_helper_of_one_registry_comes_before_the_one_for_all(
    tmp_path: Path, programs: Path
) -> None:
    program(programs, "all", 'echo \'{"Username":"all","Secret":"x"}\'')
    program(programs, "one", 'echo \'{"Username":"<token>","Secret":"x"}\'')
    body = {"credsStore": "all", "credHelpers": {"r.example": "one"}}
    write(tmp_path / ".docker" / "config.json", body)
    assert find(tmp_path, "r.example").credentials == Credentials(identity="x")
    assert find(tmp_path, "s.example").credentials == Credentials("all", "x")


def test_a_helper_without_a_login(tmp_path: Path, programs: Path) -> None:
    program(programs, "empty", 'echo "credentials not found in native keychain"; exit 1')
    write(tmp_path / ".docker" / "config.json", {"credsStore": "empty"})
    assert find(tmp_path, "r.example") == Login()


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("absent", None, "not on the PATH"),
        ("../evil", None, "its name is none"),
        ("a b", None, "its name is none"),
        ("failing", "echo secret-word; exit 3", "ended with 3"),
        ("garbage", "echo secret-word", "wrote no login"),
        ("flood", "exec cat /dev/zero", "wrote more"),
        ("deaf", f"exec <&-; {ANSWER}; exit 7", "ended with 7"),
    ],
)
def test_a_helper_that_fails_is_a_note(
    tmp_path: Path, programs: Path, name: str, text: str | None, why: str
) -> None:
    """Many images need no login: whoever is refused without one is told of it."""
    if text is not None:
        program(programs, name, text)
    write(tmp_path / ".docker" / "config.json", {"credsStore": name})
    login = find(tmp_path, "r.example")
    assert login.credentials is None
    assert why in login.note
    assert "secret-word" not in login.note


def test_a_helper_that_hangs_is_killed_with_all_it_started(tmp_path: Path, programs: Path) -> None:
    program(programs, "hang", f'sleep 1000 & echo $! > "{tmp_path}/pid"; wait')
    with pytest.raises(HelperFailed, match="did not answer in 0.5 seconds"):
        ask_helper("hang", "r.example", seconds=0.5)
    child = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 10
    while _runs(child):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    """One that is dead may still be listed: whoever adopted it has to ask for it."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def test_a_helper_is_only_found_where_it_can_be_trusted(
    tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(programs, "here", ANSWER)
    monkeypatch.chdir(programs)
    monkeypatch.setenv("PATH", ".")
    with pytest.raises(HelperFailed, match="not on the PATH"):
        ask_helper("here", "r.example")
    monkeypatch.setenv("PATH", f"{programs}:/bin:/usr/bin")
    assert ask_helper("here", "r.example") == helpers.Kept("alice", "word")
