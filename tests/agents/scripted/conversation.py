"""A conversation as any dialect's request has it, and the script that is for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from .script import Script

Dialect = Literal["anthropic", "responses", "chat", "gemini"]

_DIRECTORIES = [
    re.compile(pattern)
    for pattern in (
        r"<cwd>([^<\n]+)</cwd>",
        r"[Ww]orking directory:? *`?(/[^\n`<\"]*)",
        r"working in the directory:? *`?(/[^\n`<\"]*)",
        r"Workspace Directories:[*\s-]*(/[^\n`<\"]*)",
    )
]


@dataclass
class Conversation:
    """`tools`: what is offered, its parameters by name; a tool of free text has None. `in_code`:
    the tools are called by JavaScript, which is given to the tool of that name. `results`: what
    tools answered, in order. `said`: what the model said before. `schema`: of the JSON that is
    wanted as an answer."""

    dialect: Dialect
    model: str = ""
    stream: bool = False
    system: str = ""
    tools: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    prompts: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    in_code: str = ""
    schema: dict[str, Any] | None = None

    @property
    def directory(self) -> str:
        """Where the agent works, as far as it tells its model."""
        for text in (self.system, *self.prompts):
            for pattern in _DIRECTORIES:
                if found := pattern.search(text):
                    return found[1].strip().rstrip(".")
        return ""

    @property
    def edits_by_text(self) -> bool:
        """Of an agent without tools, which reads blocks to search and replace out of the text."""
        return not self.tools and "SEARCH/REPLACE" in self.system


def example(schema: dict[str, Any]) -> Any:
    """A value that a JSON schema takes."""
    if "enum" in schema:
        return schema["enum"][0]
    match str(schema.get("type", "string")).lower():
        case "object":
            return {name: example(part) for name, part in schema.get("properties", {}).items()}
        case "array":
            return [example(schema.get("items", {}))]
        case "integer" | "number":
            return 1
        case "boolean":
            return True
    return "as the task says"


def choose(scripts: Sequence[Script], conversation: Conversation, key: str) -> Script | None:
    """The first script that is for this key and this conversation."""
    for script in scripts:
        if script.key is not None and script.key != key:
            continue
        if script.when and not any(script.when in prompt for prompt in conversation.prompts):
            continue
        return script
    return None


def flat(content: Any) -> str:
    """The text of a content that is a string, a part, or a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(filter(None, map(flat, content)))
    if isinstance(content, dict):
        for name in ("text", "content", "output"):
            if name in content:
                return flat(content[name])
    return ""
