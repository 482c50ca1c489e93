"""Specs: sparse in, complete out, nonsense refused."""

from __future__ import annotations

import msgspec
import pytest

from agentkernel.config.schema import KEYS, LEAST_DISK, LEAST_MEMORY
from agentkernel.errors import InvalidInputError
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


def test_best_effort_makes_nothing_explicit() -> None:
    blueprint = expand(SandboxSpec(memory_bytes=1 << 30, best_effort=True), owned=True)
    assert (blueprint.limits.memory_bytes, blueprint.explicit) == (1 << 30, frozenset())


def test_a_kept_disk_is_bounded_only_if_asked() -> None:
    assert expand(SandboxSpec(ephemeral=False), owned=False).limits.disk_bytes is None
    kept = expand(SandboxSpec(ephemeral=False, disk_bytes=1 << 40), owned=False)
    assert (kept.limits.disk_bytes, kept.ephemeral) == (1 << 40, False)
    assert kept.limits.memory_bytes == security_profile().limits.memory_bytes
    with pytest.raises(InvalidInputError, match="disk must be at least"):
        expand(SandboxSpec(ephemeral=False, disk_bytes=1 << 20), owned=False)


@pytest.mark.parametrize(
    "nonsense",
    [{"memory_bytes": 1}, {"cpus": 0.0}, {"pids": 1}, {"disk_bytes": 5}, {"nofile": 0},
     {"profile": "open"}, {"cpus": float("nan")}, {"memory_bytes": 1 << 63}, {"pids": 1 << 40},
     {"disk_bytes": 1 << 61}, {"nofile": 1 << 32}],
)  # fmt: skip
def test_nonsense_is_refused(nonsense: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError):
        expand(SandboxSpec(**nonsense), owned=True)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("key", "field", "least"),
    [
        ("limits.memory", "memory_bytes", LEAST_MEMORY),
        ("limits.disk", "disk_bytes", LEAST_DISK),
        ("limits.pids", "pids", 4),
        ("limits.nofile", "nofile", 16),
    ],
)
def test_files_and_specs_refuse_the_same(key: str, field: str, least: int) -> None:
    fields: dict[str, object] = {"memory_bytes": LEAST_MEMORY, field: least}
    assert expand(SandboxSpec(**fields), owned=True)  # type: ignore[arg-type]
    assert KEYS[key].check(least) == least
    fields[field] = least - 1
    with pytest.raises(InvalidInputError):
        expand(SandboxSpec(**fields), owned=True)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        KEYS[key].check(least - 1)


def test_what_commands_get_is_part_of_the_limits() -> None:
    spec = SandboxSpec(command_timeout_seconds=3, command_output_bytes=0)
    limits = expand(spec, owned=True).limits
    assert (limits.exec_timeout, limits.output_bytes) == (3, 0)
    assert expand(SandboxSpec(), owned=True).limits.output_bytes == 16 << 20


def test_unknown_fields_are_errors() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"imagee": "host"}', type=SandboxSpec)
