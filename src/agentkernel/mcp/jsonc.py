"""JSON with comments, changed in one place: every other byte stays as it is.

What it reads: JSON, `//` and `/* */` comments, commas after the last entry. What it writes is as
the text around it: its indentation, its line ends. A change is checked by reading it again, so a
text that is written in an odd way is refused rather than spoiled.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

_BLANK = re.compile(r"(?:[ \t\r\n]|//[^\r\n]*|/\*(?:[^*]|\*(?!/))*\*/)*+")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*+"')
_WORD = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_DEEPEST = 200


class NotJsonError(ValueError):
    """The text is not JSON with comments; the message says where."""


@dataclass
class _Node:
    """A value and where it stands. `members` of an object: key, where the key begins, value."""

    value: Any
    start: int
    end: int = 0
    members: list[tuple[str, int, _Node]] = field(default_factory=list)
    # After the last entry there is a comma.
    open_ended: bool = False


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def document(self) -> _Node:
        self._at = 1 if self._text.startswith("\ufeff") else 0
        self._blank()
        node = self._value(0)
        self._blank()
        if self._at < len(self._text):
            raise self._wrong("something after the end")
        return node

    def _value(self, depth: int) -> _Node:
        if depth > _DEEPEST:
            raise self._wrong("too many levels")
        node = _Node(None, self._at)
        match self._text[self._at : self._at + 1]:
            case "{":
                self._object(node, depth)
            case "[":
                self._array(node, depth)
            case '"':
                node.value = self._string()
            case _:
                word = _WORD.match(self._text, self._at)
                if word is None:
                    raise self._wrong("no value")
                try:
                    node.value = json.loads(word[0])
                except ValueError:
                    raise self._wrong("a number that is too long") from None
                self._at = word.end()
        node.end = self._at
        return node

    def _object(self, node: _Node, depth: int) -> None:
        node.value = {}
        self._at += 1
        while self._another("}", node):
            start = self._at
            if self._text[start : start + 1] != '"':
                raise self._wrong("no key")
            key = self._string()
            self._blank()
            self._expect(":")
            self._blank()
            inner = self._value(depth + 1)
            node.members.append((key, start, inner))
            node.value[key] = inner.value

    def _array(self, node: _Node, depth: int) -> None:
        node.value = []
        self._at += 1
        while self._another("]", node):
            node.value.append(self._value(depth + 1).value)

    def _another(self, end: str, node: _Node) -> bool:
        """Steps over what separates entries; False at the end of the object or array."""
        first = self._at == node.start + 1
        self._blank()
        if not first and self._text[self._at : self._at + 1] == ",":
            self._at += 1
            self._blank()
            node.open_ended = True
        elif not first and self._text[self._at : self._at + 1] != end:
            raise self._wrong(f"neither , nor {end}")
        if self._text[self._at : self._at + 1] == end:
            self._at += 1
            return False
        node.open_ended = False
        return True

    def _string(self) -> str:
        match = _STRING.match(self._text, self._at)
        try:
            value = json.loads(match[0]) if match else None
        except ValueError:
            value = None
        if match is None or not isinstance(value, str):
            raise self._wrong("a string that is none")
        self._at = match.end()
        return value

    def _blank(self) -> None:
        match = _BLANK.match(self._text, self._at)
        assert match
        self._at = match.end()

    def _expect(self, character: str) -> None:
        if self._text[self._at : self._at + 1] != character:
            raise self._wrong(f"no {character}")
        self._at += 1

    def _wrong(self, what: str) -> NotJsonError:
        return NotJsonError(f"line {self._text.count(chr(10), 0, self._at) + 1}: {what}")


def parse(text: str) -> Any:
    """The value. Of a key that is there twice the last one counts, as everywhere."""
    return _Reader(text).document().value


def set_value(text: str, path: Sequence[str], value: Any) -> str:
    """`path` leads through objects, which are made where they are missing."""
    text = text if text.strip("\ufeff \t\r\n") else "{}\n"
    root = _Reader(text).document()
    wanted = copy.deepcopy(root.value)
    _put(wanted, path, value)
    if wanted == root.value:
        return text
    return _checked(_with(text, root, path, value), wanted)


def remove_value(text: str, path: Sequence[str]) -> str:
    """The same text if there is nothing at `path`."""
    wanted = copy.deepcopy(parse(text))
    place = wanted
    for key in path[:-1]:
        place = place.get(key) if isinstance(place, dict) else None
    if not isinstance(place, dict) or path[-1] not in place:
        return text
    del place[path[-1]]
    # A key that is there twice goes twice.
    while (found := _find(_Reader(text).document(), path)) is not None:
        text = _cut(text, *found)
    return _checked(text, wanted)


def _find(node: _Node, path: Sequence[str]) -> tuple[_Node, int, _Node] | None:
    """The object that holds it, where its key begins, and its value."""
    for key in path[:-1]:
        inner = _member(node, key)
        if inner is None:
            return None
        node = inner[1]
    last = _member(node, path[-1])
    return None if last is None else (node, *last)


def _put(value: Any, path: Sequence[str], new: Any) -> None:
    for key in path[:-1]:
        if not isinstance(value, dict):
            break
        value = value.setdefault(key, {})
    if not isinstance(value, dict):
        raise NotJsonError(f"{'.'.join(path)}: what should hold it is not an object")
    value[path[-1]] = new


def _checked(text: str, wanted: Any) -> str:
    if parse(text) != wanted:
        raise NotJsonError("it is written in a way that can't be changed in one place")
    return text


def _member(node: _Node, key: str) -> tuple[int, _Node] | None:
    """Where the key begins, and the value: the last one of this key."""
    found = [(start, inner) for name, start, inner in node.members if name == key]
    return found[-1] if found else None


def _with(text: str, root: _Node, path: Sequence[str], value: Any) -> str:
    node, rest = root, list(path)
    while rest and (found := _member(node, rest[0])) is not None:
        node = found[1]
        rest.pop(0)
    if not rest:
        dumped = _dumped(value, _indent_of(text, node.start), _unit(text, root), _line_end(text))
        return text[: node.start] + dumped + text[node.end :]
    for key in reversed(rest[1:]):
        value = {key: value}
    return _added(text, root, node, rest[0], value)


def _added(text: str, root: _Node, node: _Node, key: str, value: Any) -> str:
    """With one more member at the end of an object."""
    brace = node.end - 1
    inside = text[node.start + 1 : brace]
    # After everything that stands in it, comments too.
    end = node.start + 1 + len(inside.rstrip())
    line_end, unit = _line_end(text), _unit(text, root)
    outer = _indent_of(text, node.start)
    name = json.dumps(key, ensure_ascii=False)
    if not node.members:
        entry = f"{name}: {_dumped(value, outer + unit, unit, line_end)}"
        return f"{text[:end]}{line_end}{outer}{unit}{entry}{line_end}{outer}{text[brace:]}"
    last = node.members[-1][2].end
    comma = "" if node.open_ended else ","
    tail = "," if node.open_ended else ""
    first = node.members[0][1]
    if "\n" not in inside:
        entry = f"{name}: {json.dumps(value, ensure_ascii=False)}"
        return f"{text[:last]}{comma}{text[last:end]} {entry}{tail}{text[end:]}"
    inner = _indent_of(text, first)
    entry = f"{name}: {_dumped(value, inner, unit, line_end)}"
    gap = "" if "\n" in text[end:brace] else line_end + outer
    return f"{text[:last]}{comma}{text[last:end]}{line_end}{inner}{entry}{tail}{gap}{text[end:]}"


def _cut(text: str, node: _Node, start: int, inner: _Node) -> str:
    """Without one member, its comma, and its line if it had one to itself."""
    blank = _BLANK.match(text, inner.end)
    assert blank
    end = inner.end
    if text[blank.end() : blank.end() + 1] == ",":
        end = blank.end() + 1
    else:
        # The last one: the comma before it goes, unless it is the only one.
        before = [member for member in node.members if member[1] < start]
        if before:
            comma = _comma_after(text, before[-1][2].end)
            text = text[:comma] + text[comma + 1 :]
            start, end = start - 1, end - 1
    line = text.rfind("\n", 0, start) + 1
    if not text[line:start].strip() and (rest := re.compile(r"[ \t]*\r?\n").match(text, end)):
        return text[:line] + text[rest.end() :]
    return (
        text[:start].rstrip(" \t") + text[end:] if line else text[:start] + text[end:].lstrip(" ")
    )


def _comma_after(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    assert blank and text[blank.end()] == ","
    return blank.end()


def _dumped(value: Any, indent: str, unit: str, line_end: str) -> str:
    lines = json.dumps(value, ensure_ascii=False, indent=unit).split("\n")
    return (line_end + indent).join(lines)


def _indent_of(text: str, at: int) -> str:
    """The blank that the line of `at` begins with."""
    begin = text.rfind("\n", 0, at) + 1
    line = text[begin:at]
    return line[: len(line) - len(line.lstrip(" \t"))].removeprefix("\ufeff")


def _unit(text: str, root: _Node) -> str:
    """One level of indentation."""
    if root.members:
        first = root.members[0][1]
        begin = text.rfind("\n", 0, first) + 1
        if begin > root.start and text[begin:first] and not text[begin:first].strip(" \t"):
            return text[begin:first]
    return "  "


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
