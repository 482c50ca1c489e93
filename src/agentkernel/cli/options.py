"""From parsed options to a spec."""

from __future__ import annotations

import argparse

from agentkernel.cli.fields import spec_fields
from agentkernel.kernel.spec import SandboxSpec


def spec_of(options: argparse.Namespace) -> SandboxSpec:
    return SandboxSpec(**spec_fields(options))
