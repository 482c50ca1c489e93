"""A definition's command lines, variables and paths, with their fields filled in.

Nothing here is given to a shell: a task, a model or a path is always one word, whatever is in it.
Where a task is read from stdin the command line is `sh -c SCRIPT FILE WORDS…`, with a script that
is always the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from agentkernel.agents.definition import AgentDefinition
from agentkernel.errors import InvalidInputError, UnsupportedError

Mode = Literal["headless", "interactive", "acp"]
MAX_WORD: Final = (128 << 10) - 1
"""Bytes of one word of a command line: the kernel allows no more (MAX_ARG_STRLEN)."""
FIELD: Final = re.compile(r"\{([a-z_]+)(?::([A-Za-z0-9_-]+))?(?::last([0-9]{1,3}))?\}")
"""A field in braces. JSON's and TOML's braces are none: what follows them is no letter."""
FIELDS: Final = frozenset(
    ("kit", "version", "home", "workspace", "task", "task_file", "model", "session", "context",
     "mcp", "secret")
)  # fmt: skip
GROUPS: Final = ("unattended", "model_words", "context_words", "mcp_words", "words")
"""Words that stand for several, or for none. One that has no place of its own in a command line
goes to its end, or to before the word "--" if there is one."""
_FROM_STDIN: Final = 'exec "$@" <"$0"'


class Fill(msgspec.Struct, frozen=True, kw_only=True):
    """What fields stand for. `context`, `mcp`, `task_file`: paths inside. `secrets`: variables and
    their placeholders, never values."""

    kit: str
    version: str
    home: str
    workspace: str
    task: str | None = None
    task_file: str = ""
    model: str | None = None
    session: str | None = None
    context: str = ""
    mcp: str = ""
    secrets: Mapping[str, str] = {}


def command_line(
    definition: AgentDefinition,
    mode: Mode,
    fill: Fill,
    *,
    resume: bool = False,
    attended: bool = False,
    words: Sequence[str] = (),
    mcp_words: Sequence[str] = (),
) -> list[str]:
    """The words to run. Raises UnsupportedError, InvalidInputError."""
    raise NotImplementedError


def task_goes(
    definition: AgentDefinition, *, resume: bool = False
) -> Literal["word", "file", "stdin"]:
    """How its headless mode gets a task: as a word, from {task_file}, or from that on stdin."""
    raise NotImplementedError


def environment(definition: AgentDefinition, fill: Fill) -> dict[str, str]:
    """Variables for every process of it, without PATH: see `path_entries`."""
    raise NotImplementedError


def path_entries(definition: AgentDefinition, fill: Fill) -> list[str]:
    """Directories that stand first in PATH."""
    raise NotImplementedError


def install_steps(definition: AgentDefinition, fill: Fill) -> list[list[str]]:
    """Commands that make its kit at `fill.kit`."""
    raise NotImplementedError


def install_environment(definition: AgentDefinition, fill: Fill) -> dict[str, str]:
    raise NotImplementedError


def check_command(definition: AgentDefinition, fill: Fill) -> list[str]:
    """Empty: nothing is checked."""
    raise NotImplementedError


def home_path(path: str, home: str) -> str:
    """ "~/x" → HOME/x; what begins otherwise is as it is."""
    raise NotImplementedError


def filled(text: str, fill: Fill) -> str:
    """`text` with its fields filled in; a secret that is not bound is empty. Raises
    InvalidInputError for a field that is not known, or one without a value."""
    raise NotImplementedError
