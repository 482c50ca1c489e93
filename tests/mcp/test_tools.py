"""What a client is told of the tools, kept as a snapshot; and what none of them may have.

python -m tests.mcp.test_tools      writes tools.json anew (from the clone's root)
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentkernel.cli.main import build_parser
from agentkernel.cli.mcp import operator_of
from agentkernel.errors import InvalidInputError
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.mcp.operator import Operator
from agentkernel.mcp.registry import TOOLS
from agentkernel.mcp.service import described, owner_name
from agentkernel.mcp.tools_files import content_bytes, image_type
from agentkernel.mcp.tools_text import SearchFiles, parse_matches, replaced, search_command

SNAPSHOT = Path(__file__).parent / "tools.json"


def current() -> list[dict[str, Any]]:
    return [
        described(tool).model_dump(mode="json", by_alias=True, exclude_none=True)
        for tool in TOOLS.values()
    ]


def test_the_tools_are_as_they_were() -> None:
    assert json.loads(SNAPSHOT.read_text()) == current(), (
        "if it is meant: python -m tests.mcp.test_tools, and say so in the changelog"
    )


def test_the_issues_tools_are_there() -> None:
    assert {"run", "create", "exec", "list", "info", "remove", "start", "stop", "output"} <= set(
        TOOLS
    )
    assert {"job_start", "job_list", "job_output", "job_kill"} <= set(TOOLS)
    assert {"read_file", "write_file", "edit_file", "list_files", "search_files"} <= set(TOOLS)


def names_in(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return set().union(*(names_in(entry) for entry in schema))
    if not isinstance(schema, dict):
        return set()
    own = set(schema.get("properties", {}))
    return own.union(*(names_in(entry) for entry in schema.values()))


# What of a sandbox's spec a model may choose: variables, which a command could set as well.
HARMLESS = {"env"}


def test_no_tool_lets_a_model_widen_its_policy() -> None:
    spec = {field.name for field in msgspec.structs.fields(SandboxSpec)} - HARMLESS
    more = {"network", "allow", "secret", "secrets", "volume", "volumes", "mount", "mounts",
            "owner", "memory", "disk", "output", "ttl", "ttl_seconds", "idle_seconds",
            "on_ttl", "on_idle", "workspace", "host_path", "privileged", "capabilities",
            "seccomp"}  # fmt: skip
    for tool in current():
        names = names_in(tool["inputSchema"])
        assert not names & (spec | more), tool["name"]
        assert tool["inputSchema"]["additionalProperties"] is False
    # The check finds what it looks for.
    assert names_in({"properties": {"a": {"properties": {"image": {}}}}}) & spec == {"image"}


def test_schemas_are_plain() -> None:
    validator: Any = import_module("jsonschema").Draft202012Validator  # it has no types
    for tool in current():
        for schema in (tool["inputSchema"], tool.get("outputSchema", {"type": "object"})):
            validator.check_schema(schema)
            assert schema["type"] == "object"
            text = json.dumps(schema)
            assert "$ref" not in text and '"null"' not in text and "anyOf" not in text
        for name, value in tool["inputSchema"]["properties"].items():
            assert "description" in value or name in ("content", "ignore_case"), (
                tool["name"],
                name,
            )
        assert len(tool["description"]) > 40
        hints = tool["annotations"]
        assert hints["openWorldHint"] is False
        assert not (hints["readOnlyHint"] and hints["destructiveHint"])
    assert {t["name"] for t in current() if t["annotations"]["readOnlyHint"]} == {
        "info", "list", "output", "job_list", "job_output", "read_file", "list_files",
        "search_files",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("client", "owner"),
    [
        ("claude-code", "mcp:claude-code"),
        ("Claude Code (v2)!", "mcp:claude-code-v2"),
        ("", "mcp:unknown"),
        ("../../local", "mcp:local"),
        ("é\r\nX: y", "mcp:x-y"),
        ("a" * 500, "mcp:" + "a" * 60),
        ("///", "mcp:unknown"),
    ],
)
def test_owners_of_clients(client: str, owner: str) -> None:
    assert owner_name(client) == owner


def test_volumes_are_the_operators() -> None:
    options = build_parser().parse_args(["mcp", "-c", "none", "--volume", "notes:/notes"])
    assert operator_of(options).spec["volumes"] == ["notes:/notes"]
    assert "volume" not in json.dumps([tool["inputSchema"] for tool in current()])


def test_a_models_variables_go_on_top_of_its_operators() -> None:
    operator = Operator(spec={"env": {"A": "1", "B": "2"}, "pids": 9})
    assert operator.spec_with({"B": "3"}) == {"env": {"A": "1", "B": "3"}, "pids": 9}
    assert operator.spec["env"] == {"A": "1", "B": "2"}


@pytest.mark.parametrize(
    ("data", "old", "new", "all", "after"),
    [
        (b"a b a", "b", "c", False, b"a c a"),
        (b"a b a", "a", "c", True, b"c b c"),
        (b"\xff a", "a", "\u00e9", False, b"\xff \xc3\xa9"),
        (b"x\r\ny", "x\r\ny", "z", False, b"z"),
        (b"abc", "b", "", False, b"ac"),
    ],
)
def test_edits(data: bytes, old: str, new: str, all: bool, after: bytes) -> None:
    assert replaced(data, old, new, all=all)[0] == after


@pytest.mark.parametrize(
    ("data", "old", "new", "all", "words"),
    [
        (b"a a a", "a", "b", False, "3 times"),
        (b"abc", "x", "y", False, "does not stand"),
        (b"abc", "x", "y", True, "does not stand"),
        (b"abc", "b", "b", False, "the same"),
        (b"abc", "b", "\ud800", False, "text"),
        (b"x" * ((8 << 20) + 1), "x", "y", True, "8 MiB"),
    ],
)
def test_edits_that_are_refused(data: bytes, old: str, new: str, all: bool, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        replaced(data, old, new, all=all)


def test_a_hint_for_other_line_ends() -> None:
    with pytest.raises(InvalidInputError) as caught:
        replaced(b"a\r\nb", "a\nb", "c", all=False)
    assert "\\r\\n" in (caught.value.hint or "")


def test_what_is_looked_for_is_words() -> None:
    wanted = SearchFiles(sandbox="s", path="/-x", pattern="-rf; touch /x", glob="*.py", limit=5)
    words = search_command(wanted)
    assert words[-4:] == ["-e", "-rf; touch /x", "--", "/-x"] and "--include=*.py" in words
    with pytest.raises(InvalidInputError):
        search_command(SearchFiles(sandbox="s", path="-exec", glob="x"))


def test_matches_of_any_bytes() -> None:
    output = b"/a\xff\x0012:x:y\n/b\x00z\nBinary\n/c\x003:" + b"l" * 500 + b"\n/cut\x004:h"
    found = parse_matches(output, lines=True)
    assert [(match.path, match.line) for match in found] == [("/a\ufffd", 12), ("/c", 3)]
    assert found[0].text == "x:y" and found[1].text is not None and len(found[1].text) == 401
    assert [match.path for match in parse_matches(b"/a\0/b\n\0/cut", lines=False)] == ["/a", "/b\n"]


@pytest.mark.parametrize(
    ("content", "encoding", "data"),
    [("aGk=", "base64", b"hi"), ("\u00e9", "utf-8", b"\xc3\xa9"), ("", "base64", b"")],
)
def test_content(content: str, encoding: str, data: bytes) -> None:
    assert content_bytes(content, encoding) == data


@pytest.mark.parametrize(
    ("content", "encoding"), [("a", "base64"), ("a\n=", "base64"), ("\ud800", "utf-8")]
)
def test_content_that_is_none(content: str, encoding: str) -> None:
    with pytest.raises(InvalidInputError):
        content_bytes(content, encoding)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n...", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\0\0\0\0WEBP", "image/webp"),
        (b"RIFF\0\0\0\0WAVE", None),
        (b"", None),
        (b"<svg/>", None),
    ],
)
def test_pictures(data: bytes, kind: str | None) -> None:
    assert image_type(data) == kind


if __name__ == "__main__":
    SNAPSHOT.write_text(json.dumps(current(), indent=1, ensure_ascii=False) + "\n")
    sys.stdout.write(f"written: {SNAPSHOT}\n")
