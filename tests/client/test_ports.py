"""Ports over the SDK, both of them: published, seen, closed."""

from __future__ import annotations

import socket

import pytest

from agentkernel import AsyncSandbox, Sandbox, errors

pytestmark = pytest.mark.usefixtures("daemon_dir")


def test_ports_of_a_sandbox() -> None:
    with Sandbox.create(ports=["0:8000"]) as sandbox:
        [port] = sandbox.ports.list()
        assert (port.port, port.address, port.open, port.public) == (8000, "127.0.0.1", True, False)
        assert port.host_port and port.token
        made = sandbox.ports.publish("preview:3000", public=True)
        assert (made.address, made.host_port, made.public) == (None, None, True)
        assert made.preview_host == f"3000-{sandbox.id}.localhost"
        with pytest.raises(errors.NotFoundError, match="no network"):
            sandbox.preview_url(3000)
        with pytest.raises(errors.NotFoundError, match="not published"):
            sandbox.preview_url(4000)
        with pytest.raises(errors.ConflictError):
            sandbox.ports.publish(3000)
        sandbox.ports.unpublish(8000)
        with socket.socket() as sock:
            assert sock.connect_ex(("127.0.0.1", port.host_port)) != 0
        assert [entry.port for entry in sandbox.ports.list()] == [3000]


async def test_the_same_without_blocking() -> None:
    async with await AsyncSandbox.create() as sandbox:
        made = await sandbox.ports.publish("0:8000")
        assert made.open and [port.port for port in await sandbox.ports.list()] == [8000]
        await sandbox.ports.unpublish(8000)
        assert await sandbox.ports.list() == []
