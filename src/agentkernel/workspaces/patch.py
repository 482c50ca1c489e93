"""Changes as a patch that `git apply` takes, and as counted lines."""

from __future__ import annotations

import os
from dataclasses import dataclass

from agentkernel.workspaces import beneath
from agentkernel.workspaces.changes import Change, Item
from agentkernel.workspaces.lines import line_blocks

MOST_TEXT = 1 << 20
MOST_PATCH = 4 << 20
_GIT_TYPES = {"file": 0o100000, "symlink": 0o120000, "directory": 0o040000, "special": 0}


@dataclass(frozen=True)
class Patch:
    """`added` and `removed` count lines; None: not a text, or too long."""

    text: str
    added: int | None
    removed: int | None
    binary: bool


def make_patch(change: Change, upper: int, project: int) -> Patch:
    before = change.renamed_from or change.path
    head = [f"diff --git {quoted('a/' + before)} {quoted('b/' + change.path)}", *_modes(change)]
    try:
        old = b"" if change.renamed_from else _content(project, change.path, change.before)
        new = b"" if change.renamed_from else _content(upper, change.path, change.after)
    except OSError as exc:
        return Patch(_joined([*head, f"# {exc.strerror or 'unreadable'}"]), None, None, False)
    if old is None or new is None or not (_is_text(old) and _is_text(new)):
        names = f"{_side('a', change.before, before)} and {_side('b', change.after, change.path)}"
        return Patch(_joined([*head, f"Binary files {names} differ"]), None, None, True)
    left, right = _lines(old.decode()), _lines(new.decode())
    body, added, removed = _hunks(left, right)
    if body:
        head += [f"--- {_side('a', change.before, before)}"]
        head += [f"+++ {_side('b', change.after, change.path)}"]
    return Patch(_joined(head) + "".join(body), added, removed, False)


def quoted(path: str) -> str:
    """As git writes a path: in quotes and with escapes where it is not plain text."""
    raw = os.fsencode(path)
    if all(0x20 <= byte < 0x7F and byte not in b'"\\' for byte in raw):
        return path
    plain = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 34: '"', 92: "\\"}
    parts = []
    for byte in raw:
        if byte in plain:
            parts.append(f"\\{plain[byte]}")
        else:
            parts.append(chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}")
    return f'"{"".join(parts)}"'


def _hunks(left: list[str], right: list[str]) -> tuple[list[str], int, int]:
    blocks = line_blocks(left, right)
    out: list[str] = []
    added = removed = 0
    index = 0
    while index < len(blocks):
        last = index
        while last + 1 < len(blocks) and blocks[last + 1][0] - blocks[last][1] <= 6:
            last += 1
        group = blocks[index : last + 1]
        first, final = max(0, group[0][0] - 3), min(len(left), group[-1][1] + 3)
        shift = group[0][2] - group[0][0]
        until = final + group[-1][3] - group[-1][1]
        out.append(f"@@ -{_range(first, final)} +{_range(first + shift, until)} @@\n")
        at = first
        for i1, i2, j1, j2 in group:
            out += [_line(" ", text) for text in left[at:i1]]
            out += [_line("-", text) for text in left[i1:i2]]
            out += [_line("+", text) for text in right[j1:j2]]
            removed, added, at = removed + i2 - i1, added + j2 - j1, i2
        out += [_line(" ", text) for text in left[at:final]]
        index = last + 1
    return out, added, removed


def _range(start: int, end: int) -> str:
    count = end - start
    return f"{start + 1 if count else start},{count}"


def _line(sign: str, text: str) -> str:
    return (
        f"{sign}{text}" if text.endswith("\n") else f"{sign}{text}\n\\ No newline at end of file\n"
    )


def _lines(text: str) -> list[str]:
    """By newlines alone: what else ends a line somewhere is part of it."""
    parts = text.split("\n")
    lines = [f"{part}\n" for part in parts[:-1]]
    return [*lines, parts[-1]] if parts[-1] else lines


def _modes(change: Change) -> list[str]:
    old, new = change.before, change.after
    if change.renamed_from:
        pair = ("rename from", change.renamed_from), ("rename to", change.path)
        return ["similarity index 100%", *(f"{words} {quoted(path)}" for words, path in pair)]
    if old is None and new is not None:
        return [f"new file mode {_mode(new)}"]
    if new is None and old is not None:
        return [f"deleted file mode {_mode(old)}"]
    if old is not None and new is not None and _mode(old) != _mode(new):
        return [f"old mode {_mode(old)}", f"new mode {_mode(new)}"]
    return []


def _mode(item: Item) -> str:
    """As git has them: of a file only whether it can be executed."""
    bits = 0
    if item.type == "file":
        bits = 0o755 if item.mode & 0o100 else 0o644
    return f"{_GIT_TYPES[item.type] | bits:06o}"


def _content(root: int, path: str, item: Item | None) -> bytes | None:
    """None: more than a text would be."""
    if item is None or item.type in ("directory", "special"):
        return b""
    if item.type == "symlink":
        return os.fsencode(beneath.link_target(root, path))
    return beneath.read(root, path, MOST_TEXT)


def _is_text(content: bytes) -> bool:
    if b"\0" in content:
        return False
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _side(letter: str, item: Item | None, path: str) -> str:
    return "/dev/null" if item is None else quoted(f"{letter}/{path}")


def _joined(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
