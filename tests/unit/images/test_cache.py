"""Layers are whole or absent, whoever builds them at once and whoever is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentkernel.errors import HostError
from agentkernel.images import cache
from agentkernel.images.cache import key_of, layer, prune, remove_abandoned

from .fake_files import put

SOURCE = str(Path(cache.__file__).resolve().parents[2])
# Writes a first file, says so, then waits for a line before it writes the second and finishes.
BUILDER = """\
import sys
sys.path.insert(0, sys.argv[1])
from agentkernel.images.cache import layer
def build(target):
    open(target + "/first", "w").write(sys.argv[3])
    print("begun", flush=True)
    sys.stdin.readline()
    open(target + "/second", "w").write(sys.argv[3])
print(layer(sys.argv[2], "x-1", build), flush=True)
"""


def start(directory: Path, mark: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", BUILDER, SOURCE, str(directory), mark],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


def build_one(target: str) -> None:
    put(Path(target), "file", "content")


def fail_to_build(target: str) -> None:
    build_one(target)
    raise RuntimeError("no")


def names(directory: Path) -> list[str]:
    return sorted(name for name in os.listdir(directory / "layers") if not name.endswith(".used"))


def test_a_layer_is_built_once(tmp_path: Path) -> None:
    said: list[str] = []
    for _ in range(2):
        path = layer(tmp_path, "x-1", build_one, progress=said.append, message="building")
    assert path == str(tmp_path / "layers/x-1")
    assert said == ["building"]
    assert names(tmp_path) == ["x-1"]


def test_concurrent_builders_agree_on_one_whole_layer(tmp_path: Path) -> None:
    builders = [start(tmp_path, mark) for mark in "abc"]
    assert len(names(tmp_path)) == 3
    assert not (tmp_path / "layers/x-1").exists()
    answers = [builder.communicate("go\n", timeout=20)[0].strip() for builder in builders]
    assert answers == [str(tmp_path / "layers/x-1")] * 3
    assert names(tmp_path) == ["x-1"]
    files = {path.name: path.read_text() for path in (tmp_path / "layers/x-1").iterdir()}
    assert files == {"first": files["first"], "second": files["first"]}


def test_a_killed_builder_leaves_nothing_that_is_used(tmp_path: Path) -> None:
    killed = start(tmp_path, "half")
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=20)
    (left,) = names(tmp_path)
    assert left.startswith(".tmp-")
    path = Path(layer(tmp_path, "x-1", build_one))
    assert [item.name for item in path.iterdir()] == ["file"]
    assert names(tmp_path) == ["x-1"]


def test_a_living_builder_is_not_cleaned_away(tmp_path: Path) -> None:
    builder = start(tmp_path, "alive")
    assert remove_abandoned(tmp_path) == []
    layer(tmp_path, "y-1", build_one)
    answer, _ = builder.communicate("go\n", timeout=20)
    assert (Path(answer.strip()) / "second").read_text() == "alive"


def test_a_failing_builder_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        layer(tmp_path, "x-1", fail_to_build)
    assert names(tmp_path) == []


def test_a_cache_that_cannot_be_written_is_a_typed_error(tmp_path: Path) -> None:
    put(tmp_path, "file")
    with pytest.raises(HostError, match="layer cache") as caught:
        layer(tmp_path / "file", "x-1", build_one)
    assert caught.value.hint


def test_a_cache_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    layer(tmp_path, "x-1", build_one)
    (tmp_path / "layers").chmod(0o777)
    with pytest.raises(HostError, match="other accounts") as caught:
        layer(tmp_path, "x-1", build_one)
    assert caught.value.hint


def test_prune_keeps_what_is_used_or_was_lately(tmp_path: Path) -> None:
    used, old, fresh = (layer(tmp_path, name, build_one) for name in ("used", "old", "fresh"))
    long_ago = time.time() - 3 * 24 * 3600
    for path in (used, old):
        os.utime(path + cache.USED, (long_ago, long_ago))
    assert prune(tmp_path, {used}) == [old]
    assert names(tmp_path) == ["fresh", "used"]
    assert not os.path.exists(old + cache.USED)
    assert prune(tmp_path, {used}, keep_unused_s=0) == [fresh]


def test_use_renews_the_mark(tmp_path: Path) -> None:
    path = layer(tmp_path, "x", build_one)
    long_ago = time.time() - 3 * 24 * 3600
    os.utime(path + cache.USED, (long_ago, long_ago))
    layer(tmp_path, "x", build_one)
    assert prune(tmp_path, ()) == []


def test_removal_follows_no_links_and_needs_no_modes(tmp_path: Path) -> None:
    put(tmp_path, "outside/kept")

    def build(target: str) -> None:
        os.symlink(tmp_path / "outside", f"{target}/link")
        put(Path(target), "closed/file").parent.chmod(0o000)

    # Nothing to flush, or opening the closed directory would fail here already.
    layer(tmp_path, "x", build, flush=False)
    prune(tmp_path, (), keep_unused_s=0)
    assert names(tmp_path) == []
    assert (tmp_path / "outside/kept").exists()


def test_keys_depend_on_every_part() -> None:
    keys = {key_of("a", 1), key_of("a", 2), key_of("b", 1), key_of("a", "1"), key_of("a")}
    assert len(keys) == 5
    assert key_of("a", ("x", "\udcff")) == key_of("a", ("x", "\udcff"))
