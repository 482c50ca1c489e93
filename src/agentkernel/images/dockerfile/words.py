"""Words with variables, as a Dockerfile has them: quotes, escapes, `$NAME`, `${NAME:-word}`.

A shell's rules, less than a shell: nothing is executed and no pattern matched.
"""

from __future__ import annotations

from collections.abc import Mapping

from agentkernel.errors import InvalidInputError

# Results of substitution can double with each ENV: a bound for what one word may become.
MAX_WORD = 1 << 20
_SPECIAL = "@*#?-$!0123456789"
_MAX_DEPTH = 32


def expand(text: str, variables: Mapping[str, str], *, escape: str = "\\") -> str:
    """One word: quotes go, variables are put in. Raises InvalidInputError."""
    return _Expander(text, variables, escape).word()


def expand_words(text: str, variables: Mapping[str, str], *, escape: str = "\\") -> list[str]:
    """The same, cut at blanks that are not quoted, those of variables included."""
    return _Expander(text, variables, escape).words()


def expand_raw(text: str, variables: Mapping[str, str]) -> str:
    """The text of a heredoc: quotes stay, variables are put in, `\\$` and `\\\\` are escaped."""
    return _Expander(text, variables, "\\", keeps_quotes=True).word()


def split_words(text: str, escape: str = "\\") -> list[str]:
    """Cut at blanks that are not quoted; quotes, escapes and variables stay as they are."""
    words: list[str] = []
    word: list[str] = []
    quote = ""
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char == escape and quote != "'" and position < len(text):
            word += (char, text[position])
            position += 1
        elif quote:
            word.append(char)
            quote = "" if char == quote else quote
        elif char in "'\"":
            word.append(char)
            quote = char
        elif char.isspace():
            if word:
                words.append("".join(word))
                word = []
        else:
            word.append(char)
    if word:
        words.append("".join(word))
    return words


class _Expander:
    def __init__(
        self,
        text: str,
        variables: Mapping[str, str],
        escape: str,
        *,
        depth: int = 0,
        keeps_quotes: bool = False,
    ) -> None:
        self._text = text
        self._at = 0
        self._variables = variables
        self._escape = escape
        self._depth = depth
        self._keeps_quotes = keeps_quotes
        self._words: list[str] = []
        self._word: list[str] = []
        self._size = 0
        self._is_word = False

    def word(self) -> str:
        self._run(splits=False)
        return "".join(self._word)

    def words(self) -> list[str]:
        self._run(splits=True)
        self._end_word()
        return self._words

    def _run(self, *, splits: bool) -> None:
        while (char := self._peek()) is not None:
            if self._keeps_quotes:
                self._plain(char)
            elif char == "'":
                self._single_quoted()
            elif char == '"':
                self._double_quoted()
            elif char == self._escape:
                self._at += 1
                self._put(self._next() or "")
            elif char == "$":
                value = self._variable()
                if splits:
                    self._put_split(value)
                else:
                    self._put(value)
            elif splits and char.isspace():
                self._at += 1
                self._end_word()
            else:
                self._at += 1
                self._put(char)

    def _plain(self, char: str) -> None:
        if char == "$":
            self._put(self._variable())
            return
        self._at += 1
        if char == self._escape and self._peek() in ("$", self._escape):
            char = self._next() or ""
        self._put(char)

    def _single_quoted(self) -> None:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            raise self._invalid("a ' has no end")
        self._put(self._text[self._at + 1 : end])
        self._is_word = True
        self._at = end + 1

    def _double_quoted(self) -> None:
        self._at += 1
        self._is_word = True
        while (char := self._peek()) != '"':
            if char is None:
                raise self._invalid('a " has no end')
            if char == "$":
                self._put(self._variable())
                continue
            self._at += 1
            if char == self._escape:
                follower = self._peek()
                if follower is None:
                    raise self._invalid('a " has no end')
                if follower in ('"', "$", self._escape):
                    char = follower
                    self._at += 1
            self._put(char)
        self._at += 1

    def _variable(self) -> str:
        """Preconditions: a `$` is next."""
        self._at += 1
        char = self._peek()
        if char == "{":
            return self._braced()
        if char is not None and char in _SPECIAL:
            self._at += 1
            return self._variables.get(char, "")
        name = self._name()
        return self._variables.get(name, "") if name else "$"

    def _name(self) -> str:
        start = self._at
        while (char := self._peek()) is not None and (char == "_" or char.isalnum()):
            if self._at == start and char.isdigit():
                break
            self._at += 1
        return self._text[start : self._at]

    def _braced(self) -> str:
        self._at += 1
        name = self._name()
        if not name:
            name = self._next() or ""
            if not name or name not in _SPECIAL:
                raise self._invalid("${ is not followed by a name")
        mark = self._next()
        if mark is None:
            raise self._invalid("${ has no }")
        if mark == "}":
            return self._variables.get(name, "")
        empty_counts = mark == ":"
        if empty_counts:
            mark = self._next() or ""
        if not mark or mark not in "-+?":
            raise self._invalid(f"${{{name}{':' if empty_counts else ''}{mark} is not supported")
        word = self._inner()
        value = self._variables.get(name)
        is_set = bool(value) if empty_counts else value is not None
        if mark == "+":
            return word if is_set else ""
        if is_set:
            return value or ""
        if mark == "?":
            raise self._invalid(f"{name} is not set: {word or 'it has to be'}")
        return word

    def _inner(self) -> str:
        """Up to the brace that closes, worked out by the same rules."""
        if self._depth >= _MAX_DEPTH:
            raise self._invalid("variables are nested too deeply")
        start, depth, quote = self._at, 1, ""
        while (char := self._next()) is not None:
            if char == self._escape and quote != "'":
                self._at += 1
            elif quote:
                quote = "" if char == quote else quote
            elif char in "'\"" and not self._keeps_quotes:
                quote = char
            elif char == "{":
                depth += 1
            elif char == "}":
                depth -= 1
                if not depth:
                    inner = self._text[start : self._at - 1]
                    return _Expander(
                        inner,
                        self._variables,
                        self._escape,
                        depth=self._depth + 1,
                        keeps_quotes=self._keeps_quotes,
                    ).word()
        raise self._invalid("${ has no }")

    def _put(self, text: str) -> None:
        self._size += len(text)
        if self._size > MAX_WORD:
            raise self._invalid(f"it becomes longer than {MAX_WORD} characters")
        self._word.append(text)
        self._is_word = self._is_word or bool(text)

    def _put_split(self, text: str) -> None:
        pieces = text.split()
        if not pieces:
            if text:
                self._end_word()
            return
        if text[0].isspace():
            self._end_word()
        for number, piece in enumerate(pieces):
            if number:
                self._end_word()
            self._put(piece)
        if text[-1].isspace():
            self._end_word()

    def _end_word(self) -> None:
        if self._is_word:
            self._words.append("".join(self._word))
        self._word, self._is_word = [], False

    def _peek(self) -> str | None:
        return self._text[self._at] if self._at < len(self._text) else None

    def _next(self) -> str | None:
        char = self._peek()
        self._at += 1
        return char

    def _invalid(self, why: str) -> InvalidInputError:
        return InvalidInputError(f"{self._text[:200]!r} can't be worked out: {why}")
