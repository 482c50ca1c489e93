"""Output that is cut: on borders of characters, with nothing lost between pages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.errors import InvalidInputError, NotFoundError
from agentkernel.mcp import pages
from agentkernel.mcp.pages import Outputs, begin_of_character, decoded, whole
from agentkernel.mcp.progress import last_line

TEXT = st.text(alphabet=st.sampled_from("aé€🎈\n"), min_size=1)


@given(TEXT, st.integers(0, 100))
def test_a_cut_text_is_text(text: str, at: int) -> None:
    data = text.encode()
    at = min(at, len(data))
    head = data[: whole(data[:at])]
    assert at - len(head) < 4 and text.startswith(head.decode())
    tail = data[begin_of_character(data, at) :]
    assert text.endswith(tail.decode())


@given(st.binary(max_size=40))
def test_bytes_that_are_no_text_lose_at_most_the_last_character(data: bytes) -> None:
    assert len(data) - 3 <= whole(data) <= len(data)
    text, exact = decoded(data)
    assert exact == (text.encode() == data)


@given(st.text(alphabet=st.sampled_from("aé€🎈"), min_size=1), st.integers(4, 12))
def test_pages_are_the_whole(text: str, most: int) -> None:
    outputs = Outputs()
    cursor: str | None = outputs._keep("me", text.encode(), 0)
    found = ""
    while cursor is not None:
        page = outputs.page("me", cursor, most)
        assert page.text and page.exact and page.total == len(text.encode())
        found, cursor = found + page.text, page.next
    assert found == text


def test_short_output_is_shown_whole_and_not_kept() -> None:
    outputs = Outputs()
    data = b"x" * (pages.HEAD_BYTES + pages.TAIL_BYTES)
    assert outputs.shown("me", data) == (data.decode(), True, None)
    shown = outputs.shown("me", data + b"y")
    assert shown.cursor and shown.text.endswith("xy") and "1 bytes left out" in shown.text


@pytest.mark.parametrize("cursor", ["", "x", "x.", "x.-1", "x.1.2", "x.²", "x." + "9" * 40])
def test_cursors_that_are_none(cursor: str) -> None:
    with pytest.raises(InvalidInputError):
        Outputs().page("me", cursor)


def test_what_is_kept_is_bounded_and_its_owners_own() -> None:
    outputs = Outputs(most_bytes=30, most=3)
    cursors = [outputs._keep("me", bytes([65 + n]) * 10, 0) for n in range(3)]
    assert outputs.page("me", cursors[0]).text == "A" * 10  # it was read, so the next one goes
    with pytest.raises(NotFoundError):
        outputs.page("you", cursors[0])
    outputs._keep("me", b"new", 0)
    with pytest.raises(NotFoundError):
        outputs.page("me", cursors[1])
    assert outputs.page("me", cursors[0]).text == "A" * 10
    outputs._keep("me", b"x" * 31, 0)
    with pytest.raises(NotFoundError):
        outputs.page("me", cursors[0])


@given(st.binary(max_size=600))
def test_the_last_line_is_one_line(data: bytes) -> None:
    line = last_line(data)
    assert len(line) <= 200 and line.isprintable()


def test_the_last_line_of_progress_bars() -> None:
    assert last_line(b"a\nb 10%\rb 20%\r") == "b 20%"
    assert last_line("x\n\x1b[31mé\x1b[0m".encode()) == "[31mé [0m"
