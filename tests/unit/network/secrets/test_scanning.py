"""No form of a value comes out of the scanner, however the text is cut."""

from __future__ import annotations

import base64
import gzip
import json
import random
import string
import zlib
from collections.abc import Callable
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkernel.network.secrets.finding import Finder
from agentkernel.network.secrets.forms import Folded, forms
from agentkernel.network.secrets.placeholders import make_placeholder
from agentkernel.network.secrets.scanning import MOST_INFLATED, Inflater, Replacer, Scanner

VALUE = b"ghp_k3Jx9QmZt7Vb2NcR5Ld8WfY1"
HARD = b'p"a/s\\s&w+o=r%41d<K>9;x y'

values = st.text(
    st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=16, max_size=60
).map(str.encode)
around = st.binary(max_size=40)

WAYS: dict[str, Callable[[bytes], bytes]] = {
    "raw": lambda value: value,
    "hex": lambda value: value.hex().encode(),
    "HEX": lambda value: value.hex().upper().encode(),
    "url": lambda value: quote(value, "").encode(),
    "url, every byte": lambda value: b"".join(b"%%%02x" % byte for byte in value),
    "url, twice": lambda value: quote(quote(value, ""), "").encode(),
    "url, every other byte": lambda value: b"".join(
        b"%%%02X" % byte if at % 2 else bytes([byte]) for at, byte in enumerate(value)
    ),
    "json": lambda value: json.dumps(value.decode())[1:-1].encode(),
    "json, slashes": lambda value: json.dumps(value.decode())[1:-1].replace("/", "\\/").encode(),
    "json, every byte": lambda value: b"".join(b"\\u%04x" % byte for byte in value),
    "html": lambda value: b"".join(b"&#%d;" % byte for byte in value),
}
# How base64 arrives: as it is, in a URL, in JSON.
AGAIN: dict[str, Callable[[bytes], bytes]] = {
    "as it is": lambda text: text,
    "url": lambda text: quote(text, "").encode(),
    "json": lambda text: text.replace(b"/", b"\\/"),
    "mail": lambda text: base64.encodebytes(base64.b64decode(text)),
}


def through(scanner: Scanner, text: bytes, cuts: list[int]) -> bytes:
    edges = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    out = b"".join(scanner.feed(text[a:b]) for a, b in zip(edges, edges[1:], strict=False))
    return out + scanner.finish()


def found(value: bytes, text: bytes) -> bool:
    """An independent search: every way to decode the whole, then the plain value."""
    return value in text or value in Folded(text).text


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=40, deadline=None)
@given(value=values, before=around, after=around, cuts=st.lists(st.integers(0, 1000), max_size=8))
def test_no_form_of_a_value_comes_out(
    way: str, value: bytes, before: bytes, after: bytes, cuts: list[int]
) -> None:
    text = before + b"|" + WAYS[way](value) + b"|" + after
    placeholder = make_placeholder(value)
    out = through(Scanner(Replacer([(value, placeholder)])), text, cuts)
    assert WAYS[way](value) not in out and not found(value, out)
    if way not in ("hex", "HEX"):
        assert out == before + b"|" + placeholder.encode() + b"|" + after or value in before + after


@pytest.mark.parametrize("again", AGAIN)
@settings(max_examples=40, deadline=None)
@given(
    value=values,
    before=st.binary(max_size=100),
    after=around,
    cuts=st.lists(st.integers(0, 1000), max_size=8),
)
def test_no_base64_of_a_value_comes_out(
    again: str, value: bytes, before: bytes, after: bytes, cuts: list[int]
) -> None:
    text = AGAIN[again](base64.b64encode(before + value + after))
    out = through(Scanner(Replacer([(value, make_placeholder(value))])), text, cuts)
    clean = Folded(out).text.replace(b"\n", b"")
    assert value not in base64.b64decode(clean + b"==")


@given(
    text=st.binary(max_size=300) | st.text("ghp_k3J%\\&u0\r\n", max_size=200).map(str.encode),
    cuts=st.lists(st.integers(0, 1000), max_size=8),
)
@settings(max_examples=200, deadline=None)
def test_other_text_passes_unchanged(text: bytes, cuts: list[int]) -> None:
    assert through(Scanner(Replacer([(VALUE, make_placeholder(VALUE))])), text, cuts) == text


@pytest.mark.parametrize("value", [VALUE, HARD, b"x" * 4096], ids=["token", "signs", "long"])
@pytest.mark.parametrize("way", WAYS)
def test_byte_by_byte(value: bytes, way: str) -> None:
    text = b"<" + WAYS[way](value) + b">"
    out = through(
        Scanner(Replacer([(value, make_placeholder(value))])), text, list(range(len(text)))
    )
    assert not found(value, out) and value.hex().encode() not in out.lower()


def test_a_stream_is_not_held_back() -> None:
    scanner = Scanner(Replacer([(VALUE, make_placeholder(VALUE))]))
    event = b'data: {"text": "hello"}\n\n'
    assert scanner.feed(event) == event
    half = b"data: " + VALUE[:9]
    assert scanner.feed(half) == b"data: ", "what may become the value waits"
    assert scanner.feed(b"!\n\n") == VALUE[:9] + b"!\n\n", "and goes on when it does not"


@pytest.mark.parametrize("way", [*WAYS, "base64"])
@pytest.mark.parametrize("pauses", [1, 2, 3, 5, 7])
def test_a_server_that_pauses(way: str, pauses: int) -> None:
    """After every few bytes nothing comes for so long that what is held back is given out."""
    placeholder = make_placeholder(VALUE)
    value = WAYS[way](VALUE) if way in WAYS else base64.b64encode(b"ab" + VALUE)
    scanner = Scanner(Replacer([(VALUE, placeholder)]))
    out = b""
    text = b"<" + value + b">"
    for at in range(0, len(text), pauses):
        out += scanner.feed(text[at : at + pauses]) + scanner.release()
    out += scanner.finish()
    assert not found(VALUE, out)
    if way == "base64":
        assert VALUE[3:] not in base64.b64decode(out)
    assert VALUE.hex() not in out.decode().lower()
    # Of the value no more than what may be given out stands there.
    assert not any(VALUE[at : at + 7] in out for at in range(4, len(VALUE) - 6))


def test_a_pause_shows_what_is_too_little_to_tell() -> None:
    scanner = Scanner(Replacer([(VALUE, make_placeholder(VALUE))]))
    assert scanner.feed(b"text " + VALUE[:3]) + scanner.release() == b"text " + VALUE[:3]
    assert scanner.release() == b""
    assert scanner.feed(b" more") == b" more", "nothing twice"
    assert scanner.feed(VALUE[:11]) + scanner.release() == b"", "ghp_ and seven more"
    assert scanner.feed(b"!") + scanner.finish() == VALUE[:11] + b"!"


@settings(max_examples=100, deadline=None)
@given(
    text=st.text("ghp_k3J%\\&u0\r\n x", max_size=60).map(str.encode),
    cuts=st.lists(st.integers(0, 100), max_size=8),
)
def test_pauses_change_nothing_of_other_text(text: bytes, cuts: list[int]) -> None:
    scanner = Scanner(Replacer([(VALUE, make_placeholder(VALUE))]))
    edges = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    out = b""
    for first, last in zip(edges, edges[1:], strict=False):
        out += scanner.feed(text[first:last]) + scanner.release()
    assert out + scanner.finish() == text


def test_headers_are_scanned() -> None:
    placeholder = make_placeholder(VALUE)
    headers = [(b"location", b"https://x.test/?t=" + VALUE), (b"x-id", b"7")]
    assert Scanner(Replacer([(VALUE, placeholder)])).response_headers(headers) == [
        (b"location", b"https://x.test/?t=" + placeholder.encode()),
        (b"x-id", b"7"),
    ]


def test_base64_goes_back_as_the_placeholders() -> None:
    placeholder = make_placeholder(VALUE)
    for before in (b"", b"a", b"ab", b"abc"):
        text = base64.b64encode(before + VALUE + b"tail")
        scanner = Scanner(Replacer([(VALUE, placeholder)]))
        back = base64.b64decode(scanner.feed(text) + scanner.finish())
        # Characters at both ends are shared with what stands there.
        assert back.startswith(before) and back.endswith(b"tail")
        assert placeholder[1:-1].encode() in back


def test_many_values_are_found_as_few_are() -> None:
    chosen = random.Random(7)
    letters = string.ascii_letters + string.digits
    many = ["".join(chosen.choices(letters, k=20)).encode() for _ in range(60)]
    finder = Finder((value, value) for value in many)
    for value in many:
        for form in forms(value):
            text = bytes(chosen.randrange(13)) + form.text + b"tail"
            assert [match.whose for match in finder.find(text)] == [value]
            wrapped = b"A" * 40 + form.text[:9] + b"\n" + form.text[9:]
            if form.kind != "raw":
                assert [match.whose for match in finder.find(wrapped)] == [value]
    assert finder.find(chosen.randbytes(100_000)) == []


@pytest.mark.parametrize("coding", ["gzip", "deflate", "bare"])
def test_inflating_piece_by_piece(coding: str) -> None:
    text = b"a" * (MOST_INFLATED * 2 + 5) + VALUE
    if coding == "gzip":
        packed = gzip.compress(text) + gzip.compress(b"second member")
        text += b"second member"
    else:
        engine = zlib.compressobj(wbits=-15 if coding == "bare" else 15)
        packed = engine.compress(text) + engine.flush()
    inflater = Inflater("gzip" if coding == "gzip" else "deflate")
    pieces = [piece for at in range(0, len(packed), 7) for piece in inflater.feed(packed[at:][:7])]
    inflater.finish()
    assert b"".join(pieces) == text and max(map(len, pieces)) <= MOST_INFLATED


def test_inflating_what_is_damaged_cut_or_too_much() -> None:
    packed = gzip.compress(bytes(1 << 20))
    with pytest.raises(ValueError, match="damaged"):
        list(Inflater("gzip").feed(b"not at all gzip"))
    cut = Inflater("gzip")
    list(cut.feed(packed[:-9]))
    with pytest.raises(ValueError, match="end is missing"):
        cut.finish()
    with pytest.raises(ValueError, match="more than is allowed"):
        list(Inflater("gzip", most=1 << 19).feed(packed))
    assert sum(map(len, Inflater("gzip", most=1 << 20).feed(packed))) == 1 << 20
