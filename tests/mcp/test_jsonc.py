"""JSON with comments, changed in one place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.mcp.jsonc import NotJsonError, parse, remove_value, set_value

ENTRY = {"command": "/bin/agentkernel", "args": ["mcp"]}
PATH = ("mcpServers", "agentkernel")

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from(["a", "b", "mcpServers", "c d"]), VALUES, max_size=4)
BLANKS = st.sampled_from(["", " ", "\n", "\t", "\r\n", "// note\n", "/* a \n b */", "/**/ "])


def written(value: Any) -> st.SearchStrategy[str]:
    """A value as somebody may have written it."""
    if not isinstance(value, dict | list):
        return st.booleans().map(lambda plain: json.dumps(value, ensure_ascii=plain))
    begin, end = "{}" if isinstance(value, dict) else "[]"
    entries = []
    for entry in value:
        words: list[Any] = [BLANKS]
        if isinstance(value, dict):
            words += [
                st.just(json.dumps(entry)),
                BLANKS,
                st.just(":"),
                BLANKS,
                written(value[entry]),
            ]
        else:
            words.append(written(entry))
        entries.append(st.tuples(*words, BLANKS).map("".join))
    comma = st.sampled_from(["", ","]) if entries else BLANKS
    inside = st.tuples(*entries).map(",".join)
    return st.tuples(st.just(begin), inside, comma, BLANKS, st.just(end)).map("".join)


@given(st.data())
def test_anything_written_is_read_as_meant(data: st.DataObject) -> None:
    value = data.draw(VALUES)
    assert parse(data.draw(BLANKS) + data.draw(written(value)) + data.draw(BLANKS)) == value


@given(st.data())
def test_what_is_set_is_there_and_the_rest_stays(data: st.DataObject) -> None:
    value = data.draw(OBJECTS)
    if not isinstance(value.get("mcpServers", {}), dict):
        value["mcpServers"] = {}
    text = data.draw(written(value))
    after = set_value(text, PATH, ENTRY)
    expected = json.loads(json.dumps(value))
    expected.setdefault("mcpServers", {})["agentkernel"] = ENTRY
    assert parse(after) == expected
    assert list(parse(after)) == list(expected), "the order is kept"
    for comment in ("// note", "/* a \n b */", "/**/"):
        assert after.count(comment) >= text.count(comment)
    assert set_value(after, PATH, ENTRY) == after, "twice is once"
    without = remove_value(after, PATH)
    del expected["mcpServers"]["agentkernel"]
    assert parse(without) == expected
    assert remove_value(without, PATH) == without


@given(st.text(alphabet='{}[]",:/*\\ \n\ta1-.e\ufeff', max_size=40))
def test_any_text_is_json_or_not(text: str) -> None:
    try:
        parse(text)
    except NotJsonError as exc:
        assert str(exc).startswith("line ")
        if text.strip("\ufeff \t\r\n"):
            with pytest.raises(NotJsonError):
                set_value(text, PATH, ENTRY)


@pytest.mark.parametrize(
    "text",
    ["{", '{"a"}', '{"a":}', '{"a":1,,}', "[1 2]", "{a:1}", '"\n"', "01", "+1", "nul", "/* x",
     "[" * 300 + "]" * 300, '{"a":1}}', "{,}", "[,]", "9" * 5000],
)  # fmt: skip
def test_what_is_not_json(text: str) -> None:
    with pytest.raises(NotJsonError):
        parse(text)


def test_it_looks_like_what_is_around_it() -> None:
    before = """\
// mine
{
    "theme": "dark", // of course
    "mcpServers": {
        /* the first */
        "other": { "command": "other" } // and only
    },
}
"""
    after = set_value(before, PATH, ENTRY)
    assert (
        after
        == """\
// mine
{
    "theme": "dark", // of course
    "mcpServers": {
        /* the first */
        "other": { "command": "other" }, // and only
        "agentkernel": {
            "command": "/bin/agentkernel",
            "args": [
                "mcp"
            ]
        }
    },
}
"""
    )
    assert remove_value(after, PATH) == before


def test_line_ends_and_tabs_are_kept() -> None:
    after = set_value('{\r\n\t"a": 1\r\n}\r\n', PATH, ENTRY)
    assert "\n" not in after.replace("\r\n", "") and '\r\n\t"mcpServers": {\r\n\t\t"' in after


def test_a_key_that_is_there_twice() -> None:
    text = '{"mcpServers": {"agentkernel": 1, "x": 2, "agentkernel": 3}}'
    assert parse(set_value(text, PATH, ENTRY))["mcpServers"] == {"agentkernel": ENTRY, "x": 2}
    assert parse(remove_value(text, PATH)) == {"mcpServers": {"x": 2}}


@pytest.mark.parametrize("text", ["[]", "1", '{"mcpServers": 5}', '{"mcpServers": []}'])
def test_no_place_for_it(text: str) -> None:
    with pytest.raises(NotJsonError):
        set_value(text, PATH, ENTRY)
    assert remove_value(text, PATH) == text


@pytest.mark.parametrize("text", ["", " \n", "\ufeff"])
def test_an_empty_file_is_an_empty_object(text: str) -> None:
    assert parse(set_value(text, PATH, ENTRY)) == {"mcpServers": {"agentkernel": ENTRY}}
