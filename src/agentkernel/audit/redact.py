"""What looks like a secret never gets into a line.

A net with holes: it knows the usual shapes, not yours. Its time is bounded: it looks at a bounded
part of a text, and no pattern can run over the same characters again and again (each begins at a
fixed word or at a boundary, and takes what it has read).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

MARK: Final = "[redacted]"
CUT: Final = "…"
MAX_WORDS: Final = 64
MAX_WORD: Final = 1024
MAX_TOTAL: Final = 4096
_WINDOW: Final = 3 * MAX_WORD
# At the end of a window a secret may be cut in half, and look like none: that much is left out.
_MARGIN: Final = MAX_WORD + 128

_NAMES: Final = (
    "pass(?:word|wd|phrase|code)?|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key"
    "|signing[_-]?key|encryption[_-]?key|credential|authorization|auth|cookie|signature"
)
_VALUE: Final = r"""(?:"(?:[^"\\]|\\.)*"?|'[^']*'?|[^\s"'&;,|<>]+)"""
_SECRETS: Final = re.compile(
    rf"""
    -----BEGIN[A-Z ]{{1,40}}PRIVATE[ ]KEY-----[\s\S]*?
      (?:-----END[A-Z ]{{1,40}}PRIVATE[ ]KEY-----|\Z)
    # user:password@ or token@ of an address
    | (?P<url>://)[^/\s"'<>]{{1,1024}}(?=@)
    # Authorization: Bearer …; also with the scheme alone
    | (?P<scheme>(?i:\b(?:bearer|basic|digest|negotiate)[ \t]{{1,4}}))[^\s"',;]{{6,}}
    # --password VALUE
    | (?P<option>(?<![\w-])--?[\w-]{{0,32}}?(?i:{_NAMES})[\w-]{{0,32}}[ \t]{{1,4}})(?!-){_VALUE}
    # curl -u user:VALUE
    | (?P<user>(?<![\w-])(?:-u|--user|--proxy-user)[ \t=]{{0,4}}[^\s:"']{{1,64}}:)[^\s"']+
    # password=VALUE, "token": "VALUE"
    | (?P<name>(?i:{_NAMES})[\w.-]{{0,32}}\\?["']?[ \t]{{0,2}}(?::=|=|:)[ \t]{{0,2}}\\?)
      (?!//)(?:(?i:bearer|basic|digest|token|negotiate)[ \t]{{1,4}})?{_VALUE}
    # known shapes
    | (?<![A-Za-z0-9])(?:
        sk-[\w-]{{12,}} | [sr]k_(?:live|test)_\w{{8,}} | gh[pousr]_\w{{16,}} | github_pat_\w{{16,}}
        | glpat-[\w-]{{12,}} | xox[abeoprs]-[\w-]{{8,}} | (?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{{12,}}
        | AIza[\w-]{{24,}} | npm_\w{{24,}} | pypi-[\w-]{{16,}} | hf_\w{{16,}} | dop_v1_\w{{16,}}
        | ak_[a-z0-9]{{20}}_\w{{16,}} | SG\.[\w-]{{8,64}}\.[\w-]{{8,}} | AGE-SECRET-KEY-1\w{{16,}}
      )
    | (?<![\w-])eyJ[\w-]{{8,}}\.[\w-]{{8,}}(?:\.[\w-]*)?
    """,
    re.VERBOSE | re.ASCII,
)
# Without any of these in it a text needs no closer look.
_HINTS: Final = (
    "pass", "pwd", "secret", "token", "key", "credential", "auth", "cookie", "signature", "://",
    "bearer", "basic", "digest", "negotiate", "-u", "sk-", "k_live_", "k_test_", "gh", "_pat_",
    "glpat", "xox", "kia", "asia", "abia", "acca", "aiza", "npm_", "pypi-", "hf_", "dop_", "sg.",
    "eyj", "ak_",
)  # fmt: skip
_OPTION: Final = re.compile(rf"--?[\w-]{{0,32}}?(?i:{_NAMES})[\w-]{{0,32}}", re.ASCII)
_USER_OPTIONS: Final = frozenset({"-u", "--user", "--proxy-user"})


def text(value: str) -> str:
    """A bounded form of `value` without what looks like a secret."""
    whole = len(value) <= _WINDOW
    if not whole:
        value = value[:_WINDOW]
    if _suspicious(value):
        value = _SECRETS.sub(_replace, value)
        if not whole:
            value = value[:-_MARGIN]
    if len(value) <= MAX_WORD and whole:
        return value
    return value[:MAX_WORD] + CUT


_unsaid: ContextVar[str] = ContextVar("agentkernel_unsaid", default="")
# Shorter ones are in other words by chance.
_LEAST_WITHIN: Final = 8


@contextmanager
def without(said: str | None) -> Iterator[None]:
    """Whatever is done meanwhile is logged without what somebody said, if it is among its words."""
    token = _unsaid.set(said or "")
    try:
        yield
    finally:
        _unsaid.reset(token)


def _is_unsaid(word: str) -> bool:
    said = _unsaid.get()
    return bool(said) and (word == said or (len(said) >= _LEAST_WITHIN and said in word))


def words(argv: Sequence[str]) -> list[str]:
    """A command line; the word after an option such as `--password` is a secret too."""
    kept: list[str] = []
    room, patience = MAX_TOTAL, 4 * _WINDOW
    before = ""
    for word in argv[:MAX_WORDS]:
        shown = MARK if _is_unsaid(word) else text(word)
        if before and _OPTION.fullmatch(before) and not word.startswith("-"):
            shown = MARK
        elif before in _USER_OPTIONS and ":" in word:
            shown = shown.partition(":")[0][:64] + ":" + MARK
        before = word if len(word) <= 80 and word.startswith("-") else ""
        room -= len(shown)
        patience -= min(len(word), _WINDOW)
        if room < 0 or patience < 0:
            kept.append(CUT)
            return kept
        kept.append(shown)
    if len(argv) > MAX_WORDS:
        kept.append(CUT)
    return kept


def _suspicious(value: str) -> bool:
    low = value.lower()
    return any(hint in low for hint in _HINTS)


def _replace(match: re.Match[str]) -> str:
    kind = match.lastgroup
    return f"{match[kind]}{MARK}" if kind else MARK
