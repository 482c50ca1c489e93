"""Which directories can be a workspace, what looks like a secret, whose files they are inside."""

from __future__ import annotations

import os
import stat
import subprocess
import time
from pathlib import Path

import pytest

from agentkernel.backends.local.workspace import owner_lines
from agentkernel.errors import InvalidInputError, NotFoundError
from agentkernel.workspaces.checking import check_directory, find_repository
from agentkernel.workspaces.hiding import make_hidden
from agentkernel.workspaces.model import parse_workspace
from agentkernel.workspaces.secret_files import SecretFinder, is_secret_name

PRIVATE = f"-----BEGIN OPENSSH {'PRIVATE'} KEY-----\nAAAA\n"
PUBLIC = "-----BEGIN CERTIFICATE-----\nAAAA\n"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("/a", ("/a", "cow")),
        ("/a:ro", ("/a", "ro")),
        ("/a:b:rw", ("/a:b", "rw")),
        ("/a:b", ("/a:b", "cow")),
        ("none", None),
    ],
)
def test_a_workspace_as_people_write_it(text: str, meant: object) -> None:
    assert parse_workspace(text) == meant


@pytest.mark.parametrize("text", ["", ":ro", "a", "a:ro", "/a\0b", "/" + "a" * 5000])
def test_what_is_no_workspace(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_workspace(text)


def test_directories_that_can_not_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, state, project = tmp_path / "home", tmp_path / "work" / "state", tmp_path / "work"
    for made in (home / "project", state / "inside", project / "sub"):
        made.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    (project / "file").touch()
    (project / "link").symlink_to("/")
    refused = {
        "/": "all of this machine",
        str(home): "your home",
        str(tmp_path): "your home",
        str(project): "state directory",
        str(state): "state directory",
        str(state / "inside"): "state directory",
        str(project / "file"): "not a directory",
        str(project / "link"): "all of this machine",
        "/proc/self": "system",
    }
    for path, why in refused.items():
        with pytest.raises(InvalidInputError, match=why):
            check_directory(path, (state,))
    with pytest.raises(NotFoundError):
        check_directory(str(project / "missing"), (state,))
    # The control: what lies beside all that.
    for fine in (str(project / "sub"), str(home / "project")):
        assert check_directory(fine, (state,)) == fine


def test_names_that_look_like_secrets() -> None:
    for parent, name in (
        ("", ".env"), ("a", ".env.production"), ("", "id_rsa"), ("", ".npmrc"), ("", ".netrc"),
        ("", ".pypirc"), (".aws", "credentials"), ("", ".git-credentials"), ("", "store.p12"),
        ("", ".ssh"),
    ):  # fmt: skip
        assert is_secret_name(parent, name), name
    for parent, name in (
        ("", ".env.example"), ("", "environment"), ("", "credentials"), ("", "main.py"),
        ("", "id_rsa.pub"), ("", ".github"),
    ):  # fmt: skip
        assert not is_secret_name(parent, name), name


def test_secrets_are_found_again_when_names_come_and_go(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    (deep / ".env").touch()
    (tmp_path / "key.pem").write_text(PRIVATE)
    (tmp_path / "certificate.pem").write_text(PUBLIC)
    (tmp_path / "out").symlink_to("/etc")
    for path in (deep, deep.parent, tmp_path):
        os.utime(path, (1, 1))
    finder = SecretFinder()
    assert finder.find(str(tmp_path)) == ["a/b/.env", "key.pem"]

    before = time.time_ns()
    (deep / ".npmrc").touch()
    (tmp_path / "certificate.pem").write_text(PRIVATE)  # its directory's time stays
    assert deep.stat().st_mtime_ns >= before - 50_000_000
    assert finder.find(str(tmp_path)) == ["a/b/.env", "a/b/.npmrc", "certificate.pem", "key.pem"]
    (deep / ".env").unlink()
    assert "a/b/.env" not in finder.find(str(tmp_path))


def test_the_layer_that_hides(tmp_path: Path) -> None:
    project, layer = tmp_path / "project", tmp_path / "layer"
    (project / "a").mkdir(parents=True)
    (project / "a").chmod(0o750)
    (project / "a" / ".env").touch()
    make_hidden(layer, str(project), ["a/.env", "gone/.env"])
    info = (layer / "a" / ".env").lstat()
    assert stat.S_ISCHR(info.st_mode) and info.st_rdev == 0
    assert stat.S_IMODE((layer / "a").stat().st_mode) == 0o750
    assert not (layer / "gone").exists()
    make_hidden(layer, str(project), [])  # made anew
    assert os.listdir(layer) == []


def test_the_owner_is_the_guests_user() -> None:
    def inside(id: int, lines: tuple[tuple[int, int, int], ...]) -> int | None:
        for first, outside, count in lines:
            if first <= id < first + count:
                return outside + id - first - 1_000_000
        return None

    for owner, guest in ((1001, 0), (0, 0), (0, 1000), (1000, 1000), (65_535, 0)):
        lines = owner_lines(owner, guest, 1_000_000)
        seen = [inside(id, lines) for id in range(65_536)]
        assert seen[owner] == guest and seen[guest] == owner
        assert sorted(id for id in seen if id is not None) == list(range(65_536))
    lines = owner_lines(200_000, 0, 1_000_000)
    assert inside(200_000, lines) == 0 and inside(0, lines) is None and inside(1, lines) == 1


def test_a_worktree_is_believed_if_its_repository_knows_it(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", *words],
            cwd=tmp_path, check=True, capture_output=True, timeout=20,
            env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"},
        )  # fmt: skip

    git("init", "-q", "main")
    git("-C", "main", "commit", "-q", "--allow-empty", "-m", "first")
    git("-C", "main", "worktree", "add", "-q", str(tmp_path / "tree"))
    found = find_repository(str(tmp_path / "tree"))
    assert found is not None and found.common == str(tmp_path / "main" / ".git")
    # Somebody else's project that points there, or anywhere else, gets nothing.
    for words in ((tmp_path / "tree" / ".git").read_text(), "gitdir: /etc\n", "gitdir: \0\n", ""):
        other = tmp_path / "other"
        other.mkdir(exist_ok=True)
        (other / ".git").write_text(words)
        assert find_repository(str(other)) is None
    assert find_repository(str(tmp_path / "main")) is None
