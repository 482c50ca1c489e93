"""What a guest sends to get at secrets, what servers reflect; what people write to bind them."""

from __future__ import annotations

import base64
import gzip

from hypothesis import strategies as st

from agentkernel.network.policy.model import SecretBinding
from agentkernel.network.secrets.bindings import SecretRequest, parse_binding
from agentkernel.network.secrets.dlp import MOST_WIDTH, Patterns
from agentkernel.network.secrets.placeholders import check_value, make_placeholder
from agentkernel.network.secrets.scanning import Inflater
from agentkernel.network.secrets.swapping import Blocked, Swapper

from .making import damaged, words
from .target import Target

_VALUE = b"sk-proj-J7x/Qm+Zt%41Vb2&NcR5Ld8W"
_NAME = make_placeholder(_VALUE)
_BINDINGS = (
    SecretBinding(
        reference="local/A", env="A", placeholder=_NAME, hosts=("a.test",), query=True, body=True
    ),
    SecretBinding(
        reference="local/B",
        env="B",
        placeholder=make_placeholder("elsewhere-elsewhere"),
        hosts=("b.test",),
    ),
)
_SWAPPER_VALUES = {"local/A": _VALUE, "local/B": b"elsewhere-elsewhere"}
_SAMPLES = [
    _NAME.encode(),
    b"Basic " + base64.b64encode(f"user:{_NAME}".encode()),
    b"Basic =====",
    b"/path?key=" + _NAME.encode() + b"&%25%25&#x110000;\\u00",
    gzip.compress(b"x" * 100),
    b"%" * 50 + b"&#99999;" * 10 + b"\\u00zz",
]
_bytes = st.one_of(st.binary(max_size=200), damaged(st.sampled_from(_SAMPLES)))


def swap(given: tuple[bytes, bytes, int]) -> None:
    """Whatever a guest sends: what goes on holds the value only where a placeholder was."""
    text, coding, step = given
    swapper = Swapper(_BINDINGS, _SWAPPER_VALUES, "a.test", 443, Patterns(["AKIA[0-9A-Z]{16}"]))
    headers, _ = swapper.request_headers([(b"Authorization", text), (b"X-Other", text)])
    assert _VALUE not in headers[1][1] and len(headers) == 2
    swapper.target(text)
    body = swapper.body(b"", coding)
    out = b"".join(body.feed(text[at : at + step]) for at in range(0, len(text), step))
    assert len(out + body.finish()) == len(text), "a value is as long as its placeholder"


def scan(given: tuple[bytes, bytes, list[int]]) -> None:
    """Whatever a server sends, with the value somewhere in it: it does not come out."""
    before, after, cuts = given
    text = before + _VALUE + after
    scanner = Swapper(_BINDINGS, _SWAPPER_VALUES, "a.test", 443).scanner()
    edges = [0, *sorted(cut % len(text) for cut in cuts), len(text)]
    out = b""
    for number, (first, last) in enumerate(zip(edges, edges[1:], strict=False)):
        out += scanner.feed(text[first:last])
        out += scanner.release() if number % 2 else b""
    assert _VALUE not in out + scanner.finish()


def inflate(given: tuple[str, bytes]) -> None:
    coding, data = given
    inflater = Inflater(coding, 1 << 20)
    for _ in inflater.feed(data):
        pass
    inflater.finish()


def bind(text: str) -> None:
    asked = parse_binding(text)
    assert isinstance(asked, SecretRequest) and asked.hosts and asked.env


def pattern(text: str) -> None:
    """One that is taken does its work in time, whatever it is given."""
    patterns = Patterns([text])
    assert 0 < patterns.width <= MOST_WIDTH
    for sample in (b"a" * 20_000, b"ab" * 10_000, b"\0" * 20_000, text.encode() * 50):
        patterns.find(sample)


def _value(value: str | bytes) -> None:
    assert len(make_placeholder(value)) == len(check_value(value))


TARGETS = [
    Target(
        "secret-swaps",
        st.tuples(_bytes, st.sampled_from([b"", b"gzip", b"deflate", b"br"]), st.integers(1, 50)),
        swap,
        also=(Blocked,),
    ),
    Target("secret-reflections", st.tuples(_bytes, _bytes, st.lists(st.integers(0, 500))), scan),
    Target(
        "secret-inflating",
        st.tuples(st.sampled_from(["gzip", "deflate", "br"]), _bytes),
        inflate,
        also=(ValueError,),
    ),
    Target(
        "secret-bindings",
        st.one_of(
            words,
            words.map(lambda word: f"KEY@{word}"),
            st.from_regex(r"\A([A-Z]=)?[A-Z]{1,3}@[a-z0-9.:*,=\[\]/-]{0,30}\Z"),
        ),
        bind,
    ),
    Target(
        "secret-patterns",
        st.one_of(words, st.text("ab.*+?{}()[]|\\^$019,dsw", max_size=20)),
        pattern,
    ),
    Target("secret-values", st.one_of(words, st.binary(max_size=30)), _value),
]
