"""`agentkernel sandbox cp`, by the rules of `docker cp`."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import signal
import subprocess
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from agentkernel.backends.local import idmaps

from .conftest import COMMAND, Cli, Json

HAS_SEVERAL_IDS = idmaps.is_host_root() or idmaps.find_subids() is not None
WORKERS = "cat /proc/[0-9]*/comm 2>/dev/null | grep -c file-worker"


@pytest.fixture
def place(cli: Cli, box: str, request: pytest.FixtureRequest) -> str:
    """A directory of the test's own in the sandbox."""
    path = f"/root/{re.sub('[^a-z_]', '-', request.node.name)}"
    assert cli("exec", box, "--", "mkdir", path).returncode == 0
    return path


def inside(cli: Cli, box: str, shell: str) -> str:
    done = cli("exec", box, "--", "sh", "-c", shell)
    assert done.returncode == 0, done
    return done.stdout.decode()


def paths(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def copy(cli: Cli, *words: str) -> None:
    done = cli("sandbox", "cp", *words)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "d").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "d" / "run").write_bytes(b"#!/bin/sh\n")
    (root / "d" / "run").chmod(0o750)
    (root / "link").symlink_to("d/run")
    (root / os.fsdecode(b"\xff")).write_bytes(b"x")
    return root


def test_files_both_ways(cli: Cli, box: str, place: str, tmp_path: Path) -> None:
    data = os.urandom(9_000_000)
    (tmp_path / "in").write_bytes(data)
    (tmp_path / "in").chmod(0o755)
    copy(cli, str(tmp_path / "in"), f"{box}:{place}")
    copy(cli, str(tmp_path / "in"), f"{box}:{place}/other")
    assert inside(cli, box, f"test -x {place}/in; ls {place}") == "in\nother\n"
    copy(cli, f"{box}:{place}/in", str(tmp_path / "out"))
    assert (tmp_path / "out").read_bytes() == data
    assert os.access(tmp_path / "out", os.X_OK)
    (tmp_path / "dir").mkdir()
    copy(cli, f"{box}:{place}/in", str(tmp_path / "dir"))
    assert paths(tmp_path) == ["dir", "dir/in", "in", "out"]


def test_directories_both_ways(
    cli: Cli, box: str, ask: Json, place: str, tree: Path, tmp_path: Path
) -> None:
    whole = ["d", "d/run", "empty", "link", "\udcff"]
    copy(cli, str(tree), f"{box}:{place}/new")  # not there: that is its name
    copy(cli, str(tree), f"{box}:{place}/new")  # there: into it
    copy(cli, f"{tree}/.", f"{box}:{place}/content/deep")
    copy(cli, f"{tree}/.", f"{box}:{place}/content/deep")
    listing = inside(cli, box, f"cd {place}; find . -name run -printf '%m %p\\n' | sort")
    assert listing == "750 ./content/deep/d/run\n750 ./new/d/run\n750 ./new/tree/d/run\n"

    at = f"{box}:{place}/content/deep"
    copy(cli, at, str(tmp_path / "fresh"))
    copy(cli, at, str(tmp_path / "fresh"))
    copy(cli, f"{at}/.", str(tmp_path / "empty"))
    copy(cli, f"{at}/.", str(tmp_path / "empty"))
    assert paths(tmp_path / "empty") == whole
    assert paths(tmp_path / "fresh") == sorted([*whole, "deep", *(f"deep/{p}" for p in whole)])
    assert os.readlink(tmp_path / "fresh" / "link") == "d/run"
    assert (tmp_path / "fresh" / "d" / "run").stat().st_mode & 0o777 == 0o750
    told = ask("sandbox", "cp", at, str(tmp_path / "told"))
    assert told == {"files": 5, "bytes": 11, "skipped": 0, "refused_links": 0}


def test_relative_names_here(cli: Cli, box: str, place: str, tree: Path) -> None:
    for source in (".", "../tree", "d/.."):
        done = cli("sandbox", "cp", source, f"{box}:{place}", cwd=tree)
        assert done.returncode == 0, done
    listing = inside(cli, box, f"cd {place}; find . -name run | sort")
    assert listing == "./d/run\n./tree/d/run\n"
    assert cli("sandbox", "cp", f"{box}:{place}/tree", ".", cwd=tree.parent).returncode == 0


def test_what_is_left_out_is_said(cli: Cli, box: str, place: str, tmp_path: Path) -> None:
    inside(cli, box, f"cd {place}; ln -s /etc/passwd a; ln -s .. b; mkfifo f; ln -s c ok; echo > c")
    done = cli("sandbox", "cp", f"{box}:{place}", str(tmp_path / "out"))
    assert done.returncode == 0
    assert b"2 links that lead out of the directory" in done.stderr
    assert b"1 FIFOs, sockets or devices" in done.stderr
    assert paths(tmp_path / "out") == ["c", "ok"]


def test_archives(cli: Cli, box: str, place: str, tree: Path, tmp_path: Path) -> None:
    packed = subprocess.run(
        ["tar", "-C", tree, "-cf", "-", "."], capture_output=True, timeout=30, check=True
    ).stdout
    done = cli("sandbox", "cp", "-", f"{box}:{place}/t", input=packed)
    assert (done.returncode, done.stderr) == (0, b"")
    done = cli("sandbox", "cp", f"{box}:{place}/t", "-")
    assert (done.returncode, done.stderr) == (0, b"")
    subprocess.run(["tar", "-C", tmp_path, "-xf", "-"], input=done.stdout, timeout=30, check=True)
    assert paths(tmp_path / "t") == paths(tree)
    content = cli("sandbox", "cp", f"{box}:{place}/t/.", "-").stdout
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        assert "d/run" in tar.getnames()
    one = cli("sandbox", "cp", f"{box}:{place}/t/d/run", "-").stdout
    with tarfile.open(fileobj=io.BytesIO(one)) as tar:
        assert [(info.name, info.mode) for info in tar] == [("run", 0o750)]
        assert tar.extractfile("run").read() == b"#!/bin/sh\n"  # type: ignore[union-attr]


def test_mistakes(cli: Cli, box: str, place: str, tree: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    evil = io.BytesIO()
    with tarfile.open(fileobj=evil, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("../x"))
    before = paths(tmp_path)
    for words, why in (
        (("a", "b"), b"one of the two"),
        ((f"{box}:/a", f"{box}:/b"), b"one of the two"),
        ((f"{box}:/no/such", str(tmp_path / "x")), b"/no/such"),
        ((f"{box}:relative", str(tmp_path / "x")), b"hint: paths inside begin with /"),
        ((str(tmp_path / "none"), f"{box}:/x"), b"No such file"),
        ((f"{box}:{place}", str(tmp_path / "file")), b"not a directory"),
        ((f"{box}:{place}", str(tmp_path / "no" / "such")), b"No such file"),
        ((f"{box}:/etc/hostname", str(tmp_path / "no" / "such")), b"No such file"),
        ((f"{box}:/dev/zero", str(tmp_path / "x")), b"not a regular file"),
        ((str(tree), f"{box}:/etc/passwd"), b"/etc/passwd"),
        ((f"{box}:{place}", "-", "--json"), b""),
        (("-", f"{box}:{place}"), b"leads outside"),
    ):
        done = cli("sandbox", "cp", *words, input=evil.getvalue())
        assert done.returncode == 125, done
        assert why in done.stderr and b"Traceback" not in done.stderr, done
    assert paths(tmp_path) == before


@pytest.mark.skipif(not HAS_SEVERAL_IDS, reason="one user id here: there is no other user")
def test_whose_rights(cli: Cli, box: str, tree: Path) -> None:
    denied = cli("sandbox", "cp", "--user", "user", str(tree), f"{box}:/root/denied")
    assert denied.returncode == 125 and b"ermission" in denied.stderr
    copy(cli, "--user", "user", str(tree), f"{box}:/tmp/theirs")
    assert inside(cli, box, "stat -c '%u %g' /tmp/theirs/d/run") == "1000 1000\n"
    copy(cli, str(tree), f"{box}:/tmp/ours")
    assert inside(cli, box, "stat -c '%u %g' /tmp/ours/d/run") == "0 0\n"


def start(*words: str, **options: Any) -> subprocess.Popen[bytes]:
    """A copy that Ctrl-C reaches, also where whoever runs the tests has it ignored."""
    return subprocess.Popen(
        [*COMMAND, "sandbox", "cp", *words],
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        stderr=subprocess.PIPE,
        **options,
    )


def interrupt(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    assert process.stderr
    assert (process.wait(30), process.stderr.read()) == (130, b"")
    process.stderr.close()


def no_worker_is_left(cli: Cli, box: str) -> None:
    deadline = time.monotonic() + 20
    while inside(cli, box, f"{WORKERS} || true") != "0\n":
        assert time.monotonic() < deadline, "a worker is still there"


@pytest.mark.parametrize("what", ["big/f", "big"])
def test_ctrl_c_on_the_way_out(
    cli: Cli, box: str, place: str, tmp_path: Path, daemon_dir: Path, what: str
) -> None:
    inside(cli, box, f"mkdir {place}/big; truncate -s 3G {place}/big/f")
    process = start(f"{box}:{place}/{what}", str(tmp_path / "out"))
    deadline = time.monotonic() + 30
    while not list(tmp_path.rglob("*.part")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    interrupt(process)
    no_worker_is_left(cli, box)
    assert paths(tmp_path) == ([] if what == "big/f" else ["out"])


def test_ctrl_c_on_the_way_in(
    cli: Cli, box: str, place: str, tmp_path: Path, daemon_dir: Path
) -> None:
    """Midway for certain: most of what a pipe can't hold was taken, and the end is not there."""
    os.mkfifo(tmp_path / "fifo")
    process = start(str(tmp_path / "fifo"), f"{box}:{place}/f")
    with (tmp_path / "fifo").open("wb", buffering=0) as fifo:
        for _ in range(80):
            fifo.write(bytes(1 << 17))
        interrupt(process)
    no_worker_is_left(cli, box)

    info = tarfile.TarInfo("f")
    info.size = 1 << 30
    process = start("-", f"{box}:{place}", stdin=subprocess.PIPE)
    assert process.stdin
    process.stdin.write(info.tobuf())
    for _ in range(80):
        process.stdin.write(bytes(1 << 17))
    interrupt(process)
    process.stdin.close()
    no_worker_is_left(cli, box)
    assert inside(cli, box, f"ls -A {place}") == ""


def test_progress_on_a_terminal(
    cli: Cli, box: str, place: str, tmp_path: Path, daemon_dir: Path
) -> None:
    """Shown when it takes longer than a second, here because stdin does."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "sandbox", "cp", "-", f"{box}:{place}"], stdin=subprocess.PIPE, stderr=theirs
    )
    os.close(theirs)
    assert process.stdin
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        info = tarfile.TarInfo("f")
        info.size = 3 << 20
        tar.addfile(info, io.BytesIO(bytes(3 << 20)))
    content = data.getvalue()
    at, seen = 0, b""
    deadline = time.monotonic() + 30
    while b"MiB" not in seen:
        assert time.monotonic() < deadline and process.poll() is None
        process.stdin.write(content[at : at + 1000])
        process.stdin.flush()
        at += 1000
        if select.select([ours], [], [], 0.05)[0]:
            seen += os.read(ours, 1000)
    process.stdin.write(content[at:])
    process.stdin.close()
    assert process.wait(30) == 0
    while select.select([ours], [], [], 0)[0]:
        try:
            seen += os.read(ours, 1000)
        except OSError:
            break
    os.close(ours)
    assert seen.endswith(b"\r\x1b[K")
    assert inside(cli, box, f"stat -c %s {place}/f") == f"{3 << 20}\n"
