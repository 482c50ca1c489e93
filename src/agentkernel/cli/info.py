"""`agentkernel info`: what a sandbox with these options has, and what enforces it."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator

import msgspec

from agentkernel.backends.base import NOT_AVAILABLE, EffectiveLine
from agentkernel.cli import project
from agentkernel.cli.options import spec_of
from agentkernel.cli.values import printable
from agentkernel.errors import NetworkUnavailableError
from agentkernel.kernel.network_making import NetworkMaking, has_any
from agentkernel.kernel.runs import Runs
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.network.policy.judging import rule_text
from agentkernel.network.policy.model import Policy
from agentkernel.network.policy.presets import NONE
from agentkernel.network.policy.request import NetworkRequest


def main(options: argparse.Namespace) -> int:
    project.apply(options)
    spec = spec_of(options)
    effective = asyncio.run(_find_out(spec))
    if options.json:
        lines = [
            {"what": line.what, "value": line.value, "enforced_by": line.enforced_by}
            for line in effective
        ]
        print(json.dumps({"backend": spec.backend, "effective": lines}))
        return 0
    width = max(len(line.what) for line in effective)
    for line in effective:
        by = f"  [{line.enforced_by}]" if line.enforced_by else ""
        print(f"{line.what:<{width}}  {printable(line.value)}{printable(by)}")
    return 0


async def _find_out(spec: SandboxSpec) -> list[EffectiveLine]:
    """Off a sandbox that is made for it, with the rules of a network that the daemon would serve.
    Secrets and ports are the daemon's, and nothing here depends on them."""
    async with Runs() as runs:
        making = NetworkMaking(runs.state_dir)
        setting = making.setting(spec.network, spec.profile)
        operator = making.operator()
        closed = NetworkRequest(presets=[NONE])
        alone = msgspec.structs.replace(spec, network=closed, secrets=[], ports=[])
        if not has_any(setting):
            return list((await runs.create(alone, _tell)).effective)
        try:
            lines = list((await runs.create(alone, _tell, way_out=True)).effective)
        except NetworkUnavailableError as exc:
            if spec.network is not None:
                raise
            lines = list((await runs.create(alone, _tell)).effective)
            at = _place(lines)
            lines[at] = msgspec.structs.replace(
                lines[at], enforced_by=f"{NOT_AVAILABLE}: {exc.message}"
            )
            return lines
    at = _place(lines) + 1
    lines[at:at] = [*_reached(setting.policy), *_floor(operator.floor)]
    return lines


def _tell(text: str) -> None:
    print(f"agentkernel: {text} …", file=sys.stderr)


def _place(lines: list[EffectiveLine]) -> int:
    return next(number for number, line in enumerate(lines) if line.what == "network")


def _reached(policy: Policy) -> Iterator[EffectiveLine]:
    for rule in policy.rules:
        yield EffectiveLine("network rule", rule_text(rule), f"gateway: {rule.source}")


def _floor(floor: Policy | None) -> Iterator[EffectiveLine]:
    if floor is not None:
        rules = "; ".join(map(rule_text, floor.rules)) or "nothing"
        yield EffectiveLine("network bound", rules, "gateway: network.floor of config.toml")
