"""The keys that leave a program on a terminal behind."""

from __future__ import annotations

import pytest

from agentkernel.cli.terminal import Leaving


@pytest.mark.parametrize(
    ("typed", "sent", "left"),
    [
        ([b"abc"], b"abc", False),
        ([b"a\x1c\x1cb"], b"a", True),
        ([b"a\x1c", b"\x1c"], b"a", True),
        # One alone is the program's, as soon as something else is typed.
        ([b"a\x1c"], b"a", False),
        ([b"a\x1c", b"b"], b"a\x1cb", False),
        ([b"\x1c", b"b\x1c", b"c\x1c", b"\x1c"], b"\x1cb\x1cc", True),
    ],
)
def test_twice_leaves(typed: list[bytes], sent: bytes, left: bool) -> None:
    keys, passed, gone = Leaving(), b"", False
    for piece in typed:
        data, gone = keys.cut(piece)
        passed += data
    assert (passed, gone) == (sent, left)
