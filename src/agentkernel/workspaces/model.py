"""What a workspace is: a directory of the host, and how the sandbox has it.

cow   changes are the sandbox's own; the directory is below them and stays as it is
ro    it can be read and not changed
rw    it is the directory itself: a hole in the sandbox, by name
"""

from __future__ import annotations

import os
import time
from typing import Literal

import msgspec

from agentkernel.errors import InvalidInputError

Mode = Literal["cow", "ro", "rw"]
MODES: tuple[Mode, ...] = ("cow", "ro", "rw")
NONE = "none"
TARGET = "/workspace"
"""Where it is inside unless somebody says else, and where commands begin."""
UPPER_INDEX = 1000
"""Which of a sandbox's uppers holds the changes of a `cow` one; an image's are 0, 1, …"""

_MOST_PATH = 4096
_FILE_CLOCK = 5  # CLOCK_REALTIME_COARSE, for which Python has no name
_WORDS = {"cow": "copy-on-write", "ro": "read-only", "rw": "the directory itself"}


class Workspace(msgspec.Struct, frozen=True, kw_only=True):
    """`path` is absolute and leads through no link. `secrets`: files that look like secrets are
    shown, too; `ignored`: those that git ignores. `branch`: the git branch that it is; then
    `repository` is where git has it, `commit` what it was when the sandbox was made, and with
    `own_tree` its files are not those at `path`, but a checkout beside the sandbox's.
    `began_ns`: when the sandbox was made; what the host changed later is not the base of the
    guest's changes. `target`: where it is inside; see `targets`."""

    path: str
    mode: Mode = "cow"
    secrets: bool = False
    ignored: bool = True
    branch: str = ""
    repository: str = ""
    commit: str = ""
    own_tree: bool = False
    began_ns: int = 0
    target: str = TARGET

    @property
    def words(self) -> str:
        branch = f", branch {self.branch}" if self.branch else ""
        place = "" if self.target == TARGET else f", at {self.target}"
        return f"{_WORDS[self.mode]}: {self.path}{branch}{place}"


def file_clock_ns() -> int:
    """What the kernel would write as a file's time now."""
    return time.clock_gettime_ns(_FILE_CLOCK)


def parse_workspace(text: str) -> tuple[str, Mode] | None:
    """`DIR[:cow|ro|rw]`, or `none`. The directory as it is written; a colon may be part of it."""
    if text == NONE:
        return None
    path, colon, word = text.rpartition(":")
    mode: Mode = "cow"
    if colon and word in MODES:
        mode = next(known for known in MODES if known == word)
    else:
        path = text
    if not path or "\0" in path or len(path) > _MOST_PATH:
        raise InvalidInputError(
            f"{text[:64]!r} is not a workspace", hint="DIR, DIR:cow, DIR:ro, DIR:rw, or none"
        )
    if not os.path.isabs(path):
        raise InvalidInputError(
            f"the workspace {path!r} is not an absolute path",
            hint="the daemon has no directory of yours to begin at",
        )
    return path, mode
