"""File calls into a sandbox of its own for every test."""

from __future__ import annotations

import pytest

from agentkernel.backends.base import Sandbox
from agentkernel.guest.files import GuestFiles


@pytest.fixture
async def files(sandbox: Sandbox) -> GuestFiles:
    """With the rights of the sandbox's root, below a directory /w that is there."""
    files = GuestFiles(sandbox.channel)
    await files.mkdir("/w")
    return files
