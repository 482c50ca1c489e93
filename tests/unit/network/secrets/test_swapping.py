"""A secret gets into a request where it belongs, and into no other."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkernel.network.policy.model import SecretBinding
from agentkernel.network.secrets.dlp import Patterns
from agentkernel.network.secrets.placeholders import make_placeholder
from agentkernel.network.secrets.swapping import Blocked, Swapper, is_bound

VALUE = b"ghp_k3Jx9QmZt7Vb2NcR5Ld8WfY1"
OTHER = b"npm_Pq8sT4uVw2XyZ6aBcD0eFgHi"
UNBOUND = b"never-bound-to-anything-77"
NAME = make_placeholder(VALUE)
OTHER_NAME = make_placeholder(OTHER)
HOST = "api.example.org"


def binding(**changes: object) -> SecretBinding:
    words: dict[str, object] = {
        "reference": "local/TOKEN",
        "env": "TOKEN",
        "placeholder": NAME,
        "hosts": (HOST, "*.sub.example.org", "other.example.org:8443"),
    }
    return SecretBinding(**{**words, **changes})  # type: ignore[arg-type]


ELSEWHERE = SecretBinding(
    reference="local/NPM", env="NPM", placeholder=OTHER_NAME, hosts=("registry.example.org",)
)
VALUES = {"local/TOKEN": VALUE, "local/NPM": OTHER, "local/FREE": UNBOUND}


def swapper(host: str = HOST, patterns: Patterns | None = None, **changes: object) -> Swapper:
    return Swapper((binding(**changes), ELSEWHERE), VALUES, host, 443, patterns)


def sent(body: bytes, of: Swapper, *, step: int = 7, **kind: bytes) -> bytes:
    passing = of.body(**kind)
    out = b"".join(passing.feed(body[at : at + step]) for at in range(0, len(body), step))
    return out + passing.finish()


@pytest.mark.parametrize(
    ("host", "port", "bound"),
    [
        (HOST, 443, True),
        (HOST, 80, False),
        ("a.sub.example.org", 443, True),
        ("sub.example.org", 443, False),
        ("evilsub.example.org", 443, False),
        ("api.example.org.evil.test", 443, False),
        ("other.example.org", 8443, True),
        ("other.example.org", 443, False),
    ],
)
def test_which_hosts_a_binding_means(host: str, port: int, bound: bool) -> None:
    assert is_bound(binding(), host, port) is bound


def test_the_header_of_the_binding_gets_the_value() -> None:
    of = swapper()
    headers = [(b"Authorization", b"Bearer " + NAME.encode()), (b"User-Agent", b"curl")]
    assert of.request_headers(headers) == (
        [(b"Authorization", b"Bearer " + VALUE), (b"User-Agent", b"curl")],
        [binding()],
    )


def test_basic_credentials_are_decoded_and_encoded_again() -> None:
    header = b"Basic " + base64.b64encode(b"x-access-token:" + NAME.encode())
    swapped, used = swapper().request_headers([(b"authorization", header)])
    assert base64.b64decode(swapped[0][1][6:]) == b"x-access-token:" + VALUE
    assert used == [binding()]


@pytest.mark.parametrize("name", [b"User-Agent", b"X-Request-Id", b"Origin", b"Cookie"])
def test_other_headers_keep_the_placeholder(name: bytes) -> None:
    headers = [(name, b"hello " + NAME.encode())]
    assert swapper().request_headers(headers) == (headers, [])
    swapped, _ = swapper(headers=(name.decode().lower(),)).request_headers(headers)
    assert swapped == [(name, b"hello " + VALUE)], "the control: where it is asked for"


def test_the_query_only_when_asked() -> None:
    target = b"/v1/" + NAME.encode() + b"?key=" + NAME.encode() + b"&a=1"
    assert swapper().target(target) == target
    of = swapper(query=True)
    assert of.target(target) == b"/v1/" + NAME.encode() + b"?key=" + VALUE + b"&a=1"
    assert of.used == [binding(query=True)]


def test_a_value_in_a_query_is_escaped() -> None:
    values = {**VALUES, "local/TOKEN": b"a&b=c#d e%f/0123456789abcdef"[:28]}
    of = Swapper((binding(query=True),), values, HOST, 443)
    out = of.target(b"/?key=" + NAME.encode())
    assert out == b"/?key=" + quote(values["local/TOKEN"], "").encode()


@settings(max_examples=50, deadline=None)
@given(before=st.binary(max_size=60), after=st.binary(max_size=60), step=st.integers(1, 40))
def test_the_body_only_when_asked(before: bytes, after: bytes, step: int) -> None:
    body = before + NAME.encode() + after
    assert sent(body, swapper(), step=step) == body
    assert sent(body, swapper(body=True), step=step) == before + VALUE + after


def test_a_value_in_a_body_is_written_as_its_kind_asks() -> None:
    hard = b'a"b\\c/0123456789abcdef-xyz42'
    name = make_placeholder(hard)
    one = binding(placeholder=name, body=True)
    of = Swapper((one,), {"local/TOKEN": hard}, HOST, 443)
    body = json.dumps({"key": name}).encode()
    assert json.loads(sent(body, of, content_type=b"application/json; charset=utf-8")) == {
        "key": hard.decode()
    }
    assert not of.body(b"application/json").keeps_length and of.body(b"text/plain").keeps_length
    form = sent(b"key=" + name.encode(), of, content_type=b"application/x-www-form-urlencoded")
    assert form == b"key=" + quote(hard, "").encode()


def test_a_removed_secret_blocks_what_needs_it() -> None:
    of = Swapper((binding(),), {}, HOST, 443)
    with pytest.raises(Blocked, match="no secret TOKEN any more") as caught:
        of.request_headers([(b"authorization", b"Bearer " + NAME.encode())])
    assert caught.value.reference == "local/TOKEN"


FORMS: dict[str, Callable[[bytes], bytes]] = {
    "raw": lambda value: value,
    "base64": lambda value: base64.b64encode(b"user:" + value),
    "base64, url": lambda value: base64.urlsafe_b64encode(b"~~" + value),
    "hex": lambda value: value.hex().encode(),
    "percent": lambda value: b"".join(b"%%%02X" % byte for byte in value),
    "json": lambda value: b"".join(b"\\u%04x" % byte for byte in value),
}
PLACES: dict[str, Callable[[Swapper, bytes], object]] = {
    "header": lambda of, text: of.request_headers([(b"x-a", b"1"), (b"authorization", text)]),
    "header name": lambda of, text: of.request_headers([(text, b"1")]),
    "path": lambda of, text: of.target(b"/v1/" + text),
    "query": lambda of, text: of.target(b"/?q=" + text),
    "body": lambda of, text: sent(b'{"a": "' + text + b'"}', of, step=5),
    "gzip": lambda of, text: sent(
        gzip.compress(b"<" + text + b">"), of, step=5, content_encoding=b"gzip"
    ),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("form", FORMS)
def test_a_placeholder_on_its_way_elsewhere_blocks(place: str, form: str) -> None:
    text = FORMS[form](OTHER_NAME.encode())
    with pytest.raises(Blocked, match=r"placeholder.*NPM.*registry\.example\.org") as caught:
        PLACES[place](swapper(), text)
    assert caught.value.reference == "local/NPM" and OTHER_NAME not in caught.value.words
    # The control: its own host gets it, swapped or not.
    PLACES[place](swapper("registry.example.org"), text)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", [VALUE, UNBOUND], ids=["bound here", "bound nowhere"])
def test_a_value_that_is_there_already_blocks(place: str, form: str, value: bytes) -> None:
    text = FORMS[form](value)
    with pytest.raises(Blocked, match="value of the secret") as caught:
        PLACES[place](swapper(), text)
    assert value.decode() not in caught.value.words
    PLACES[place](Swapper((), {}, HOST, 443), text)  # the control: a value nobody registered


@settings(max_examples=60, deadline=None)
@given(before=st.binary(max_size=60), after=st.binary(max_size=60), step=st.integers(1, 40))
def test_no_whole_value_leaves_before_it_is_blocked(before: bytes, after: bytes, step: int) -> None:
    passing = swapper().body()
    body = before + UNBOUND + after
    out = b""
    with pytest.raises(Blocked):
        for at in range(0, len(body), step):
            out += passing.feed(body[at : at + step])
        passing.finish()
    assert UNBOUND[:4] not in out[len(before) :], "not even its beginning left"


def test_bodies_that_can_t_be_looked_through() -> None:
    with pytest.raises(Blocked, match="can't be looked through"):
        sent(b"this is not gzip at all", swapper(), content_encoding=b"gzip")


def test_patterns() -> None:
    patterns = Patterns(["AKIA[0-9A-Z]{16}", "ghp_[A-Za-z0-9]{20,40}"])
    hit = b"AKIA" + b"Z" * 16
    of = swapper(patterns=patterns)
    for place in ("header", "path", "query", "body", "gzip"):
        with pytest.raises(Blocked, match="pattern AKIA") as caught:
            PLACES[place](of, hit)
        assert caught.value.reference == "" and hit.decode() not in caught.value.words
        PLACES[place](swapper(), hit)
        PLACES[place](of, NAME.encode())  # looks like a token, but is the placeholder
        with pytest.raises(Blocked, match="pattern ghp_"):
            PLACES[place](of, b"ghp_" + b"q" * 24)


@given(before=st.binary(max_size=60), after=st.binary(max_size=60), step=st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_patterns_over_pieces(before: bytes, after: bytes, step: int) -> None:
    hit = b"AKIA" + b"Z" * 16
    passing = swapper(patterns=Patterns(["AKIA[0-9A-Z]{16}"])).body()
    body = before + hit + after
    out = b""
    with pytest.raises(Blocked):
        for at in range(0, len(body), step):
            out += passing.feed(body[at : at + step])
        passing.finish()
    assert len(out) <= len(before)


def test_what_comes_back_is_scanned_for_what_was_sent() -> None:
    scanner = swapper().scanner()
    text = b"you sent " + VALUE + b", not " + OTHER
    assert scanner.feed(text) + scanner.finish() == text.replace(VALUE, NAME.encode())


def test_one_secret_for_two_hosts_by_two_bindings() -> None:
    one = binding(hosts=(HOST,))
    two = binding(hosts=("second.example.org",), headers=("x-key",))
    for host, name in ((HOST, b"authorization"), ("second.example.org", b"x-key")):
        swapped, used = Swapper((one, two), VALUES, host, 443).request_headers(
            [(name, NAME.encode())]
        )
        assert swapped == [(name, VALUE)] and len(used) == 1
    with pytest.raises(Blocked):
        Swapper((one, two), VALUES, "third.example.org", 443).request_headers(
            [(b"x-key", NAME.encode())]
        )
