"""Completion, in the shells that are here."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentkernel.cli.completion import candidates
from agentkernel.cli.main import build_parser

from .conftest import Cli


def complete(*words: str) -> list[str]:
    return [name for name, _ in candidates(build_parser(), words)]


def test_candidates() -> None:
    assert {"run", "sandbox", "doctor"} <= set(complete(""))
    assert complete("sand") == ["sandbox"]
    assert complete("sandbox", "cr") == ["create"]
    assert complete("run", "--prof") == ["--profile"]
    assert complete("run", "--profile", "") == ["permissive", "moderate", "restrictive"]
    assert complete("run", "--profile", "r") == ["restrictive"]
    assert complete("run", "--", "--prof") == []
    assert complete("run", "-c", "x") == ["\tfiles"]
    assert "--json" in complete("config", "show", "-")
    assert complete("no-such", "") == []
    assert complete("completion", "") == ["bash", "zsh", "fish"]
    assert "--words" not in complete("completion", "--")
    # Those that come with the package are known without a daemon.
    assert complete("agent", "show", "cl") == ["claude"]
    assert complete("agent", "install", "codex", "co") == []
    assert "--model" in complete("claude", "--mo")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """`agentkernel` as a shell finds it."""
    path = tmp_path / "bin" / "agentkernel"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -m agentkernel "$@"\n')
    path.chmod(0o755)
    return path


def in_bash(program: Path, cwd: Path, *words: str) -> list[str]:
    """What bash itself would offer: its own completion function, called as readline does."""
    script = """
        PATH=$1:$PATH; shift
        source <(agentkernel completion bash)
        COMP_WORDS=(agentkernel "$@"); COMP_CWORD=$#
        compopt() { :; }
        _agentkernel agentkernel "${!#}" ""
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    done = subprocess.run(
        ["bash", "--norc", "-c", script, "bash", str(program.parent), *words],
        capture_output=True, text=True, timeout=50, check=True, cwd=cwd,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1] if done.stdout.strip() else []


def test_in_bash(program: Path, tmp_path: Path, cli: Cli) -> None:
    assert in_bash(program, tmp_path, "sand") == ["sandbox"]
    assert in_bash(program, tmp_path, "run", "--profile", "mod") == ["moderate"]
    (tmp_path / "my file.toml").touch()
    assert in_bash(program, tmp_path, "run", "-c", "my") == ["my file.toml"]
    assert cli("sandbox", "create", "completed").returncode == 0
    assert in_bash(program, tmp_path, "exec", "compl") == ["completed"]
    assert in_bash(program, tmp_path, "doctor", "--probe", "compl") == ["completed"]
    assert in_bash(program, tmp_path, "sandbox", "stop", "completed", "compl") == []
    cli("sandbox", "remove", "completed")


def test_at_the_keyboard(program: Path, tmp_path: Path, daemon_dir: Path) -> None:
    """An interactive bash on a terminal: letters, then the tab key."""
    ours, theirs = pty.openpty()
    bash = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],
        stdin=theirs, stdout=theirs, stderr=theirs, cwd=tmp_path, start_new_session=True,
        env={**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "PS1": "READY ",
             "TERM": "dumb", "INPUTRC": "/dev/null", "HISTFILE": ""},
    )  # fmt: skip
    os.close(theirs)
    seen = b""

    def until(wanted: bytes) -> None:
        nonlocal seen
        deadline = time.monotonic() + 40
        while wanted not in seen:
            assert select.select([ours], [], [], max(0, deadline - time.monotonic()))[0], seen
            seen += os.read(ours, 65536)
        seen = seen.rpartition(wanted)[2]

    try:
        until(b"READY ")
        os.write(ours, b"source <(agentkernel completion bash); echo LOAD''ED\n")
        until(b"LOADED")
        until(b"READY ")
        os.write(ours, b"agentkernel conf\t")
        until(b"agentkernel config ")
        os.write(ours, b"ch\t")
        until(b"check ")
        os.write(ours, b"\x15exit\n")
        assert bash.wait(timeout=40) == 0
    finally:
        bash.kill()
        bash.wait()
        os.close(ours)


def test_no_daemon_is_started_for_it(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTKERNEL_STATE_DIR", str(tmp_path / "state"))
    assert in_bash(program, tmp_path, "exec", "") == []
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_take_the_script(shell: str, cli: Cli) -> None:
    script = cli("completion", shell).stdout
    assert b"completion " + shell.encode() + b" --words" in script
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed: its script was printed, not run")
    subprocess.run([shell, "-n", "/dev/stdin"], input=script, check=True, timeout=20)
