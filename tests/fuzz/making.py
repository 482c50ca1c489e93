"""Bytes as somebody would send them who knows the formats and means no good."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import strategies as st

# What any field may hold instead of what it should.
numbers = st.one_of(
    st.integers(-3, 300),
    st.sampled_from([2**31, 2**32 - 1, 2**32, 2**53, 2**63 - 1, -(2**63), 2**64 - 1]),
    st.floats(),
)
words = st.one_of(
    st.text(max_size=20), st.sampled_from(["", "/", "..", "\0", "²", "٣", "é", "\ud800"])
)
leaves = st.one_of(st.none(), st.booleans(), numbers, words, st.binary(max_size=20))
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
_ENCODABLE = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats())
plain_values = st.recursive(
    st.one_of(_ENCODABLE, st.text(max_size=20), st.binary(max_size=20)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


def bodies(fields: dict[str, st.SearchStrategy[Any]], wild: Any = plain_values) -> Any:
    """Maps with some of these fields, each as it should be or as it should not."""
    optional = {name: st.one_of(good, wild) for name, good in fields.items()}
    return st.fixed_dictionaries({}, optional=optional)


@st.composite
def damaged(draw: Any, whole: st.SearchStrategy[bytes]) -> bytes:
    """Bytes with at most a few of them cut, changed or repeated."""
    data = bytearray(draw(whole))
    for _ in range(draw(st.integers(0, 3))):
        if not data:
            break
        at = draw(st.integers(0, len(data) - 1))
        match draw(st.integers(0, 3)):
            case 0:
                data[at] = draw(st.integers(0, 255))
            case 1:
                del data[at:]
            case 2:
                data[at:at] = draw(st.binary(max_size=8))
            case _:
                del data[at : at + draw(st.integers(1, 8))]
    return bytes(data)


def nested(depth: int, opening: bytes, leaf: bytes, closing: bytes = b"") -> bytes:
    return opening * depth + leaf + closing * depth


depths = st.sampled_from([1, 7, 8, 100, 400, 480, 700, 900, 950, 1000, 1100, 5000, 100_000])


def packed(map_: Any) -> st.SearchStrategy[bytes]:
    """MessagePack of maps, and what only looks like it."""
    return st.one_of(
        damaged(map_.map(msgspec.msgpack.encode)),
        st.binary(max_size=60),
        # Deep arrays and maps; a key that is no text, or no key at all; extension types.
        depths.map(lambda depth: b"\x81\xa7message" + nested(depth, b"\x91", b"\xc0")),
        depths.map(lambda depth: nested(depth, b"\x81\xa1a", b"\xc0")),
        st.sampled_from(
            [
                b"\x81\xa1a\x81\x90\xc0",
                b"\x81\xa1a\x81\x80\xc0",
                b"\x81\xa1a\x81\x91\x80\xc0",
                b"\x81\xa1a\xd6\xff\xff\xff\xff\xff",
                b"\x81\xa1a\xd7\xff\xff\xff\xff\xff\xff\xff\xff\xff",
                b"\x81\xa1a\xc7\x0c\xff\xff\xff\xff\xff\x7f\xff\xff\xff\xff\xff\xff\xff",
                b"\x81\xa1a\xc7\x0c\xff\x00\x00\x00\x00\x80\x00\x00\x00\x00\x00\x00\x00",
                b"\x81\xa1a\xc7\x00\x05",
                b"\x81\xa1a\xca\x7f\xc0\x00\x00",
            ]
        ),
    )


def texts(map_: Any) -> st.SearchStrategy[bytes]:
    """JSON of maps, and what only looks like it."""
    return st.one_of(
        damaged(map_.map(lambda value: json.dumps(value, default=repr).encode())),
        st.binary(max_size=60),
        depths.map(lambda depth: b'{"code":' + nested(depth, b"[", b"1", b"]") + b"}"),
        depths.map(lambda depth: nested(depth, b'{"a":', b"1", b"}")),
        st.sampled_from(
            [b'{"a":' + b"9" * 5000 + b"}", b'{"a":1e999}', b'{"a":"\\ud800"}', b"\xff"]
        ),
    )


@st.composite
def pieces(draw: Any, whole: st.SearchStrategy[bytes]) -> list[bytes]:
    """The same bytes, cut as a network may cut them."""
    data = draw(whole)
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=4)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
