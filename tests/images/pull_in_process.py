"""Pulls an image in a process of its own, which a test can kill: STORE REFERENCE."""

from __future__ import annotations

import asyncio
import sys

from agentkernel.images.oci.model import Platform
from agentkernel.images.oci.reference import parse_reference
from agentkernel.images.oci.registry.pulling import pull
from agentkernel.images.oci.registry.settings import RegistrySettings
from agentkernel.images.oci.store import ImageStore

if __name__ == "__main__":
    asyncio.run(
        pull(
            ImageStore(sys.argv[1]),
            parse_reference(sys.argv[2]),
            platform=Platform(architecture="amd64", os="linux"),
            settings=RegistrySettings(),
        )
    )
