"""A Dockerfile's text as instructions: directives, comments, continued lines, heredocs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from agentkernel.errors import InvalidInputError
from agentkernel.images.dockerfile.model import MAX_FILE_BYTES, MAX_STEPS, Heredoc
from agentkernel.images.dockerfile.words import split_words

_DIRECTIVE = re.compile(r"#\s*([A-Za-z][A-Za-z0-9]*)\s*=\s*(.+?)\s*\Z")
_DIRECTIVES = ("syntax", "escape", "check")
_HEREDOC = re.compile(r"(\d*)<<(-?)([^<\s]+)\Z")
_WITH_HEREDOCS = ("RUN", "COPY", "ADD")


@dataclass(frozen=True)
class Instruction:
    """`word` in capitals; `text` is what follows it, lines joined; `line` that of its first."""

    word: str
    text: str
    line: int
    heredocs: tuple[Heredoc, ...] = ()
    # The lines of the heredocs as they stand, to be given to a shell.
    body: str = ""


@dataclass(frozen=True)
class Text:
    instructions: tuple[Instruction, ...]
    escape: str
    notes: tuple[str, ...]


def bad(line: int, message: str, hint: str | None = None) -> InvalidInputError:
    return InvalidInputError(f"line {line}: {message}", hint=hint, line=line)


def read(content: bytes) -> Text:
    """Raises InvalidInputError with the line."""
    if len(content) > MAX_FILE_BYTES:
        raise InvalidInputError(f"the Dockerfile has more than {MAX_FILE_BYTES >> 20} MiB")
    try:
        text = content.removeprefix(b"\xef\xbb\xbf").decode()
    except UnicodeDecodeError:
        raise InvalidInputError("the Dockerfile is not UTF-8") from None
    if "\0" in text:
        raise InvalidInputError("the Dockerfile has a NUL")
    reader = _Reader(text.replace("\r\n", "\n").split("\n"))
    instructions = tuple(reader.instructions())
    return Text(instructions, reader.escape, tuple(reader.notes))


class _Reader:
    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 0
        self.escape = "\\"
        self.notes: list[str] = []

    def instructions(self) -> Iterator[Instruction]:
        self._directives()
        count = 0
        while self._at < len(self._lines):
            line = self._at + 1
            text = self._lines[self._at].strip()
            if not text or text.startswith("#"):
                self._at += 1
                continue
            count += 1
            if count > MAX_STEPS:
                raise bad(line, f"more than {MAX_STEPS} instructions")
            yield self._instruction(line)

    def _directives(self) -> None:
        """Comments of a special form, as long as nothing else has come."""
        seen: set[str] = set()
        while self._at < len(self._lines):
            found = _DIRECTIVE.match(self._lines[self._at].strip())
            name = found.group(1).lower() if found else ""
            if found is None or name not in _DIRECTIVES:
                return
            line = self._at + 1
            if name in seen:
                raise bad(line, f"the directive {name} stands there twice")
            seen.add(name)
            if name == "escape":
                if found.group(2) not in ("\\", "`"):
                    raise bad(line, "the escape character is \\ or `")
                self.escape = found.group(2)
            elif name == "syntax":
                self.notes.append(
                    f"line {line}: # syntax={found.group(2)[:100]} is ignored: no other program"
                    " reads the Dockerfile"
                )
            self._at += 1

    def _instruction(self, line: int) -> Instruction:
        pieces: list[str] = []
        continued = True
        while continued and self._at < len(self._lines):
            raw = self._lines[self._at]
            self._at += 1
            # Comments and empty lines between the parts of an instruction count for nothing.
            if pieces and (not raw.strip() or raw.lstrip().startswith("#")):
                continue
            text = raw if pieces else raw.lstrip()
            continued, text = self._continues(text)
            pieces.append(text)
        whole = "".join(pieces).strip()
        word, _, rest = whole.partition(" ")
        if "\t" in word:
            word, _, rest = whole.partition("\t")
        word = word.upper()
        rest = rest.strip()
        heredocs: tuple[Heredoc, ...] = ()
        body = ""
        if word in _WITH_HEREDOCS and "<<" in rest:
            heredocs, body = self._heredocs(rest, line)
        return Instruction(word, rest, line, heredocs, body)

    def _continues(self, text: str) -> tuple[bool, str]:
        """Whether the line ends with one escape character, and the line without it."""
        bare = text.rstrip(" \t")
        if not bare.endswith(self.escape):
            return False, text
        before = bare[:-1]
        if before.endswith(self.escape):
            return False, text
        return True, before

    def _heredocs(self, text: str, line: int) -> tuple[tuple[Heredoc, ...], str]:
        found: list[Heredoc] = []
        start = self._at
        for word in split_words(text, self.escape):
            match = _HEREDOC.match(word)
            if match is None:
                continue
            name = match.group(3)
            bare = name.replace("'", "").replace('"', "")
            if not bare:
                raise bad(line, f"{word!r} names no end of its text")
            content: list[str] = []
            while True:
                if self._at >= len(self._lines):
                    raise bad(line, f"the text of {word} has no end: no line is {bare}")
                raw = self._lines[self._at]
                self._at += 1
                if match.group(2):
                    raw = raw.lstrip("\t")
                if raw == bare:
                    break
                content.append(raw + "\n")
            found.append(Heredoc(bare, "".join(content), expands=bare == name))
        body = "".join(f"\n{raw}" for raw in self._lines[start : self._at])
        return tuple(found), body
