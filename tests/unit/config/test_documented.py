"""The page about the files names every key and every section that is refused."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from agentkernel.config.reading import parse
from agentkernel.config.schema import KEYS, LATER
from agentkernel.config.widening import _JUDGES

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "reference" / "config.md").read_text()


@pytest.mark.parametrize("name", KEYS)
def test_every_key_is_there(name: str) -> None:
    keys, _, trust = PAGE.partition("## Trust")
    (row,) = [line for line in keys.splitlines() if line.startswith("| `") and f"`{name}`" in line]
    files = row.split("|")[3].strip()
    expected = {"project", "user"} if files == "both" else {files}
    assert expected == KEYS[name].files
    if name in _JUDGES:
        assert f"`{name}`" in trust or f"`{name.partition('.')[0]}.*`" in trust


def test_every_later_section_is_there() -> None:
    for section in LATER:
        assert f"`[{section}]`" in PAGE


def test_the_guide_shows_a_file_that_is_right() -> None:
    guide = (DOCS / "guides" / "project-file.md").read_text()
    examples = re.findall(r"```toml\n(.*?)```", guide, re.DOTALL)
    assert examples
    for text in examples:
        assert tomllib.loads(text)
        parse(text.encode(), "/guide/agentkernel.toml", "project", owner=0)
