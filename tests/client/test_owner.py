"""A client that is taken for another owner."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.client._sync.sandbox import Sandbox
from agentkernel.client._sync.transport import Transport
from agentkernel.errors import InvalidInputError, NotFoundError


def test_every_kind_of_call_has_the_owner(daemon_dir: Path) -> None:
    claude = Transport(owner="mcp:claude")
    with Sandbox.create(transport=claude) as sandbox:
        assert [entry.id for entry in Sandbox.list(transport=claude)] == [sandbox.id]
        assert sandbox.id not in [entry.id for entry in Sandbox.list(transport=Transport())]
        with pytest.raises(NotFoundError):
            Sandbox.connect(sandbox.id, transport=Transport(owner="mcp:codex"))
        # A request, a stream, an upload in pieces, a download in pieces.
        assert sandbox.exec("echo 1").stdout == "1\n"
        with sandbox.stream("echo 2") as stream:
            assert b"".join(chunk.data for chunk in stream) == b"2\n"
        assert sandbox.files.write("/tmp/a", iter([b"th", b"ree"])) == 5
        assert b"".join(sandbox.files.read_stream("/tmp/a")) == b"three"


def test_the_environment_names_the_owner(daemon_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Sandbox.create(transport=Transport(owner="mcp:claude")) as sandbox:
        monkeypatch.setenv("AGENTKERNEL_OWNER", "mcp:claude")
        assert [entry.id for entry in Sandbox.list(transport=Transport())] == [sandbox.id]
        other = Transport(owner="mcp:codex")
        assert Sandbox.list(transport=other) == []


@pytest.mark.parametrize("owner", ["a\r\nb: c", "\u00e9", "UPPER", "a b"])
def test_owners_that_are_none(daemon_dir: Path, owner: str) -> None:
    with pytest.raises(InvalidInputError):
        Sandbox.list(transport=Transport(owner=owner))
