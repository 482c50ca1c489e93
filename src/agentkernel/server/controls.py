"""What the daemon says in control frames of a WebSocket, typed; `event` tells them apart.

A client ignores what it does not know, so there may be more of them in a later version.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from agentkernel.server.answers import CommandStatus, Problem


class Said(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    pass


class Progress(Said, frozen=True, kw_only=True, tag="progress"):
    """`run` only: what is being made before the command can start, such as an image."""

    text: str


class Notice(Said, frozen=True, kw_only=True, tag="notice"):
    """`run` only: a default of the profile that does not hold on this machine."""

    text: str


class Published(Said, frozen=True, kw_only=True, tag="published"):
    """`run` only: where a port of the sandbox is on the daemon's machine."""

    port: int
    address: str
    host_port: int


class Started(Said, frozen=True, kw_only=True, tag="started"):
    """It runs. `stdin_window`: how much of stdin is read ahead of the command. `stdin_offset`: how
    much of its stdin had come before, of a job that nobody else is attached to: whoever was cut off
    goes on from there."""

    pid: int
    stdin_window: int
    stdin_offset: int | None = None


class Taken(Said, frozen=True, kw_only=True, tag="taken"):
    """So many bytes of stdin are on their way to the command, since the stream began."""

    bytes: int


class Offset(Said, frozen=True, kw_only=True, tag="offset"):
    """The output that follows does not follow what came before (jobs)."""

    channel: Literal[1, 2]
    offset: int


class Truncated(Said, frozen=True, kw_only=True, tag="truncated"):
    """`output_bytes` are delivered; nothing more comes of this channel."""

    channel: Literal[1, 2]
    offset: int


class CaughtUp(Said, frozen=True, kw_only=True, tag="caught_up"):
    """`follow=0`: all that was there is delivered, and the job goes on. The last one."""

    stdout_offset: int
    stderr_offset: int


class Exit(CommandStatus, frozen=True, kw_only=True, tag_field="event", tag="exit"):
    """How it ended. The last one."""


class Failed(Problem, frozen=True, kw_only=True, tag_field="event", tag="error"):
    """What went wrong. The last one."""


ServerControl = (
    Progress | Notice | Published | Started | Taken | Offset | Truncated | CaughtUp | Exit | Failed
)
