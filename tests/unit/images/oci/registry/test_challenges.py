"""What a 401 asks for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.images.oci.registry.challenges import Challenge, parse_challenges


@pytest.mark.parametrize(
    ("header", "challenges"),
    [
        ('Basic realm="tests"', [Challenge("basic", {"realm": "tests"})]),
        ("Negotiate", [Challenge("negotiate")]),
        (
            'Bearer realm="https://auth.docker.io/token",service="registry.docker.io",'
            'scope="repository:library/debian:pull"',
            [
                Challenge(
                    "bearer",
                    {
                        "realm": "https://auth.docker.io/token",
                        "service": "registry.docker.io",
                        "scope": "repository:library/debian:pull",
                    },
                )
            ],
        ),
        (
            'BEARER Realm = "a" , service=b, Basic realm="c"',
            [
                Challenge("bearer", {"realm": "a", "service": "b"}),
                Challenge("basic", {"realm": "c"}),
            ],
        ),
        (r'Basic realm="a \"b\" c"', [Challenge("basic", {"realm": 'a "b" c'})]),
        ('Bearer realm="a",realm="b"', [Challenge("bearer", {"realm": "a"})]),
        ("Bearer", [Challenge("bearer")]),
        ("", []),
        ("=,=", []),
        ('"', []),
    ],
)
def test_headers_as_they_come(header: str, challenges: list[Challenge]) -> None:
    assert parse_challenges([header]) == challenges


def test_several_headers_and_one_that_is_too_long() -> None:
    found = parse_challenges(["Basic " + "x" * 10_000, "Bearer", 'Basic realm="y"'])
    assert found == [Challenge("bearer"), Challenge("basic", {"realm": "y"})]


@given(st.text(max_size=200) | st.text('Bearer alm="\\, ', max_size=200))
def test_anything_is_read_to_its_end(text: str) -> None:
    for challenge in parse_challenges([text]):
        assert challenge.scheme == challenge.scheme.lower()
