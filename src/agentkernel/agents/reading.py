"""The definitions there are: those that come with this package, and the user's own.

They say what is run and which secrets go where, so they come from these two places alone. A file
of a project is never read as one.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from agentkernel.agents.commands import GROUPS, check_fields
from agentkernel.agents.definition import AgentDefinition
from agentkernel.errors import InvalidInputError, NotFoundError

BUILT_IN: Final = Path(__file__).parent / "definitions"
MAX_FILE: Final = 256 << 10
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_EXTENDS: Final = "extends"
_HINT: Final = "docs/reference/agent-definitions.md has every field"


class Definitions:
    """`directory`: the user's own, one file each; one of theirs stands in place of ours of that
    name. Files are read when they are asked for, so a change counts from the next session on."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def names(self) -> list[str]:
        places = (BUILT_IN, self._directory)
        found = {file.stem for place in places for file in place.glob("*.toml")}
        return sorted(name for name in found if _NAME.fullmatch(name))

    def get(self, name: str) -> AgentDefinition:
        """Raises NotFoundError, InvalidInputError."""
        path = self.path(name)
        values = _read(path)
        if _EXTENDS in values:
            values = _extended(path, values)
        try:
            definition = msgspec.convert(values, AgentDefinition)
            if definition.name != name:
                raise InvalidInputError(f"its name is {definition.name}, but the file says {name}")
            check_definition(definition)
        except (msgspec.ValidationError, InvalidInputError) as exc:
            hint = getattr(exc, "hint", None) or _HINT
            raise InvalidInputError(f"{path}: {exc}", hint=hint) from None
        return definition

    def own(self, name: str) -> bool:
        """Whether it is the user's."""
        return self.path(name).parent != BUILT_IN

    def path(self, name: str) -> Path:
        """Raises NotFoundError."""
        if name not in self.names():
            raise NotFoundError(
                f"no agent {name[:64]!a}",
                hint=f"agents are {', '.join(self.names())}; {self._directory} is for your own",
            )
        own = self._directory / f"{name}.toml"
        return own if own.is_file() else BUILT_IN / f"{name}.toml"


def check_definition(definition: AgentDefinition) -> None:
    """What its types do not say. Raises InvalidInputError."""
    for where, text in _texts(msgspec.to_builtins(definition)):
        try:
            check_fields(_without_groups(text) if where.startswith("command.") else text)
        except InvalidInputError as exc:
            raise InvalidInputError(f"{where}: {exc.message}", hint=exc.hint) from None
    command = definition.command
    lines = {name: getattr(command, name) for name in command.__struct_fields__}
    if not (command.interactive or command.headless or command.acp):
        raise InvalidInputError("command: one of interactive, headless and acp has to be there")
    for name, words in lines.items():
        said = " ".join(words)
        if "{task" in said and "headless" not in name:
            raise InvalidInputError(f"command.{name}: a task is for headless commands")
        if "{session}" in said and not name.startswith("resume_"):
            raise InvalidInputError(f"command.{name}: {{session}} is for resume_… commands")
        if "{model}" in said and name != "model":
            raise InvalidInputError(f"command.{name}: {{model}} is for command.model")
    if command.model and "{model}" not in " ".join(command.model):
        raise InvalidInputError("command.model: {model} is not in it")
    if definition.context and definition.context_words:
        raise InvalidInputError("context and context_words: one of them")
    if definition.mcp.format != "none" and not definition.mcp.file:
        raise InvalidInputError("mcp.file: it is needed with a format")
    _check_state(definition)


def _check_state(definition: AgentDefinition) -> None:
    """State is carried from one sandbox to the next: a login's files must not be part of it."""
    oauth = definition.login.oauth
    if oauth is None:
        return
    left_out = [path.rstrip("/") for path in definition.state.exclude]
    if any(_within(oauth.file, path) for path in left_out):
        return
    for path in definition.state.keep:
        if _within(oauth.file, path.rstrip("/")):
            raise InvalidInputError(
                f"state.keep: {path} has the login's file {oauth.file} in it",
                hint="name it in state.exclude",
            )


def _within(path: str, place: str) -> bool:
    return path == place or path.startswith(f"{place}/")


def _without_groups(text: str) -> str:
    return "" if text.startswith("{") and text[1:-1] in GROUPS else text


def _texts(value: Any, where: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(item, f"{where}.{key}" if where else str(key))
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item, where)


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE + 1)
        if len(content) > MAX_FILE:
            raise InvalidInputError(f"{path}: it has more than {MAX_FILE >> 10} KiB")
        return tomllib.loads(content.decode("utf-8"))
    except (OSError, ValueError, RecursionError) as exc:
        if isinstance(exc, InvalidInputError):
            raise
        raise InvalidInputError(f"{path}: {exc}", hint=_HINT) from None


def _extended(path: Path, values: dict[str, Any]) -> dict[str, Any]:
    """One of the package's own, with what differs in place of what it says. Lists are replaced."""
    base = values.pop(_EXTENDS)
    known = sorted(file.stem for file in BUILT_IN.glob("*.toml"))
    if not isinstance(base, str) or base not in known:
        raise InvalidInputError(f"{path}: extends: it names none of {', '.join(known)}", hint=_HINT)
    return _merged(_read(BUILT_IN / f"{base}.toml"), {"name": path.stem, **values})


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    made = dict(base)
    for key, value in over.items():
        below = made.get(key)
        made[key] = (
            _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
        )
    return made
