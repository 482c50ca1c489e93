"""Capability names, numbers and masks; the security profiles that use them."""

from __future__ import annotations

import dataclasses
import itertools
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.errors import InvalidInputError
from agentkernel.security.capabilities import (
    ALL_CAPABILITIES,
    CAPABILITIES,
    LAST_CAP,
    capability_name,
    capability_number,
    capability_set,
    from_mask,
    to_mask,
)
from agentkernel.security.profiles import (
    DEFAULT_PROFILE,
    SECURITY_PROFILES,
    Limits,
    security_profile,
)
from agentkernel.security.seccomp.profile import SHIPPED

HEADER = Path("/usr/include/linux/capability.h")
ORDER = ("restrictive", "moderate", "permissive")


def test_numbers_agree_with_the_header() -> None:
    if not HEADER.exists():
        pytest.skip("no kernel headers here")
    found = re.findall(r"^#define (CAP_\w+)\s+(\d+)$", HEADER.read_text(), re.MULTILINE)
    assert len(found) >= 38
    for name, number in found:
        assert capability_number(name) == int(number)


def test_there_are_forty_one() -> None:
    assert LAST_CAP == 40
    assert len(ALL_CAPABILITIES) == len(CAPABILITIES) == 41
    assert CAPABILITIES[21] == "CAP_SYS_ADMIN"


@pytest.mark.parametrize("word", ["CAP_NET_RAW", "cap_net_raw", "NET_RAW", "net_raw", " net_raw "])
def test_spellings(word: str) -> None:
    assert capability_name(word) == "CAP_NET_RAW"


@pytest.mark.parametrize("word", ["", "CAP_", "CAP_CAP_CHOWN", "CAP_FLY", "ALL", "ſetuid"])
def test_unknown_names_are_refused(word: str) -> None:
    with pytest.raises(InvalidInputError):
        capability_name(word)
    with pytest.raises(InvalidInputError):
        to_mask([word])


def test_one_string_is_not_a_list_of_names() -> None:
    with pytest.raises(InvalidInputError):
        capability_set("CAP_KILL")


@given(st.sets(st.sampled_from(CAPABILITIES)))
def test_masks_round_trip(names: set[str]) -> None:
    assert from_mask(to_mask(names)) == names


@pytest.mark.parametrize("mask", [-1, 1 << 41, (1 << 64) - 1])
def test_masks_with_unknown_bits_are_refused(mask: int) -> None:
    with pytest.raises(InvalidInputError):
        from_mask(mask)


def test_docker_default_mask() -> None:
    # What /proc/1/status shows as CapBnd in a Docker container with default options.
    assert to_mask(security_profile("permissive").capabilities) == 0xA80425FB


def test_profiles_only_widen() -> None:
    assert set(SECURITY_PROFILES) == set(ORDER) == set(SHIPPED)
    for narrow, wide in itertools.pairwise(ORDER):
        low, high = SECURITY_PROFILES[narrow], SECURITY_PROFILES[wide]
        assert low.capabilities <= high.capabilities
        for field in dataclasses.fields(Limits):
            less, more = getattr(low.limits, field.name), getattr(high.limits, field.name)
            assert more is None or (less is not None and less <= more), field.name


def test_no_profile_gives_what_reaches_the_host() -> None:
    dangerous = {
        *("CAP_SYS_ADMIN", "CAP_SYS_PTRACE", "CAP_SYS_MODULE", "CAP_SYS_RAWIO", "CAP_BPF"),
        *("CAP_NET_ADMIN", "CAP_DAC_READ_SEARCH", "CAP_PERFMON", "CAP_SYS_TIME", "CAP_SYSLOG"),
        *("CAP_SYS_BOOT", "CAP_SYS_RESOURCE", "CAP_CHECKPOINT_RESTORE", "CAP_AUDIT_CONTROL"),
    }
    for profile in SECURITY_PROFILES.values():
        assert not profile.capabilities & dangerous
        assert profile.capabilities <= ALL_CAPABILITIES


def test_a_user_other_than_root_has_no_capability() -> None:
    for profile in SECURITY_PROFILES.values():
        assert profile.capabilities_for(1000) == frozenset()
        assert profile.capabilities_for(0) == profile.capabilities
    assert security_profile("restrictive").capabilities == frozenset()


def test_profiles_by_name() -> None:
    assert security_profile() is SECURITY_PROFILES[DEFAULT_PROFILE]
    assert all(name == profile.name for name, profile in SECURITY_PROFILES.items())
    with pytest.raises(InvalidInputError, match="unknown security profile"):
        security_profile("paranoid")


def test_what_is_bounded_everywhere() -> None:
    for profile in SECURITY_PROFILES.values():
        limits = profile.limits
        assert 0 < limits.pids <= 4096
        assert limits.exec_timeout is None
        assert min(limits.output_bytes, limits.tmp_bytes, limits.shm_bytes, limits.run_bytes) > 0
        assert limits.tmpfs_inodes > 0
