"""Bytes of a guest's making never reach the user's terminal by way of our own words.

What a command writes itself is passed on as it is: that is what it is run for. Its *name*, an
error it caused, or a lie of agentd's is shown by us, and must be harmless text by then.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from agentkernel.cli import main as cli
from agentkernel.cli.outcome import Ended, finish
from agentkernel.cli.values import printable
from agentkernel.errors import AgentKernelError
from agentkernel.guest.channel import GuestChannel
from agentkernel.guest.processes import ExitStatus, Outcome
from agentkernel.guest.protocol import FrameType, map_frame

from .fake_agent import Peer, fake_agent
from .probes import Box

NASTY = {
    "title": "\x1b]0;owned\x07",
    "clipboard": "\x1b]52;c;b3duZWQ=\x07",
    "link": "\x1b]8;;http://evil\x1b\\text",
    "clear": "\x1b[2J\x1b[1;1H",
    "c1": "\x9b31m",
    "carriage": "good\rbad",
    "newline": "first\nagentkernel: all is well",
    "backspace": "bad\b\b\bok",
    "nul": "a\x00b",
    "bidi": "\u202egnp.exe",
    "isolate": "\u2066x\u2069",
    "zero width": "a\u200bb",
    "separator": "a\u2028b",
    "surrogate": "a\udc9bb",
    "delete": "a\x7fb",
}


def harmless(text: str) -> bool:
    """Printable text and the newlines that end our own lines."""
    return all(c == "\n" or c.isprintable() for c in text)


@pytest.mark.parametrize("text", NASTY.values(), ids=NASTY.keys())
def test_printable(text: str) -> None:
    assert not harmless(text.replace("\n", "\r")), "control: it is nasty"
    assert harmless(printable(text)) and "\n" not in printable(text)


OUTCOMES = (
    ExitStatus(Outcome.SIGNALED, signal=9),
    ExitStatus(Outcome.TIMEOUT),
    ExitStatus(Outcome.OOM),
    ExitStatus(Outcome.NOT_STARTED, errno="ENOENT", stage="exec"),
    ExitStatus(Outcome.LOST),
)


@pytest.mark.parametrize("status", OUTCOMES, ids=lambda s: f"{s.outcome}-{s.errno!r}")
@pytest.mark.parametrize("name", NASTY.values(), ids=NASTY.keys())
def test_words_about_a_command(
    capsys: pytest.CaptureFixture[str], status: ExitStatus, name: str
) -> None:
    finish(Ended(msgspec.to_builtins(status)), name, 1.0)
    said = capsys.readouterr().err
    assert said and harmless(said), repr(said)
    assert len(said.splitlines()) <= 2, "more lines than a message and its hint"


def test_words_of_agentd_about_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    """`errno` and `stage` of a command that did not start are agentd's words too."""
    for text in NASTY.values():
        status = ExitStatus(Outcome.NOT_STARTED, errno=text, stage=text)
        finish(Ended(msgspec.to_builtins(status)), "program", 1.0)
        said = capsys.readouterr().err
        assert harmless(said) and len(said.splitlines()) == 1, repr(said)


@pytest.mark.parametrize("text", NASTY.values(), ids=NASTY.keys())
def test_words_about_an_error(capsys: pytest.CaptureFixture[str], text: str) -> None:
    cli.report(AgentKernelError(text, hint=text, detail=text), as_json=False)
    said = capsys.readouterr().err
    assert harmless(said) and len(said.splitlines()) == 2
    cli.report(AgentKernelError(text, hint=text, detail=text), as_json=True)
    said = capsys.readouterr().out
    assert harmless(said) and len(said.splitlines()) == 1, "JSON escapes it"


async def test_words_of_a_lying_agent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "".join(NASTY.values()).replace("\udc9b", "")

    async def script(peer: Peer) -> None:
        stream = await peer.greet_and_open()
        body = {"code": text, "message": text}
        await peer.send(map_frame(stream, FrameType.ERROR, body))
        await peer.read_all()

    async with fake_agent(tmp_path, script) as (token, _):
        channel = await GuestChannel.connect(str(tmp_path), token)
        with pytest.raises(AgentKernelError) as caught:
            async with asyncio.timeout(5):
                await channel.call("ping")
        channel.close()
    cli.report(caught.value, as_json=False)
    said = capsys.readouterr().err
    assert said and harmless(said) and len(said.splitlines()) <= 2


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["\x1b]0;owned\x07"], 127),
        (["sh", "-c", "kill -9 $$"], 137),
        (["/nonexistent/\x1b[31m\nagentkernel: fine"], 127),
    ],
    ids=["name", "signal", "path"],
)
def test_the_command_line_itself(daemon_dir: Path, argv: list[str], code: int) -> None:
    """The whole way: a real sandbox, a real stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "agentkernel", "run", "-q", "--", *argv],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=50,
        env=os.environ
        | {
            "AGENTKERNEL_STATE_DIR": str(daemon_dir),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        },
    )
    said = done.stderr.decode()
    assert done.returncode == code, said
    assert said.startswith("agentkernel: ") and harmless(said)
    assert len(said.splitlines()) == 1


async def test_what_a_command_writes_is_not_changed(box: Box) -> None:
    """Control: the same bytes from the command's own mouth do come through, unharmed."""
    data = "".join(NASTY.values()).encode("utf-8", "surrogateescape") + bytes(range(256))
    result = await box.run(["cat"], stdin=data)
    assert result.stdout == data
