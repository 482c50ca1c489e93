"""`agentkernel image build`, as a user meets it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def cli(daemon_dir: Path, tmp_path: Path) -> Cli:
    def call(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "agentkernel", *words],
            input=stdin, capture_output=True, timeout=50, check=False, cwd=tmp_path, text=True,
        )  # fmt: skip

    return call


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Of files only: no step needs a program."""
    directory = tmp_path / "project"
    (directory / "docs").mkdir(parents=True)
    for name in ("app.py", "run.log", "docs/a.md", "docs/b.txt"):
        (directory / name).write_text(name)
    (directory / ".dockerignore").write_text("*.log\ndocs\n!docs/*.md\n.dockerignore\n")
    (directory / "Dockerfile").write_text(
        "# syntax=docker/dockerfile:1\nFROM scratch AS one\nARG WHO=nobody\nCOPY . /srv/\n"
        "LABEL who=$WHO\nFROM one AS two\nCOPY <<x /x\nhello\nx\n"
    )
    return directory


def test_built_again_and_looked_at(cli: Cli, project: Path) -> None:
    words = ("image", "build", "-t", "cli/built", "-t", "cli/built:2", "--build-arg", "WHO=me")
    first = cli(*words, "project")
    assert first.returncode == 0, first.stderr
    lines = first.stderr.splitlines()
    assert lines[0].startswith("note: line 1: # syntax=docker/dockerfile:1 is ignored")
    assert "[one 3/6] COPY . /srv/" in lines and "[two 6/6] COPY <<x /x" in lines
    assert lines[-1].endswith("0 of 2 layers from the cache")
    names, digests = zip(*(line.split("@") for line in first.stdout.split()), strict=True)
    assert names == ("cli/built:latest", "cli/built:2") and len(set(digests)) == 1
    again = cli(*words, "--quiet", "project")
    assert again.stdout.split() == [digests[0]] and again.stderr == ""
    shown = json.loads(cli("image", "inspect", "--json", "cli/built:2").stdout)
    assert shown["config"]["labels"] == {"who": "me"}
    events = [json.loads(line) for line in cli(*words, "--json", "project").stdout.splitlines()]
    assert [event["event"] for event in events][0] == "started"
    assert events[-1]["event"] == "built" and events[-1]["cached"] == events[-1]["layers"] == 2


def test_what_is_ignored_is_not_sent(cli: Cli, project: Path) -> None:
    (project / "Other").write_text("FROM scratch\nCOPY run.log /\n")
    refused = cli("image", "build", "-f", "project/Other", "project")
    assert refused.returncode and "line 2: run.log is not in the context" in refused.stderr
    assert "hint:" in refused.stderr
    # The control: its own list, which leaves nothing out, comes first.
    (project / "Other.dockerignore").write_text("# nothing\n")
    assert cli("image", "build", "-f", "project/Other", "project").returncode == 0


def test_a_dockerfile_from_stdin(cli: Cli, project: Path) -> None:
    alone = cli("image", "build", "-q", "-", stdin="FROM scratch\nLABEL a=b\n")
    assert alone.stdout.startswith("sha256:")
    beside = cli(
        "image", "build", "-q", "-f", "-", "project", stdin="FROM scratch\nCOPY app.py /\n"
    )
    assert beside.stdout.startswith("sha256:")
    assert cli("image", "build", "-", stdin="FROM scratch\nCOPY app.py /\n").returncode


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere",), "is no directory"),
        (("-f", "nowhere", "project"), "can't be read"),
        (("--target", "three", "project"), "there is no stage 'three'"),
        (("--platform", "linux/s390x", "project"), "can't be built here"),
        (("-t", "UPPER", "project"), "is no name of an image"),
        (("--network", "what", "project"), "what"),
        (("-f", "nowhere", "-"), "there is no context"),
    ],
)
def test_what_can_not_be(cli: Cli, project: Path, words: tuple[str, ...], said: str) -> None:
    done = cli("image", "build", *words)
    assert done.returncode not in (0, 1) and said in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""


def test_without_a_dockerfile(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = cli("image", "build", "empty")
    assert done.returncode and "there is no Dockerfile in 'empty'" in done.stderr


def test_interrupted(daemon_dir: Path, cli: Cli, project: Path) -> None:
    """The build ends with whoever wanted it: nothing goes on, and no name is given."""
    os.mkfifo(project / "fifo")  # is left out
    (project / "Dockerfile").write_text("FROM 127.0.0.1:1/nowhere\n")
    refused = cli("image", "build", "-t", "cli/left", "project")
    assert refused.returncode and "127.0.0.1:1" in refused.stderr
    process = subprocess.Popen(
        [sys.executable, "-m", "agentkernel", "image", "build", "-t", "cli/left", "-f", "-", "."],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=project,
    )  # fmt: skip
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode
    assert cli("image", "inspect", "cli/left").returncode
