"""`agentkernel replay SESSION`: an agent's session again, on the screen or as text.

A recording is what a program inside has written: it is shown without what would do more than draw
(`escapes`). `--output` gives the file as it is, for players of asciicasts.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

from agentkernel.cli.agent_finding import find_session
from agentkernel.cli.agent_lines import Lines
from agentkernel.cli.casts import frames_of, play
from agentkernel.cli.escapes import Screen
from agentkernel.cli.local_files import local_errors, write_all
from agentkernel.cli.notices import Connected
from agentkernel.cli.outcome import say
from agentkernel.cli.terminal import Terminal
from agentkernel.cli.values import printable
from agentkernel.client._sync.agent_sessions import AgentSession
from agentkernel.errors import InvalidInputError, NotFoundError

_IDLE: Final = 2.0
_STREAM: Final = "-"


def main(options: argparse.Namespace) -> int:
    if options.speed is not None and not 0 < options.speed < math.inf:
        raise InvalidInputError("--speed is a number above 0")
    with Connected() as transport:
        session = find_session(transport, options.session)
        if options.output is not None:
            return _save(session, options.output)
        if options.json:
            for event in session.events(follow=False):
                print(json.dumps(event))
            return 0
        if session.info["mode"] == "interactive":
            return _play(session, options)
        for line in event_lines(session.events(follow=False)):
            print(line)
        return 0


def _save(session: AgentSession, path: str) -> int:
    recording = session.recording()
    if path == _STREAM:
        write_all(1, recording)
        return 0
    with local_errors(path), open(path, "wb") as file:
        file.write(recording)
    return 0


# -- on the screen -------------------------------------------------------------------------------


def _play(session: AgentSession, options: argparse.Namespace) -> int:
    frames = frames_of([session.recording()])
    head = next(frames, None)
    if head is None:
        raise NotFoundError("the session has no recording")
    is_terminal = os.isatty(1)
    if is_terminal:
        _tell_size(head)
    screen = Screen("shown")
    pause = None if options.cat or not is_terminal else time.sleep
    try:
        play(
            frames, lambda data: write_all(1, screen.pass_on(data)),
            pause=pause, speed=options.speed or 1.0, idle=options.idle or _IDLE,
        )  # fmt: skip
    finally:
        write_all(1, screen.undo())
        if is_terminal:
            write_all(1, b"\r\n")
    return 0


def _tell_size(head: Any) -> None:
    rows, columns = Terminal().size()
    if isinstance(head, dict):
        wide, high = head.get("width"), head.get("height")
        if isinstance(wide, int) and isinstance(high, int) and (wide > columns or high > rows):
            say(f"it was recorded on {wide}x{high}; this terminal has {columns}x{rows}")


# -- as text -------------------------------------------------------------------------------------


def event_lines(events: Iterable[dict[str, Any]]) -> Iterator[str]:
    """A headless session's log for people, or an acp one's."""
    lines = Lines()
    for event in events:
        body = event.get("body")
        if not isinstance(body, dict):
            continue
        match event.get("kind"):
            case "agent" if "update" in body:
                yield from lines.update(body)
            case "agent":
                yield from lines.feed(json.dumps(body).encode() + b"\n")
            case "output" if isinstance(body.get("text"), str):
                yield from lines.feed(body["text"].encode("utf-8", "replace") + b"\n")
            case "prompt" if body.get("text"):
                for line in str(body["text"]).split("\n"):
                    yield printable(f"> {line}")
            case "permission" if "answer" in body:
                yield printable(f"  answered: {body['answer']}")
            case "ended":
                yield from lines.end()
                code = body.get("exit_code")
                how = body.get("reason") or "ended" if code is None else f"exit {code}"
                yield printable(f"── {how}")
    yield from lines.end()
