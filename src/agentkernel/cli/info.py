"""`agentkernel info`: what a sandbox with these options has, and what enforces it."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys

from agentkernel.backends.base import Sandbox
from agentkernel.cli import project
from agentkernel.cli.options import spec_of
from agentkernel.cli.values import printable
from agentkernel.kernel.runs import Runs
from agentkernel.kernel.spec import SandboxSpec


def main(options: argparse.Namespace) -> int:
    project.apply(options)
    spec = spec_of(options)
    sandbox = asyncio.run(_make(spec))
    if options.json:
        lines = [
            {"what": line.what, "value": line.value, "enforced_by": line.enforced_by}
            for line in sandbox.effective
        ]
        print(json.dumps({"backend": spec.backend, "effective": lines}))
        return 0
    width = max(len(line.what) for line in sandbox.effective)
    for line in sandbox.effective:
        by = f"  [{line.enforced_by}]" if line.enforced_by else ""
        print(f"{line.what:<{width}}  {printable(line.value)}{printable(by)}")
    return 0


async def _make(spec: SandboxSpec) -> Sandbox:
    async with Runs() as runs:
        return await runs.create(
            spec, lambda text: print(f"agentkernel: {text} …", file=sys.stderr)
        )
