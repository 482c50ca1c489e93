"""`--image DIR` and the choice between images."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentkernel.errors import AgentKernelError, InvalidInputError, NotFoundError
from agentkernel.images.directory import resolve_directory
from agentkernel.images.model import IdView
from agentkernel.images.resolve import resolve_image

from .fake_files import program, put


@pytest.fixture
def image(tmp_path: Path) -> Path:
    root = tmp_path / "image"
    program(root, "bin/sh")
    put(root, "etc/passwd", "root:x:0:0::/:/bin/sh\n")
    return root


def test_a_directory_of_ours_needs_no_skeleton(image: Path, tmp_path: Path, ids: IdView) -> None:
    result = resolve_directory(str(image), tmp_path / "cache", ids)
    (stack,) = result.stacks
    own, floor = stack.lowers
    assert (stack.target, own) == ("/", str(image))
    for name in ("proc", "dev", "sys", "tmp", "run", "etc/hosts", "etc/resolv.conf"):
        assert os.path.exists(f"{floor}/{name}"), name
    assert result.trees == ()
    assert result.environment == {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "USER": "root",
        "LOGNAME": "root",
        "LANG": "C.UTF-8",
    }


def test_directories_of_others_get_a_skeleton(image: Path, tmp_path: Path) -> None:
    stranger = IdView("single", 0, os.getuid() + 1)
    result = resolve_directory(str(image), tmp_path / "cache", stranger)
    skeleton, own, _ = result.stacks[0].lowers
    assert own == str(image)
    assert sorted(os.listdir(skeleton)) == ["bin", "etc"]


@pytest.mark.skipif(os.getuid() != 0, reason="needs uid 0")
def test_root_needs_no_skeleton(image: Path, tmp_path: Path) -> None:
    os.chown(image, 1234, 1234)
    result = resolve_directory(str(image), tmp_path / "cache", IdView("range", 0, 0))
    assert len(result.stacks[0].lowers) == 2


def test_links_to_the_directory_are_followed_first(
    image: Path, tmp_path: Path, ids: IdView
) -> None:
    (tmp_path / "link").symlink_to(image)
    (tmp_path / "root").symlink_to("/")
    result = resolve_directory(str(tmp_path / "link"), tmp_path / "cache", ids)
    assert result.reference == str(image)
    with pytest.raises(InvalidInputError, match="own root"):
        resolve_directory(str(tmp_path / "root"), tmp_path / "cache", ids)


def test_what_cannot_be_an_image(
    image: Path, tmp_path: Path, ids: IdView, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    (tmp_path / "empty").mkdir()
    file = put(tmp_path, "file")
    monkeypatch.setenv("HOME", str(tmp_path / "people/alice"))
    program(tmp_path / "people", "bin/sh")
    cases: list[tuple[str, type[AgentKernelError], str]] = [
        (str(tmp_path / "nowhere"), NotFoundError, "no such"),
        (str(file), InvalidInputError, "not a directory"),
        ("/", InvalidInputError, "own root"),
        (str(tmp_path / "empty"), InvalidInputError, "does not look like"),
        (str(tmp_path), InvalidInputError, "contains"),
        (str(tmp_path / "people"), InvalidInputError, "contains"),
        (f"{tmp_path}/a\0b", InvalidInputError, "cannot be the name"),
        (f"{tmp_path}/\ud800", InvalidInputError, "cannot be the name"),
    ]
    for path, kind, words in cases:
        with pytest.raises(kind, match=words):
            resolve_directory(path, cache, ids)
    with pytest.raises(InvalidInputError, match="contains"):
        resolve_directory(str(image), cache, ids, protected=[image / "var/state"])
    assert not cache.exists()


def test_references(
    image: Path, tmp_path: Path, ids: IdView, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.chdir(tmp_path)
    assert resolve_image("./image", cache, ids).reference == str(image)
    assert resolve_image(str(image), cache, ids).reference == str(image)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    program(tmp_path, "home/rootfs/bin/sh")
    assert resolve_image("~/rootfs", cache, ids).reference == str(tmp_path / "home/rootfs")
    with pytest.raises(InvalidInputError, match="python:3.12") as caught:
        resolve_image("python:3.12", cache, ids)
    assert caught.value.hint == "a directory begins with / or ./"
    with pytest.raises(InvalidInputError):
        resolve_image(" ", cache, ids)


def test_host_is_a_reference(tmp_path: Path, ids: IdView) -> None:
    image = resolve_image("host", tmp_path / "cache", ids, toolchains=False, environment={})
    assert image.reference == "host"
    assert image.trees == ()
    assert "/usr/bin" in image.environment["PATH"].split(":")
