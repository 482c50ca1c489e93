"""`.dockerignore` as docker reads it."""

from __future__ import annotations

import re

import pytest

from agentkernel.errors import InvalidInputError
from agentkernel.trees.ignoring import Ignore, to_expression

_CASES = [
    ("*.md", "a.md", True),
    ("*.md", "d/a.md", False),
    ("**/*.md", "d/e/a.md", True),
    ("**/*.md", "a.md", True),
    ("/a", "a", True),
    ("a/", "a/b", True),
    ("a", "ab", False),
    ("a/**", "a/b/c", True),
    ("a/**", "a", False),
    ("a/**/z", "a/z", True),
    ("a/**/z", "a/b/c/z", True),
    ("a?c", "abc", True),
    ("a?c", "a/c", False),
    ("[a-c]x", "bx", True),
    ("[^a-c]x", "bx", False),
    ("[^a-c]x", "dx", True),
    ("a\\*", "a*", True),
    ("a\\*", "ab", False),
    ("./a/../b", "b", True),
    ("# no", "# no", False),
    ("a\n!a", "a", False),
    ("a\n!a/b", "a/b", False),
    ("a\n!a/b", "a/c", True),
    ("*\n!*.go\n!sub", "sub/x", False),
    ("!a\na", "a", True),
    (".", "a", False),
    ("**", "a/b", True),
]


@pytest.mark.parametrize(("patterns", "path", "ignored"), _CASES)
def test_patterns(patterns: str, path: str, ignored: bool) -> None:
    assert Ignore(patterns.encode()).leaves_out(path) is ignored


@pytest.mark.parametrize("pattern", ["[a", "a\\", "!", "**/" * 5 + "x/**y", "[a-"])
def test_bad_patterns_have_their_line(pattern: str) -> None:
    with pytest.raises(InvalidInputError, match="line 2"):
        Ignore(f"fine\n{pattern}\n".encode())


def test_directories_are_read_only_where_an_exception_may_be() -> None:
    ignore = Ignore(b"a\nb\nc*\n!a/x/keep\n!*.go\n!c1/y")
    assert not ignore.leaves_out_all_below("a")
    assert not ignore.leaves_out_all_below("a/x")
    assert ignore.leaves_out_all_below("a/y")
    assert ignore.leaves_out_all_below("b")
    assert not ignore.leaves_out_all_below("c1")
    assert ignore.leaves_out_all_below("c2")
    assert not Ignore(b"a\n!**/keep").leaves_out_all_below("a")
    assert Ignore(b"a").leaves_out_all_below("a")


def test_many_stars_take_no_time() -> None:
    """With a plain `.*` for each this is 250 over 40."""
    assert not re.match(to_expression("*a" * 40 + "b") + r"\Z", "a" * 250)
    assert re.match(to_expression("*a" * 40 + "*") + r"\Z", "a" * 250)
