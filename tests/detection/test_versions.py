"""Wishes about versions, in every dialect that projects use."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.detection.versions import MAX_TEXT, at_least, parse_version, parse_wish


@pytest.mark.parametrize(
    ("text", "precision", "inside", "outside"),
    [
        ("3.12", 2, ["3.12.0", "3.12.9"], ["3.11.9", "3.13.0"]),
        ("3.12.4", 2, ["3.12.4", "3.12.9"], ["3.12.3", "3.13.0"]),
        ("20", 1, ["20.0.0", "20.19.1"], ["19.9.9", "21.0.0"]),
        ("v20.11.0", 1, ["20.11.0", "20.12.0"], ["20.10.0", "21.0.0"]),
        (">=3.11", 2, ["3.11.0", "4.0.0"], ["3.10.9"]),
        (">=3.9,<3.13", 2, ["3.9.0", "3.12.9"], ["3.8.9", "3.13.0"]),
        (">= 3.9 , < 3.13", 2, ["3.12.9"], ["3.13.0"]),
        (">=3.9,!=3.10.*,!=3.11.2", 2, ["3.9.1", "3.11.1"], ["3.10.4", "3.11.2"]),
        ("==3.12.*", 2, ["3.12.0"], ["3.13.0"]),
        ("~=3.11", 2, ["3.11.0", "3.99.0"], ["3.10.0", "4.0.0"]),
        ("~=3.11.2", 2, ["3.11.2"], ["3.11.1", "3.12.0"]),
        ("~> 3.2", 2, ["3.2.0", "3.9.0"], ["3.1.0", "4.0.0"]),
        ("~> 1.5.2", 2, ["1.5.9"], ["1.6.0"]),
        ("^18", 1, ["18.0.0", "18.9.0"], ["17.9.9", "19.0.0"]),
        ("^0.3.1", 2, ["0.3.9"], ["0.4.0", "0.3.0"]),
        ("^18.12 || ^20.9 || >=22", 1, ["18.12.0", "20.9.1", "23.0.0"], ["18.11.0", "21.0.0"]),
        ("~20.1", 1, ["20.1.5"], ["20.2.0"]),
        ("18.x", 1, ["18.3.0"], ["19.0.0"]),
        ("18 - 20", 1, ["18.0.0", "20.9.9"], ["21.0.0"]),
        (">17", 1, ["18.0.0"], ["17.0.1", "17.9.9"]),
        ("<=20", 1, ["20.9.9"], ["21.0.0"]),
    ],
)
def test_what_is_allowed(text: str, precision: int, inside: list[str], outside: list[str]) -> None:
    wish = parse_wish(text, precision)
    assert wish is not None and wish.text == " ".join(text.split())
    for version in inside:
        number = parse_version(version)
        assert number is not None and wish.allows(number), version
    for version in outside:
        number = parse_version(version)
        assert number is not None and not wish.allows(number), version


def test_dialects_that_differ() -> None:
    composer, npm = parse_wish("~8.1", 2, wide_tilde=True), parse_wish("~8.1", 2)
    assert composer is not None and composer.allows((8, 4, 0)) and not composer.allows((9, 0, 0))
    assert npm is not None and not npm.allows((8, 4, 0))
    newer = at_least("1.21")
    assert newer is not None and newer.allows((1, 26, 0)) and newer.text == ">=1.21"


def test_one_version_and_no_other() -> None:
    exact = parse_wish("==3.12.4", 2)
    assert exact is not None and exact.exact == (3, 12, 4) and not exact.allows((3, 12, 5))
    assert exact.allows_series((3, 12)) is False


@pytest.mark.parametrize(
    "text",
    ["", "*", "x", "latest", "system", "lts/*", "3.12 and more", ">3,<2", "9" * 9, "1" * MAX_TEXT,
     "a" * (MAX_TEXT + 1), "\x1b[31m3.12", "${VERSION}", "3.12\0"],
)  # fmt: skip
def test_what_asks_for_nothing(text: str) -> None:
    assert parse_wish(text, 2) is None


@pytest.mark.parametrize(
    ("words", "version"),
    [
        ("Python 3.11.7", (3, 11, 7)),
        ("v20.20.2", (20, 20, 2)),
        ("go version go1.26.8 linux/amd64", (1, 26, 8)),
        ('openjdk version "17.0.15" 2025-04-15', (17, 0, 15)),
        ("Lua 5.4.4  Copyright", (5, 4, 4)),
        ("Terraform v1.11.4\non linux_amd64", (1, 11, 4)),
        ("PHP 8.2.35 (cli)", (8, 2, 35)),
        ('openjdk version "21" 2023-09-19', (21, 0, 0)),
        ("no number", None),
    ],
)
def test_programs_about_themselves(words: str, version: tuple[int, int, int] | None) -> None:
    assert parse_version(words) == version


@given(st.text(max_size=300) | st.text("0123456789.<>=~^|, x*-v", max_size=300))
def test_any_text(text: str) -> None:
    wish = parse_wish(text, 2)
    if wish is not None:
        assert wish.text.isprintable() and len(wish.text) <= MAX_TEXT
        assert any(span.low < span.high for span in wish.spans)
    at_least(text)
    parse_version(text)
