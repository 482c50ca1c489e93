"""What a model and its client can feed: arguments of tools, output of their commands, files."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from agentkernel.mcp import (  # noqa: F401 (they add themselves)
    jsonc,
    tools_commands,
    tools_files,
    tools_jobs,
    tools_sandboxes,
    tools_text,
)
from agentkernel.mcp.pages import Outputs
from agentkernel.mcp.progress import last_line
from agentkernel.mcp.registry import TOOLS
from agentkernel.mcp.tools_text import parse_matches, replaced

from .making import leaves
from .target import Target

_NAMES = sorted({name for tool in TOOLS.values() for name in tool.arguments.__struct_fields__})
_values = st.one_of(
    leaves,
    st.text(max_size=8),
    st.text(alphabet=st.characters(categories=["Cs"]), min_size=1, max_size=2),
    st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
    st.floats(),
    st.integers(-(2**70), 2**70),
)
_arguments = st.one_of(_values, st.dictionaries(st.sampled_from([*_NAMES, "image"]), _values))


def read_arguments(given: tuple[str, Any]) -> None:
    name, arguments = given
    TOOLS[name].read(arguments)


def read_output(given: tuple[bytes, int, str]) -> None:
    data, times, cursor = given
    outputs = Outputs()
    shown = outputs.shown("me", data * times)
    last_line(data)
    parse_matches(data, lines=True)
    parse_matches(data, lines=False)
    total = 0
    while shown.cursor is not None and total < len(data) * times:
        page = outputs.page("me", shown.cursor)
        assert page.text
        total = page.offset + 1
        shown = shown._replace(cursor=page.next)
    outputs.page("me", cursor)


def edit_file(given: tuple[bytes, str, str, bool]) -> None:
    data, old, new, all = given
    after, count = replaced(data, old, new, all=all)
    assert count > 0 and (after != data or not new)


def change_json(text: str) -> None:
    jsonc.remove_value(jsonc.set_value(text, ("a", "b"), {"c": [1]}), ("a", "b"))


_json = st.text(alphabet='{}[]",:/*\\ \n\ta1-.eu0\ufeff', max_size=60)
TARGETS = [
    Target("tool-arguments", st.tuples(st.sampled_from(sorted(TOOLS)), _arguments), read_arguments),
    Target(
        "tool-output",
        st.tuples(st.binary(max_size=64), st.integers(0, 2000), st.text(max_size=30)),
        read_output,
    ),
    Target(
        "tool-edit",
        st.tuples(st.binary(max_size=20), st.text(max_size=3), st.text(max_size=3), st.booleans()),
        edit_file,
    ),
    Target("jsonc", _json, change_json, also=(jsonc.NotJsonError,)),
]
