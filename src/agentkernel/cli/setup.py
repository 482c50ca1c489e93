"""`agentkernel setup`: make the machine ready; with --check, say what works on it."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from agentkernel.errors import InvalidInputError
from agentkernel.kernel.checks import Check, check_backends
from agentkernel.kernel.runs import Runs
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.kernel.state import state_directory

_STATES = {"passed": "ok", "failed": "FAILED", "not_here": "not here"}


def main(options: argparse.Namespace) -> int:
    if options.check is None:
        return asyncio.run(_prepare(options))
    only = None if options.check == "all" else options.check
    checks = asyncio.run(check_backends(only=only))
    if not checks:
        raise InvalidInputError(
            f"{options.check!r} is not a backend", hint="agentkernel setup --check lists them"
        )
    if not options.json:
        for check in checks:
            _print(check)
    decisive = checks[0]
    cases = []
    if only and decisive.works:
        cases = asyncio.run(_conformance(only, None if options.json else _print_case))
    if options.json:
        described = [msgspec.to_builtins(check) for check in checks]
        if only:
            described[0]["conformance"] = cases
        print(json.dumps(described))
    failed = any(case["state"] == "failed" for case in cases)
    return 0 if decisive.works and not failed else 1


async def _conformance(
    backend: str, tell: Callable[[dict[str, Any]], None] | None
) -> list[dict[str, Any]]:
    """In a state directory of its own: nobody else removes what a case left on purpose."""
    from agentkernel.conformance import check

    parent = state_directory()
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    results = []
    with tempfile.TemporaryDirectory(prefix="conformance-", dir=parent) as state_dir:
        async for result in check(backend, Path(state_dir)):
            results.append(msgspec.to_builtins(result))
            if tell:
                tell(results[-1])
    return results


def _print_case(case: dict[str, Any]) -> None:
    print(f"{'':<12} {_STATES[case['state']]:<9} {case['name']}: {case['about']}", flush=True)
    if case["detail"]:
        print(f"{'':<12} {'':<9} {case['detail']}")


def _print(check: Check) -> None:
    state = "works" if check.works else "found" if check.found else "absent"
    print(f"{check.backend:<12} {state:<7} {check.detail}", flush=True)
    if check.supported and check.found:
        print(f"{'':<12} {'':<7} tried: {check.tried}")
        print(f"{'':<12} {'':<7} isolation: {check.isolation}")
    if check.hint:
        print(f"{'':<12} {'':<7} hint: {check.hint}")


async def _prepare(options: argparse.Namespace) -> int:
    async with Runs() as runs:
        await runs.create(
            SandboxSpec(), lambda text: print(f"agentkernel: {text} …", file=sys.stderr)
        )
    print(json.dumps({"ready": True}) if options.json else "ready")
    return 0
