"""Whether an image is in reach: asked briefly, and of nobody whom the caller may not reach."""

from __future__ import annotations

import http.server
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agentkernel.errors import InvalidInputError
from agentkernel.images.oci.reach import public_only
from agentkernel.images.oci.registry import reaching
from agentkernel.kernel.kernel import Kernel

pytestmark = pytest.mark.anyio


class _Registry(http.server.BaseHTTPRequestHandler):
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        found = self.path in ("/v2/", "/v2/app/manifests/1")
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []
    handler = type("Registry", (_Registry,), {"asked": asked})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


@pytest.fixture
async def kernel(own_state: Path) -> AsyncIterator[Kernel]:
    async with Kernel(own_state) as kernel:
        yield kernel


async def test_in_reach(kernel: Kernel, registry: tuple[str, list[str]]) -> None:
    place, asked = registry
    assert await kernel.images.in_reach(f"{place}/app:1")
    assert not await kernel.images.in_reach(f"{place}/app:2")
    assert f"/v2/app/manifests/{2}" in asked
    assert not await kernel.images.in_reach("localhost/app:1")
    with pytest.raises(InvalidInputError):
        await kernel.images.in_reach("Not A Name")


async def test_who_may_reach_only_what_is_public(
    kernel: Kernel, registry: tuple[str, list[str]]
) -> None:
    place, asked = registry
    token = public_only.set(True)
    try:
        assert not await kernel.images.in_reach(f"{place}/app:1")
    finally:
        public_only.reset(token)
    assert asked == []
    assert await kernel.images.in_reach(f"{place}/app:1")


async def test_a_registry_that_is_silent_is_asked_once(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[object] = []

    async def silent(reference: object, settings: object) -> tuple[bool, bool]:
        tries.append(reference)
        return False, False

    monkeypatch.setattr(reaching, "in_reach", silent)
    for name in ("a", "b", "a"):
        assert not await kernel.images.in_reach(f"registry.example/{name}")
    assert len(tries) == 1
    assert not await kernel.images.in_reach("other.example/a")
    assert len(tries) == 2
