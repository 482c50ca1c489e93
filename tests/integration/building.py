"""Builds for tests: a context from a few files, and a small root to run commands in."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentkernel.images.dockerfile.parse import parse
from agentkernel.kernel.building.model import BuildEvent, BuildRequest, Built
from agentkernel.kernel.kernel import Kernel
from agentkernel.network.policy.request import NetworkRequest

from ..unit.images.building.making import Files, archive_of

# A root with a shell and nothing else; its layers are made once for a state directory.
BASE = """\
FROM scratch AS base
COPY --chmod=0755 busybox /bin/busybox
RUN ["/bin/busybox", "mkdir", "-m", "1777", "/tmp"]
RUN ["/bin/busybox", "--install", "-s", "/bin"]
RUN mkdir -p /etc && echo root:x:0:0:root:/:/bin/sh > /etc/passwd && echo root:x:0: > /etc/group
"""
NO_NETWORK = NetworkRequest(presets=["none"])


def busybox() -> bytes:
    path = shutil.which("busybox")
    if path is None:
        pytest.skip("busybox-static is not installed: there is no shell for a small image")
    return Path(path).read_bytes()


async def build(
    kernel: Kernel,
    dockerfile: str,
    files: Files | None = None,
    *,
    modes: dict[str, int] | None = None,
    events: list[BuildEvent] | None = None,
    tags: Sequence[str] = (),
    network: NetworkRequest | None = NO_NETWORK,
    **wanted: Any,
) -> Built:
    """With BASE before it, unless it has stages itself."""
    files = dict(files or {})
    if "FROM" not in dockerfile:
        dockerfile = BASE + dockerfile
    if "busybox" in dockerfile:
        files["busybox"] = busybox()

    async def report(event: BuildEvent) -> None:
        if events is not None:
            events.append(event)

    with kernel.builds.context() as context:
        context.feed(archive_of(files, modes))
        context.finish()
        request = BuildRequest(tags=list(tags), network=network, **wanted)
        return await kernel.builds.build(
            parse(dockerfile.encode()), context, request, report=report
        )
