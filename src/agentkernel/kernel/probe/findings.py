"""What a probe gives back."""

from __future__ import annotations

from typing import Literal

import msgspec

State = Literal["closed", "open", "unknown"]


class ProbeFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One try. `opens`: what a guest can do if it is open. `expected`: it is closed, or open for
    `reason`. `answers`: what came of it, by user. `detail`: what was seen, if it is open."""

    name: str
    group: str
    opens: str
    state: State
    expected: bool
    reason: str | None = None
    detail: str = ""
    answers: dict[str, str]


class ProbeResult(msgspec.Struct, frozen=True, kw_only=True):
    """`fit`: nothing is open that should be closed. `users`: as whom it was tried. `notes`: what
    was not tried, and why."""

    fit: bool
    users: tuple[str, ...]
    findings: tuple[ProbeFinding, ...]
    notes: tuple[str, ...] = ()
