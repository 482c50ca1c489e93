"""The report of `agentd probe`, which comes out of a sandbox: bounded, and checked word by word."""

from __future__ import annotations

import errno
import re
import signal
from collections.abc import Collection, Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from agentkernel.errors import GuestProtocolError

MAX_REPORT_BYTES: Final = 1 << 20
_MAX_LINE_BYTES: Final = 128 << 10
_WORD = re.compile(r"ok|none|timeout|(errno|signal) ([1-9][0-9]{0,3})", re.ASCII)


class Seen(msgspec.Struct, frozen=True):
    """What came of one try: `ok`, `none`, `timeout`, or the name of an errno or of a signal."""

    answer: str
    values: tuple[str, ...] = ()


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(max_length=64)] = msgspec.field(name="try")
    answer: Annotated[str, Meta(max_length=24)]
    values: Annotated[list[Annotated[str, Meta(max_length=8192)]], Meta(max_length=8192)]


_DECODER = msgspec.json.Decoder(_Line)


def parse_report(data: bytes, names: Collection[str]) -> Mapping[str, Seen]:
    """Every one of `names` exactly once, and nothing else; anything else is GuestProtocolError."""
    if len(data) > MAX_REPORT_BYTES:
        raise _wrong("is too long")
    report: dict[str, Seen] = {}
    for line in data.splitlines():
        if len(line) > _MAX_LINE_BYTES:
            raise _wrong("has a line that is too long")
        try:
            said = _DECODER.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise _wrong("has a line that is none of a probe's") from None
        if said.name not in names:
            raise _wrong("tells of a try that does not exist")
        if said.name in report:
            raise _wrong(f"tells of {said.name} twice")
        values = tuple("".join(c if c.isprintable() else "?" for c in v) for v in said.values)
        report[said.name] = Seen(_named(said.answer), values)
    if missing := [name for name in names if name not in report]:
        raise _wrong(f"ends too early: {missing[0]} is missing, and {len(missing) - 1} more")
    return report


def _named(word: str) -> str:
    match = _WORD.fullmatch(word)
    if match is None:
        raise _wrong("has an answer that no try gives")
    if match[1] is None:
        return word
    number = int(match[2])
    if match[1] == "errno":
        return errno.errorcode.get(number, f"errno {number}")
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _wrong(words: str) -> GuestProtocolError:
    return GuestProtocolError(
        f"the probe's report {words}",
        hint="something in the sandbox stands in the probe's place: do not trust what it says",
    )
