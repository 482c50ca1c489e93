"""What agents say they did, read from what they print: ids, commands, files, usage, last words.

It comes from inside, so nothing of it is believed to be well formed, short or true: readers never
raise, keep a bounded amount, and what they report is what the agent says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from agentkernel.agents.definition import EventFormat
from agentkernel.agents.model import AgentUsage

MAX_LINE: Final = 1 << 20
MAX_COMMANDS: Final = 1000
MAX_FILES: Final = 1000


class EventReader:
    """Of what a headless agent prints, line by line.

    `conversation`: its own id of it, which {session} stands for. `commands`: those it ran.
    `files`: those it wrote. `text`: its last words. `complete`: False if something was left out.
    """

    def __init__(self, format: EventFormat) -> None:
        self.conversation: str | None = None
        self.commands: list[str] = []
        self.files: list[str] = []
        self.text = ""
        self.usage = AgentUsage()
        self.complete = True

    def feed(self, line: bytes) -> dict[str, Any] | None:
        """One line without its end; returns the event it is, None if it is none."""
        raise NotImplementedError


class AcpReader:
    """The same of an agent that speaks ACP: fed with the `params` of each session/update and with
    the result of each session/prompt."""

    def __init__(self) -> None:
        self.conversation: str | None = None
        self.commands: list[str] = []
        self.files: list[str] = []
        self.text = ""
        self.usage = AgentUsage()
        self.complete = True

    def update(self, params: Mapping[str, Any]) -> None:
        raise NotImplementedError

    def ended(self, result: Mapping[str, Any]) -> None:
        """A prompt's result."""
        raise NotImplementedError
