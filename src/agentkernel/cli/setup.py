"""`agentkernel setup`: make the machine ready; with --check, say what works on it."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys

import msgspec

from agentkernel.errors import InvalidInputError
from agentkernel.kernel.checks import Check, check_backends
from agentkernel.kernel.runs import Runs
from agentkernel.kernel.spec import SandboxSpec


def main(options: argparse.Namespace) -> int:
    if options.check is None:
        return asyncio.run(_prepare(options))
    only = None if options.check == "all" else options.check
    checks = asyncio.run(check_backends(only=only))
    if not checks:
        raise InvalidInputError(
            f"{options.check!r} is not a backend", hint="agentkernel setup --check lists them"
        )
    if options.json:
        print(json.dumps([msgspec.to_builtins(check) for check in checks]))
    else:
        for check in checks:
            _print(check)
    decisive = checks[0]
    return 0 if decisive.works else 1


def _print(check: Check) -> None:
    state = "works" if check.works else "found" if check.found else "absent"
    print(f"{check.backend:<12} {state:<7} {check.detail}")
    if check.supported:
        print(f"{'':<12} {'':<7} tried: {check.tried}")
    if check.hint:
        print(f"{'':<12} {'':<7} hint: {check.hint}")


async def _prepare(options: argparse.Namespace) -> int:
    async with Runs() as runs:
        await runs.create(
            SandboxSpec(), lambda text: print(f"agentkernel: {text} …", file=sys.stderr)
        )
    print(json.dumps({"ready": True}) if options.json else "ready")
    return 0
