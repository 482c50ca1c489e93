"""From parsed options to a spec."""

from __future__ import annotations

import argparse

import msgspec

from agentkernel.cli.fields import spec_fields
from agentkernel.kernel.spec import SandboxSpec


def spec_of(options: argparse.Namespace) -> SandboxSpec:
    """Preconditions: `project.apply` has put in what the files say."""
    return msgspec.convert(spec_fields(options), SandboxSpec)
