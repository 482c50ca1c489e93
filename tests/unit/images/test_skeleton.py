"""Skeletons have the directories of a tree, belong to us, and hold no file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from agentkernel.errors import UnsupportedError
from agentkernel.images import skeleton as module
from agentkernel.images.skeleton import skeleton, tree_key

from .fake_files import contents, link, put


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    put(root, "bin/program", mode=0o755)
    put(root, "share/deep/er/file")
    (root / "share/sticky").mkdir()
    (root / "share/sticky").chmod(0o1777)
    (root / "share/group").mkdir()
    (root / "share/group").chmod(0o2555)
    (root / "local").mkdir()
    link(root, "man", "share/deep")
    return root


def shape(root: str | Path) -> dict[str, int]:
    return {
        os.path.relpath(folder, root): stat.S_IMODE(os.lstat(folder).st_mode)
        for folder, _, _ in os.walk(root)
    }


def test_only_directories_with_their_modes_and_ours_to_write(tree: Path, tmp_path: Path) -> None:
    os.umask(0o077)
    made = skeleton(tree, tmp_path / "cache")
    assert shape(made) == {
        ".": 0o755,
        "bin": 0o755,
        "share": 0o755,
        "share/deep": 0o755,
        "share/deep/er": 0o755,
        "share/sticky": 0o1777,
        "share/group": 0o755,
        "local": 0o755,
    }
    assert contents(made) == {}
    assert not os.path.lexists(f"{made}/man")
    assert os.stat(f"{made}/bin").st_uid == os.getuid()


@pytest.mark.skipif(os.getuid() == 0, reason="root can read everything")
def test_unreadable_directories_stay_as_they_are(tree: Path, tmp_path: Path) -> None:
    (tree / "share/deep").chmod(0o000)
    made = skeleton(tree, tmp_path / "cache")
    (tree / "share/deep").chmod(0o755)
    assert "share/deep" not in shape(made)


def test_the_key_follows_directories_not_files(tree: Path) -> None:
    before = tree_key(str(tree))
    put(tree, "bin/another")
    assert tree_key(str(tree)) == before or tree.stat().st_nlink == 1
    (tree / "share/new").mkdir()
    after = tree_key(str(tree))
    assert after != before
    (tree / "local/new").mkdir()
    assert tree_key(str(tree)) != after


def test_the_key_follows_the_package_database(tree: Path, tmp_path: Path) -> None:
    before = tree_key(str(tree), str(tmp_path))
    put(tmp_path, "var/lib/dpkg/status", "Package: x\n")
    assert tree_key(str(tree), str(tmp_path)) != before


def test_progress_is_said_once(tree: Path, tmp_path: Path) -> None:
    said: list[str] = []
    for _ in range(2):
        skeleton(tree, tmp_path / "cache", said.append, shown_as="/usr")
    assert len(said) == 1
    assert "/usr" in said[0]


def test_too_many_directories_is_a_typed_error(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_DIRECTORIES", 5)
    with pytest.raises(UnsupportedError) as caught:
        skeleton(tree, tmp_path / "cache")
    assert caught.value.hint
    assert os.listdir(tmp_path / "cache/layers") == []


def test_other_filesystems_are_not_entered(tmp_path: Path) -> None:
    if not os.path.ismount("/dev/shm") or os.stat("/dev").st_dev == os.stat("/dev/shm").st_dev:
        pytest.skip("/dev/shm is not a filesystem of its own here")
    made = skeleton("/dev", tmp_path / "cache")
    assert os.path.isdir(f"{made}/shm")
    assert os.listdir(f"{made}/shm") == []


def test_a_real_usr_has_all_its_directories(tmp_path: Path) -> None:
    made = skeleton("/usr", tmp_path / "cache")
    assert directories_of(made) == directories_of("/usr")


def directories_of(top: str) -> set[str]:
    return {os.path.relpath(path, top) for path, _, _ in os.walk(top)}
