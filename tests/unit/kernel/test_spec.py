"""Specs: sparse in, complete out, nonsense refused."""

from __future__ import annotations

import msgspec
import pytest

from agentkernel.errors import InvalidInputError, UnenforceableError
from agentkernel.kernel import spec as specs
from agentkernel.kernel.spec import SandboxSpec, expand
from agentkernel.security.profiles import security_profile


def test_profile_fills_in_what_is_left_out() -> None:
    blueprint = expand(SandboxSpec(profile="restrictive"), owned=True)
    defaults = security_profile("restrictive").limits
    assert blueprint.capabilities == frozenset()
    assert blueprint.limits.memory_bytes == defaults.memory_bytes
    assert blueprint.explicit == frozenset()


def test_explicit_values_win_and_are_known_as_such() -> None:
    blueprint = expand(SandboxSpec(profile="restrictive", memory_bytes=1 << 30, pids=7), owned=True)
    assert (blueprint.limits.memory_bytes, blueprint.limits.pids) == (1 << 30, 7)
    assert blueprint.explicit == {"memory", "pids"}


def test_default_disk_leaves_half_of_the_memory() -> None:
    assert expand(SandboxSpec(memory_bytes=1 << 30), owned=True).limits.disk_bytes == 1 << 29
    assert expand(SandboxSpec(disk_bytes=1 << 30), owned=True).limits.disk_bytes == 1 << 30
    assert expand(SandboxSpec(unlimited_disk=True), owned=True).limits.disk_bytes is None


def test_disk_in_memory_needs_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specs, "kernel_version", lambda: (6, 1))
    assert expand(SandboxSpec(), owned=True).limits.disk_bytes is None
    with pytest.raises(UnenforceableError, match="6.6"):
        expand(SandboxSpec(disk_bytes=1 << 30), owned=True)


@pytest.mark.parametrize(
    "nonsense",
    [{"memory_bytes": 1}, {"cpus": 0.0}, {"pids": 1}, {"disk_bytes": 5}, {"nofile": 0},
     {"profile": "open"}, {"cpus": float("nan")}, {"memory_bytes": 1 << 63}, {"pids": 1 << 40},
     {"disk_bytes": 1 << 61}, {"nofile": 1 << 32}],
)  # fmt: skip
def test_nonsense_is_refused(nonsense: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError):
        expand(SandboxSpec(**nonsense), owned=True)  # type: ignore[arg-type]


def test_unknown_fields_are_errors() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"imagee": "host"}', type=SandboxSpec)
