"""The definitions there are: those that come with this package, and the user's own."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

import msgspec

from agentkernel.agents.definition import AgentDefinition
from agentkernel.errors import InvalidInputError, NotFoundError

BUILT_IN: Final = Path(__file__).parent / "definitions"


class Definitions:
    """`directory`: the user's own, one file each; one of theirs stands in place of ours of that
    name. Files are read when they are asked for, so a change counts from the next session on."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def names(self) -> list[str]:
        places = (BUILT_IN, self._directory)
        return sorted({file.stem for place in places for file in place.glob("*.toml")})

    def get(self, name: str) -> AgentDefinition:
        """Raises NotFoundError, InvalidInputError."""
        if name not in self.names():
            raise NotFoundError(
                f"no agent {name[:64]!a}", hint=f"agents are {', '.join(self.names())}"
            )
        own = self._directory / f"{name}.toml"
        path = own if own.is_file() else BUILT_IN / f"{name}.toml"
        try:
            values = tomllib.loads(path.read_text("utf-8"))
            return msgspec.convert(values, AgentDefinition)
        except (OSError, ValueError, msgspec.ValidationError) as exc:
            raise InvalidInputError(f"{path}: {exc}") from None
