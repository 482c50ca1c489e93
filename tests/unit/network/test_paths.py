"""A path that programs read differently passes no rule that asks for a path."""

from __future__ import annotations

import posixpath
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.network.policy.paths import canonical_path, matches


@pytest.mark.parametrize(
    ("path", "plain"),
    [
        ("/", "/"),
        ("/v1/models", "/v1/models"),
        ("/v1/%6dodels/%7euser", "/v1/models/~user"),
        ("/a%20b/%c3%a9", "/a%20b/%C3%A9"),
        ("/simple/pip/", "/simple/pip/"),
        ("/.well-known/x", "/.well-known/x"),
        ("/a/.../b", "/a/.../b"),
        ("/a;v=1/b", "/a;v=1/b"),
        ("/v1/file..txt", "/v1/file..txt"),
    ],
)
def test_one_reading(path: str, plain: str) -> None:
    assert canonical_path(path) == plain
    assert canonical_path(plain) == plain


@pytest.mark.parametrize(
    "path",
    [
        "/v1/../admin", "/v1/%2e%2e/admin", "/v1/%2E./admin", "/v1/.%2e", "/v1/./admin", "/v1/.",
        "//admin", "/v1//admin", "/v1/..%2fadmin", "/v1%2f..%2fadmin", "/v1/%5c..%5cadmin",
        "/v1\\..\\admin", "/v1/..;/admin", "/v1/..;x=1/admin", "/v1/..%3b/admin", "/v1/..%20/admin",
        "/v1/%252e%252e/admin", "/v1/%25", "/v1/%", "/v1/%zz", "/v1/%c0%ae%c0%ae/admin",
        "/v1/%ef%bc%8e%ef%bc%8e/admin", "/v1/%ef%bc%8fadmin", "/v1/%e2%80%a5/admin", "/v1/%00",
        "/v1/%0d%0aX:", "/v1/a#b", "/v1/a?b", "/v1/\x00", "/v1/é", "/v1/a b", "", "*", "v1",
        "http://x/v1", "/v1/\n", "/v1/x\n",
    ],
)  # fmt: skip
def test_no_reading(path: str) -> None:
    assert canonical_path(path) is None


@given(st.text(alphabet="/.%2eEfF5cC;ab\\", max_size=24))
def test_whoever_resolves_it_stays_where_the_rule_said(rest: str) -> None:
    """However a server decodes and resolves a path that passed `/v1/*`, it is below /v1."""
    plain = canonical_path("/v1/" + rest)
    if plain is None or not matches("/v1/*", plain):
        return
    for rounds in range(3):
        seen = "/v1/" + rest
        for _ in range(rounds):
            seen = unquote(seen)
        seen = "/".join(part.partition(";")[0] for part in seen.replace("\\", "/").split("/"))
        assert posixpath.normpath(seen).startswith("/v1")


def test_patterns() -> None:
    assert matches("/v1/*", "/v1/") and matches("/v1/*", "/v1/a/b")
    assert not matches("/v1/*", "/v1") and not matches("/v1/*", "/v10/")
    assert matches("/v1*", "/v1") and matches("/v1", "/v1") and not matches("/v1", "/v1/")
