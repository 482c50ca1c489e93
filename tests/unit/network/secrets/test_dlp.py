"""Patterns whose work a guest could make endless are not taken."""

from __future__ import annotations

import pytest

from agentkernel.errors import InvalidInputError
from agentkernel.network.secrets.dlp import MOST_PATTERNS, Patterns, check_pattern


@pytest.mark.parametrize(
    "text",
    [
        "AKIA[0-9A-Z]{16}",
        "-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----",
        r"(?i)\bpassword\s?[:=]\s?\S{8,64}",
        r"\b\d{3}-\d{2}-\d{4}\b",
        "(?:secret|confidential)-[a-z]{3}",
        "(?:ab){3}c",
    ],
)
def test_patterns_that_are_taken(text: str) -> None:
    assert check_pattern(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("(a+)+b", "more than 1024"),
        ("a*", "matches nothing"),
        ("secret.*", "more than 1024"),
        ("(?:a{1,9}){1,9}b", "repeats what itself"),
        ("(?:a|aa){1,30}b", "repeats what itself"),
        ("a{0,99}a{0,99}b", "too many ways"),
        (r"(a)\1b", "not for guarding"),
        ("(?=a)b", "not for guarding"),
        ("x{2,2000}", "more than 1024"),
        ("(", "not a regular expression"),
        ("é", "not ASCII"),
        ("x" * 513, "at most 512"),
        ("x{99999999999}", "not a regular expression|more than"),
    ],
)
def test_patterns_that_are_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        check_pattern(text)


def test_width_and_number() -> None:
    assert Patterns(["ab{2,5}", "x"]).width == 6
    assert not Patterns(()) and Patterns(()).find(b"anything") is None
    with pytest.raises(InvalidInputError, match="patterns"):
        Patterns(["x"] * (MOST_PATTERNS + 1))
