"""Volumes as people write them, and what no sandbox can have."""

from __future__ import annotations

import pytest

from agentkernel.config.volumes import parse_volume, parse_volumes
from agentkernel.errors import InvalidInputError


@pytest.mark.parametrize(
    ("text", "name", "path", "read_only"),
    [
        ("cache:/cache", "cache", "/cache", False),
        ("a1-b:/a/b c:ro", "a1-b", "/a/b c", True),
        ("cache:/root/.cache/:rw", "cache", "/root/.cache", False),
        ("cache://a//b/", "cache", "/a/b", False),
        ("cache:/etc/app", "cache", "/etc/app", False),
        ("cache:/tmp", "cache", "/tmp", False),
        ("cache:/usr/local/ü", "cache", "/usr/local/ü", False),
        ("cache:/a..b/...", "cache", "/a..b/...", False),
        ("cache:/process", "cache", "/process", False),
    ],
)
def test_what_is_meant(text: str, name: str, path: str, read_only: bool) -> None:
    found = parse_volume(text)
    assert (found.name, found.path, found.read_only) == (name, path, read_only)


@pytest.mark.parametrize(
    "text",
    [
        "", "cache", "cache:", ":/a", "cache:a", "cache:/", "cache://", "cache:/a:", "cache:/a:x",
        "cache:/a:ro:rw", "cache:/a:b:ro", "Cache:/a", "-a:/a", "a_b:/a", f"{'a' * 64}:/a",
        "ca\nche:/a",
        "cache:/a/../b", "cache:/..", "cache:/.", "cache:/a/.", "cache:/a\nb", "cache:/a\x00",
        "cache:/a\x1b[0m", f"cache:/{'a' * 256}", f"cache:{'/a' * 600}", "cache:/\udcff",
        "cache:/proc", "cache:/proc/sys", "cache:/dev/shm", "cache:/sys", "cache:/sys/fs",
        "cache:/run", "cache:/run/agentkernel/x", "cache:/etc", "cache:/usr/", "cache:/bin",
    ],
)  # fmt: skip
def test_what_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_volume(text)
    assert caught.value.hint and len(caught.value.message) < 200


@pytest.mark.parametrize("text", ["/home/me:/a", "./data:/a", "~/x:/a", "../x:/a:ro"])
def test_a_directory_of_this_machine_is_none(text: str) -> None:
    with pytest.raises(InvalidInputError, match="path of this machine") as caught:
        parse_volume(text)
    assert "--workspace" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["a:/x", "b:/x/"], "both be at /x"),
        (["a:/x", "b:/x/y"], "one in the other"),
        (["a:/x/y/z", "c:/w", "b:/x"], "one in the other"),
        (["a:/x", "a:/y"], "two places"),
        (["a:/workspace"], "cover the workspace"),
    ],
)
def test_those_in_each_others_way(texts: list[str], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        parse_volumes(texts, workspace="/workspace")


def test_those_beside_each_other() -> None:
    texts = ["a:/workspace/node_modules", "b:/x", "c:/xy", "d:/y/x:ro"]
    found = parse_volumes(texts, workspace="/workspace")
    assert [one.path for one in found] == ["/workspace/node_modules", "/x", "/xy", "/y/x"]
    assert parse_volumes(["a:/workspace"], workspace=None)[0].path == "/workspace"
