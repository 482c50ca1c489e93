"""A placeholder is as long as the value, has the vendor's prefix, and nothing else of it."""

from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkernel.errors import InvalidInputError
from agentkernel.network.secrets.placeholders import PREFIXES, check_value, make_placeholder


@settings(max_examples=150, deadline=None)
@given(
    prefix=st.sampled_from(("", *PREFIXES)),
    rest=st.text(string.ascii_letters + string.digits + "-_+/=.", min_size=16, max_size=200)
    | st.text("0123456789abcdef", min_size=16, max_size=64)
    | st.text("01", min_size=16, max_size=64),
)
def test_nothing_of_the_value_but_its_prefix(prefix: str, rest: str) -> None:
    value = prefix + rest
    kept = next((known for known in PREFIXES if value.startswith(known)), "")
    if len(value) - len(kept) < 12:
        kept = ""
    placeholder = make_placeholder(value)
    assert len(placeholder) == len(value) and placeholder.startswith(kept)
    own = placeholder[len(kept) :]
    assert all(a != b for a, b in zip(own, value[len(kept) :], strict=True))
    assert not any(own[at : at + 4] in value for at in range(len(own) - 3))


def test_the_shape_stays() -> None:
    assert set(make_placeholder("0123456789abcdef" * 2)) <= set("0123456789abcdef")
    assert make_placeholder("1234567890" * 2).isdecimal()


def test_another_one_each_time() -> None:
    assert len({make_placeholder("ghp_" + "a" * 36) for _ in range(100)}) == 100


def test_a_prefix_that_is_nearly_all_is_not_kept() -> None:
    assert not make_placeholder("github_pat_12345").startswith("github_pat_")
    assert make_placeholder("github_pat_123456789012").startswith("github_pat_")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("short", "at least 16"),
        ("x" * 4097, "at most 4096"),
        ("sixteen letters\r\nX-Other: 1", "printable"),
        ("sixteen letters\n", "printable"),
        ("sixteen letters\0and more", "printable"),
        ("sixteen lettersé and more", "printable"),
        (" sixteen letters and a space", "space at either end"),
        (b"\xff" * 20, "printable"),
        ("\udcff" * 20, "printable"),
    ],
)
def test_what_can_t_be_a_secret(value: str | bytes, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words) as caught:
        check_value(value)
    assert "letters" not in str(caught.value.to_dict()), "an error holds nothing of the value"
