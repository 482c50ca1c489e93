"""docs/reference/agent-definitions.md: every field is on it, and what it shows works."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from agentkernel.agents import definition as words
from agentkernel.agents.commands import FIELDS, GROUPS
from agentkernel.agents.definition import AgentDefinition
from agentkernel.agents.reading import Definitions

PAGE = (Path(__file__).parents[3] / "docs/reference/agent-definitions.md").read_text()
EXAMPLES = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
PARTS = [
    part
    for part in vars(words).values()
    if isinstance(part, type) and issubclass(part, msgspec.Struct) and part.__struct_fields__
]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_every_field_is_on_the_page(part: type[msgspec.Struct]) -> None:
    tables = {"install", "command", "login", "network", "state", "mcp", "files"}
    missing = [
        name
        for name in part.__struct_fields__
        if f"`{name}`" not in PAGE and not (part is AgentDefinition and name in tables)
    ]
    assert not missing


def test_every_brace_is_on_the_page() -> None:
    assert all(f"`{{{field}}}`" in PAGE for field in FIELDS - {"secret"})
    assert all(f'`"{{{group}}}"`' in PAGE for group in GROUPS)


@pytest.mark.parametrize("text", EXAMPLES)
def test_examples_are_definitions(tmp_path: Path, text: str) -> None:
    name = "claude" if "extends" in text else re.findall(r'name = "(\w+)"', text)[0]
    (tmp_path / f"{name}.toml").write_text(text)
    assert Definitions(tmp_path).get(name).name == name


def test_versions_on_the_page_are_those_of_the_files() -> None:
    ours = Definitions(Path("/nonexistent"))
    for name in ours.names():
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{name}` |"))
        made = ours.get(name)
        assert f"| {made.version}" in row
        assert ("**not tested**" in row) is not made.tested
