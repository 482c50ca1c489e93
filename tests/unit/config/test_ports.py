"""Ports as people write them: what each form means, and what is none."""

from __future__ import annotations

import pytest

from agentkernel.config.ports import parse_port
from agentkernel.errors import InvalidInputError


@pytest.mark.parametrize(
    ("text", "address", "host_port", "port"),
    [
        ("8000", "127.0.0.1", 8000, 8000),
        ("8080:8000", "127.0.0.1", 8080, 8000),
        ("0:8000", "127.0.0.1", 0, 8000),
        ("127.0.0.1:8080:8000", "127.0.0.1", 8080, 8000),
        ("localhost:8080:8000", "127.0.0.1", 8080, 8000),
        ("0.0.0.0:8080:8000", "0.0.0.0", 8080, 8000),
        ("[::1]:8080:8000", "::1", 8080, 8000),
        ("[0:0::1]:0:1", "::1", 0, 1),
        ("preview:65535", None, 0, 65535),
    ],
)
def test_forms(text: str, address: str | None, host_port: int, port: int) -> None:
    mapping = parse_port(text)
    assert (mapping.address, mapping.host_port, mapping.port) == (address, host_port, port)


@pytest.mark.parametrize(
    "text",
    [
        "", ":", "0", "8000:", ":8000", "65536", "8000:0", "-1", "+80", "8 0", "٣", "8000/tcp",
        "localhost.:8080:8000", "::1:8080:8000", "[127.0.0.1]:1:1", "[::1]:8000", "1:2:3:4",
        "127.0.0.1::8000", "preview:", "preview:1:2", "000080", "127.1:1:1", "[::1%lo]:x:1",
    ],
)  # fmt: skip
def test_what_is_none(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_port(text)


def test_what_widens_is_named() -> None:
    assert parse_port("8000").widening is None
    assert parse_port("[::1]:8000:8000").widening is None
    assert parse_port("0:80").widening is None, "the port of the sandbox is its own"
    assert parse_port("preview:80").widening is None
    assert "0.0.0.0" in (parse_port("0.0.0.0:8000:8000").widening or "")
    assert "80" in (parse_port("80").widening or "")
