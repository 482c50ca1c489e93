"""`agentkernel secret`: values from stdin or a terminal, never from the command line."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import COMMAND, Cli, Json

VALUE = b"ghp_k3Jx9QmZt7Vb2NcR5Ld8WfY1"
OTHER = b"ghp_Another0ne0fTheSameLengt"


@pytest.fixture(autouse=True)
def tidy(cli: Cli) -> Iterator[None]:
    yield
    cli("secret", "remove", "TOKEN", "SECOND")


def test_set_from_stdin_list_rotate_remove(cli: Cli, ask: Json) -> None:
    done = cli("secret", "set", "TOKEN", input=VALUE + b"\n")
    assert (done.returncode, done.stdout) == (0, b"TOKEN\n"), done
    cli("secret", "set", "SECOND", input=VALUE)
    table = cli("secret", "list").stdout.decode()
    assert "TOKEN" in table and "SECOND" in table and VALUE.decode() not in table
    listed = ask("secret", "list")["secrets"]
    assert [each["name"] for each in listed] == ["SECOND", "TOKEN"]
    done = cli("secret", "rotate", "--json", "TOKEN", input=OTHER)
    assert done.returncode == 0 and b'"rotated_at": 1' in done.stdout
    done = cli("secret", "remove", "TOKEN", "NOBODY", "SECOND")
    assert done.returncode == 125 and done.stdout == b"TOKEN\nSECOND\n"
    assert b"no secret NOBODY" in done.stderr
    assert ask("secret", "list") == {"secrets": []}


def test_what_goes_wrong_is_said(cli: Cli) -> None:
    for words, given, said in (
        (("set", "TOKEN"), b"", b"no value was given"),
        (("set", "TOKEN"), b"short", b"at least 16"),
        (("set", "TOKEN"), b"two lines of it\nsecond line", b"one line"),
        (("set", "TOKEN"), b"\xff" * 20, b"printable"),
        (("set", "TOKEN"), b"x" * 70_000, b"too long"),
        (("set", "no such name"), VALUE, b"not a secret's name"),
        (("rotate", "TOKEN"), VALUE, b"no secret TOKEN"),
    ):
        done = cli("secret", *words, input=given)
        assert done.returncode == 125 and said in done.stderr, done
        assert VALUE not in done.stderr and b"second line" not in done.stderr
    assert cli("secret", "set", "TOKEN", VALUE.decode()).returncode == 2, "not an argument"


def test_a_terminal_does_not_show_it(daemon_dir: Path, ask: Json) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "secret", "set", "TOKEN"], stdin=theirs, stdout=theirs, stderr=theirs,
        start_new_session=True, preexec_fn=lambda: os.login_tty(theirs),
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    while b"not shown" not in shown:
        shown += os.read(ours, 1000)
    os.write(ours, VALUE + b"\n")
    try:
        while piece := os.read(ours, 1000):
            shown += piece
    except OSError:
        pass  # its end is closed
    assert process.wait(50) == 0, shown
    os.close(ours)
    assert VALUE not in shown and shown.endswith(b"TOKEN\r\n")
    assert ask("secret", "list")["secrets"][0]["name"] == "TOKEN"
