"""Addresses, names and origins as people write them."""

from __future__ import annotations

import pytest

from agentkernel.config.addresses import check_address, check_host, check_origin, is_loopback


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("127.0.0.1:8700", "127.0.0.1:8700"),
        ("LOCALHOST:0", "localhost:0"),
        ("[::1]:80", "[::1]:80"),
        ("[0:0:0:0:0:0:0:1]:80", "[::1]:80"),
        ("ak.example.org:65535", "ak.example.org:65535"),
    ],
)
def test_addresses(text: str, shown: str) -> None:
    assert check_address(text) == shown


@pytest.mark.parametrize(
    "text",
    ["", ":", ":80", "a", "a:", "a:b", "a:-1", "a:65536", "::1:80", "[::1]", "[x]:1", "a b:1",
     "a:1\n", "http://a:1", "a/b:1", "*:1", "a:١", None, 8700],
)  # fmt: skip
def test_what_is_no_address(text: object) -> None:
    with pytest.raises(ValueError):
        check_address(text)


@pytest.mark.parametrize("text", ["ak.example.org", "localhost:80", "[::1]", "10.0.0.1", "a_b"])
def test_hosts(text: str) -> None:
    assert check_host(text) == text


@pytest.mark.parametrize("text", ["", "*", "*.example.org", "a b", "a/b", "http://a", "a,b", "::1"])
def test_what_is_no_host(text: str) -> None:
    with pytest.raises(ValueError):
        check_host(text)


@pytest.mark.parametrize(
    "text", ["https://app.example.org", "http://localhost:3000", "vscode-webview://abc"]
)
def test_origins(text: str) -> None:
    assert check_origin(text) == text


@pytest.mark.parametrize(
    "text", ["", "*", "null", "app.example.org", "https://", "https://a/", "https://a/b", "//a",
             "https://user@a", "https://a b"],
)  # fmt: skip
def test_what_is_no_origin(text: str) -> None:
    with pytest.raises(ValueError):
        check_origin(text)


def test_loopback() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "localhost.example.org")))
