"""What a program inside may say to the user's terminal, and what is left out on the way.

A terminal obeys what it is shown: colours and the cursor, but also "put this on the clipboard",
"tell me your title", "show this file". Letting a program have the terminal means letting it draw;
the rest is left out:

live    a session at work: no clipboard, no files or images, no reports of texts that the program
        has set itself. Questions that programs need (size, colours, device) pass: the answers are
        typed, and go inside.
shown   a recording: besides, no question at all, since nobody is there to read the answer, which
        would be typed into the user's shell; no title, no bell, no mouse, focus or keyboard modes.
"""

from __future__ import annotations

import re
from typing import Final, Literal

Level = Literal["live", "shown"]

_ESC: Final = 0x1B
_MOST: Final = 1 << 16
"""Of one sequence: a longer one is left out."""
# Where something begins that may have to be left out: ESC, a C1 control in UTF-8, ENQ.
_BEGIN: Final = re.compile(rb"[\x1b\x05]|\xc2[\x80-\x9f]|\xc2\Z")
_CSI: Final = re.compile(rb"\x1b\[([<=>?]?)([0-9;:]*)([ -/]*)([@-~])")
_CSI_PART: Final = re.compile(rb"\x1b\[[ -?]*\Z")
# OSC, DCS, SOS, PM, APC: until ST, or BEL; CAN and SUB break them off.
_STRING: Final = re.compile(
    rb"\x1b([\]PX^_])([^\x07\x18\x1a\x1b]*)(\x07|\x1b\\|[\x18\x1a]|(?=\x1b[^\\]))"
)
_STRINGS: Final = (b"]", b"P", b"X", b"^", b"_")
_ENDS: Final = re.compile(rb"[\x07\x18\x1a\x1b]")
_WITHIN_CSI: Final = re.compile(rb"[ -?]*")
_OTHER: Final = re.compile(rb"\x1b(?:[ -/]+[0-~]|[0-OQ-WYZ\\`-~])")
_OTHER_PART: Final = re.compile(rb"\x1b[ -/]*\Z")

# Titles, colours, links, progress, marks of a prompt.
_OSC_LIVE: Final = frozenset({0, 1, 2, 4, 8, 9, 10, 11, 12, 104, 110, 111, 112, 133})
_OSC_SHOWN: Final = frozenset({4, 8, 10, 11, 12, 104, 110, 111, 112})
# Modes that make a terminal send what the user did not type, or type it in another way.
_INPUT_MODES: Final = frozenset(
    {1, 9, 66, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1015, 1016, 2004, 2031, 2048, 9001}
)
_OTHER_SCREEN: Final = (47, 1047, 1049)


class Screen:
    """Passes bytes of a program on, as far as they may be shown; what is not complete yet waits for
    the next ones."""

    def __init__(self, level: Level = "live") -> None:
        self._level = level
        self._modes = Modes()
        self._rest = b""
        self._skips = False

    def pass_on(self, data: bytes) -> bytes:
        shown = self._passed(data)
        self._modes.feed(shown)
        return shown

    def undo(self, *, left: bool = False) -> bytes:
        """What takes back that which the program has set and left so. `left`: it has not ended, and
        what is said next stands below what it has drawn."""
        below = left and not self._modes.has_other_screen
        return self._modes.undo() + (b"\x1b[999B\r\n" if below else b"")

    def _passed(self, data: bytes) -> bytes:
        if self._goes_on(data):
            self._rest += data
            return b""
        data, self._rest = self._rest + data, b""
        out = []
        at = 0
        if self._skips:
            at = self._skip(data, 0)
        while at < len(data):
            found = _BEGIN.search(data, at)
            if found is None:
                out.append(data[at:])
                break
            out.append(data[at : found.start()])
            at = found.start()
            end, passed = self._sequence(data, at)
            if end < 0:
                self._rest = data[at:]
                break
            if passed:
                out.append(data[at:end])
            at = end
        return b"".join(out)

    def _goes_on(self, data: bytes) -> bool:
        """Whether it only makes a sequence longer that waits for its end: then that is not looked
        at again from its beginning, as it may come in single bytes."""
        if len(self._rest) + len(data) > _MOST or len(self._rest) < 2:
            return False
        if self._rest[1:2] == b"[":
            return _WITHIN_CSI.fullmatch(data) is not None
        return self._rest[1:2] in _STRINGS and self._rest[-1] != _ESC and not _ENDS.search(data)

    def _sequence(self, data: bytes, at: int) -> tuple[int, bool]:
        """Where it ends, and whether it passes; -1: it is not all there yet."""
        if data[at] != _ESC:
            if data[at] == 0xC2:
                # As one byte these begin sequences, too; no program needs them.
                return (-1, False) if at + 1 == len(data) else (at + 2, False)
            return at + 1, self._level == "live"
        if match := _CSI.match(data, at):
            return match.end(), self._csi(match)
        if match := _STRING.match(data, at):
            return match.end(), self._string(match)
        if match := _OTHER.match(data, at):
            return match.end(), True
        if _CSI_PART.match(data, at) or _OTHER_PART.match(data, at):
            return (-1, False) if len(data) - at <= _MOST else (len(data), False)
        if data[at + 1 : at + 2] in _STRINGS:
            if len(data) - at <= _MOST:
                return -1, False
            self._skips = True
            return self._skip(data, at + 2), False
        return at + 1, False  # what follows it is none

    def _skip(self, data: bytes, at: int) -> int:
        """Past the rest of a string that is too long."""
        ends = re.compile(rb"[\x07\x18\x1a]|\x1b\\?").search(data, at)
        if ends is None:
            return len(data)
        self._skips = False
        return ends.end() if ends[0] != b"\x1b" else ends.start()

    def _csi(self, match: re.Match[bytes]) -> bool:
        mark, numbers, between, final = match.groups()
        if final == b"t":
            # Reports of the title are what the program has set: typed into a shell.
            first = _number(re.split(rb"[;:]", numbers)[0] or b"0")
            return self._level == "live" and first not in (-1, 20, 21)
        if self._level == "live":
            return True
        if final == b"n" or (final == b"c" and not between):
            return False  # where the cursor is; what this terminal is
        if between == b"$" and final == b"p":
            return False  # is a mode set
        if final == b"q" and mark == b">":
            return False  # name and version
        if final == b"u" and mark:
            return False  # the keyboard's modes
        if final == b"x" and not between:
            return False  # parameters
        if final == b"m" and mark in (b">", b"?"):
            return False
        if final in (b"h", b"l") and mark == b"?":
            return not any(_number(word) in _INPUT_MODES for word in numbers.split(b";"))
        return True

    def _string(self, match: re.Match[bytes]) -> bool:
        kind, text, end = match.groups()
        if end in (b"\x18", b"\x1a", b"") or kind not in (b"]", b"P"):
            return False
        if kind == b"P":
            # What it can do, and how something is set; nothing that is drawn or run.
            return self._level == "live" and text.startswith((b"+q", b"$q"))
        number = _number(text.partition(b";")[0])
        if self._level == "live":
            return number in _OSC_LIVE
        return number in _OSC_SHOWN and b"?" not in text.partition(b";")[2].split(b";")


class Modes:
    """What a program has set on the terminal, to be taken back when it is gone without doing so."""

    _SET: Final = re.compile(rb"\x1b\[([?>])([0-9;]*)([hlum])|\x1b\[<[0-9]*u|\x1b([=>])")

    def __init__(self) -> None:
        self._on: set[int] = set()
        self._keyboard: list[bytes] = []
        self._modified = self._keypad = False
        self._rest = b""

    def feed(self, data: bytes) -> None:
        data = self._rest + data
        last = 0
        for match in self._SET.finditer(data):
            last = match.end()
            self._note(match)
        # A sequence may come in two pieces.
        self._rest = data[max(last, len(data) - 64) :]
        cut = self._rest.rfind(b"\x1b")
        self._rest = self._rest[cut:] if cut >= 0 else b""

    def _note(self, match: re.Match[bytes]) -> None:
        mark, numbers, final, keypad = match.groups()
        if keypad is not None:
            self._keypad = keypad == b"="
        elif final is None:
            del self._keyboard[-1:]
        elif mark == b"?" and final in (b"h", b"l"):
            for word in numbers.split(b";"):
                number = _number(word)
                if number == 25:
                    final = b"l" if final == b"h" else b"h"  # the cursor: off is what is undone
                (self._on.add if final == b"h" else self._on.discard)(number)
        elif mark == b">" and final == b"u":
            self._keyboard = [*self._keyboard, numbers[:4]][-16:]
        elif mark == b">" and final == b"m":
            self._modified = numbers.startswith(b"4;") and numbers != b"4;0"

    @property
    def has_other_screen(self) -> bool:
        return bool(self._on.intersection(_OTHER_SCREEN))

    def undo(self) -> bytes:
        """Nothing: there is nothing to take back."""
        words = [b"\x1b[<u" * len(self._keyboard)]
        if self._modified:
            words.append(b"\x1b[>4m")
        if self._keypad:
            words.append(b"\x1b>")
        # The other screen last: what is said of the first one is said there.
        modes = sorted(self._on, key=lambda mode: (mode in _OTHER_SCREEN, mode))
        words += [b"\x1b[?%d%s" % (mode, b"h" if mode == 25 else b"l") for mode in modes]
        text = b"".join(words)
        return text + b"\x1b[0m" if text else b""

    def redo(self) -> bytes:
        """What sets it as the program has, on a terminal that was not there when it did."""
        modes = sorted(self._on, key=lambda mode: (mode not in _OTHER_SCREEN, mode))
        words = [b"\x1b[?%d%s" % (mode, b"l" if mode == 25 else b"h") for mode in modes]
        if self._modified:
            words.append(b"\x1b[>4;2m")
        if self._keypad:
            words.append(b"\x1b=")
        return b"".join([*words, *(b"\x1b[>%su" % flags for flags in self._keyboard)])


def _number(word: bytes) -> int:
    return int(word) if word.isdigit() and len(word) < 10 else -1
