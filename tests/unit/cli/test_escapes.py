"""What a program inside may say to the user's terminal."""

from __future__ import annotations

import pytest

from agentkernel.cli.escapes import Level, Modes, Screen

DRAWS = (
    b"plain text, \xc3\xa4 \xe2\x82\xac \xf0\x9f\x99\x82\r\n\t",
    b"\x1b[31;1mred\x1b[0m", b"\x1b[2J\x1b[H", b"\x1b[38:2::1:2:3m", b"\x1b[10;20r",
    b"\x1b[?1049h\x1b[?25l", b"\x1b7\x1b8\x1bM\x1b(B", b"\x1b[5 q",
    b"\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x07", b"\x1b]11;#000000\x07",
)  # fmt: skip
ASKS = (
    b"\x1b[c", b"\x1b[>c", b"\x1b[6n", b"\x1b[?1$p", b"\x1b[>q", b"\x1b[?u", b"\x1b]11;?\x1b\\",
    b"\x1bP+q544e\x1b\\", b"\x1bP$qm\x1b\\", b"\x1b[14t", b"\x1b[?2004h", b"\x1b[?1002;1006h",
    b"\x1b[>1u", b"\x1b]0;title\x07", b"\x05", b"\x1b[>4;2m",
)  # fmt: skip
NEVER = (
    b"\x1b]52;c;aGk=\x07", b"\x1b]52;c;?\x1b\\", b"\x1b]1337;File=x:AAAA\x07", b"\x1b[21t",
    b"\x1b[20t", b"\x1b[021t", b"\x1b[0000000000021t", b"\x1b[21:1t", b"\x1bPtmux;x\x1b\\",
    b"\x1b_Gf=100,t=f;L2V0Yw==\x1b\\", b"\x1b^pm\x1b\\", b"\x1bXsos\x1b\\", b"\x1bPq#0\x1b\\",
    b"\x1b]7;file:///\x07", b"\x1b]777;notify;a;b\x07", b"\xc2\x9d52;c;aGk=\xc2\x9c"[:2],
    b"\xc2\x9b", b"\xc2\x90", b"\x1b]52;c;aGk=\x18", b"\x1b]0;a\x1a",
)  # fmt: skip


def passed(data: bytes, level: Level, size: int) -> bytes:
    screen = Screen(level)
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    return b"".join(screen.pass_on(piece) for piece in pieces)


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_drawing_passes(size: int) -> None:
    for data in DRAWS:
        for level in ("live", "shown"):
            assert passed(data + b"|", level, size) == data + b"|"


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_questions_pass_while_somebody_is_there_to_hear_the_answer(size: int) -> None:
    for data in ASKS:
        assert passed(b"a" + data + b"b", "live", size) == b"a" + data + b"b"
        assert passed(b"a" + data + b"b", "shown", size) == b"ab", data


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_what_reaches_beyond_the_screen_never_passes(size: int) -> None:
    for data in NEVER:
        for level in ("live", "shown"):
            assert passed(b"a" + data + b"b", level, size) == b"ab", data


def test_a_string_that_is_broken_off_does_not_hide_what_follows() -> None:
    broken = b"\x1b]52;c;aGk=\x1b]52;c;aGk=\x07x\x1b[31my"
    assert passed(broken, "live", 1000) == b"x\x1b[31my"


@pytest.mark.parametrize("end", [b"\x07", b"\x1b\\"])
def test_one_without_an_end_takes_a_bounded_amount_and_is_left_out(end: bytes) -> None:
    screen = Screen()
    shown = b"".join(screen.pass_on(b"\x1b]0;" if n == 0 else b"x" * 4096) for n in range(64))
    assert shown == b"" and len(screen._rest) <= 1 << 17
    assert screen.pass_on(b"x" + end + b"after") == b"after"


def test_what_a_program_has_set_is_taken_back() -> None:
    modes = Modes()
    data = b"\x1b[?1049h\x1b[?25l\x1b[?2004h\x1b[?1002;1006h\x1b[>1u\x1b[>4;2m\x1b[?2004l\x1b="
    for at in range(len(data)):
        modes.feed(data[at : at + 1])
    undo = modes.undo()
    for part in (b"\x1b[<u", b"\x1b[>4m", b"\x1b[?25h", b"\x1b[?1002l", b"\x1b[?1006l", b"\x1b>"):
        assert part in undo
    screen = Screen()
    assert screen.pass_on(data) == data and screen.undo(left=True) == screen.undo() == undo
    assert Screen().undo(left=True).endswith(b"\r\n")
    redo = modes.redo()
    assert redo.startswith(b"\x1b[?1049h") and redo.endswith(b"\x1b=\x1b[>1u")
    again = Modes()
    again.feed(redo)
    assert (again.undo(), again.redo()) == (undo, redo)
    assert b"2004" not in undo and undo.endswith(b"\x1b[?1049l\x1b[0m")
    modes.feed(b"\x1b[<u\x1b[?1049l\x1b[?25h\x1b[?1002;1006l\x1b[>4m\x1b>")
    assert modes.undo() == b"" == Modes().undo() == modes.redo()


@pytest.mark.parametrize("begin", [b"\x1b]0;", b"\x1b]52;c;", b"\x1b[1;", b"\x1bPq"])
def test_a_sequence_in_single_bytes_is_not_looked_at_again_and_again(begin: bytes) -> None:
    """Which took a minute for one of 64 KiB; here it is the work that is counted."""
    seen = 0

    class Counted(Screen):
        def _sequence(self, data: bytes, at: int) -> tuple[int, bool]:
            nonlocal seen
            seen += 1
            return super()._sequence(data, at)

    screen = Counted()
    assert screen.pass_on(begin) == b""
    for _ in range(10_000):
        assert screen.pass_on(b"1") == b""
    assert seen < 10
    end = b"m" if begin[1:2] == b"[" else b"\x1b\\"
    shown = screen.pass_on(end + b"after")
    assert shown.endswith(b"after") and seen < 20
