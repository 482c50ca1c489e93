"""From parsed options to a spec."""

from __future__ import annotations

import argparse
import os

from agentkernel.cli.values import UNLIMITED
from agentkernel.kernel.spec import SandboxSpec


def spec_of(options: argparse.Namespace) -> SandboxSpec:
    image = options.image
    if image.startswith("~"):
        image = os.path.expanduser(image)
    unlimited = options.disk == UNLIMITED
    return SandboxSpec(
        image=image,
        profile=options.profile,
        user=options.user,
        toolchains=options.toolchains == "host",
        nested_userns=options.nested_userns,
        memory_bytes=options.memory,
        cpus=options.cpus,
        pids=options.pids,
        disk_bytes=None if unlimited else options.disk,
        unlimited_disk=unlimited,
        nofile=options.nofile,
    )
