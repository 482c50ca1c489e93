"""The profiles that ship: complete, small, quick, and as the documentation describes them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentkernel.security.capabilities import ALL_CAPABILITIES
from agentkernel.security.profiles import SECURITY_PROFILES
from agentkernel.security.seccomp import compiler
from agentkernel.security.seccomp.compiler import compile_profile
from agentkernel.security.seccomp.profile import (
    RET_ALLOW,
    RET_ERRNO,
    SHIPPED,
    ArgTest,
    Rule,
    shipped_path,
    shipped_profile,
)
from agentkernel.security.seccomp.syscalls import ARCHES, is_known, table

from .seccomp_harness import interpret, names_by_number, reference, say, verdict

DOC = Path(__file__).parents[3] / "docs" / "reference" / "seccomp.md"
EVERY_CALL = frozenset().union(*(table(arch) for arch in ARCHES))
ALL_ARCHES = pytest.mark.parametrize("arch", sorted(ARCHES))
ALL_PROFILES = pytest.mark.parametrize("profile", SHIPPED)


@ALL_PROFILES
def test_every_name_exists(profile: str) -> None:
    rules = shipped_profile(profile).rules
    assert [name for rule in rules for name in rule.names if not is_known(name)] == []
    for rule in rules:
        assert len(set(rule.names)) == len(rule.names)
        # A stored filter would otherwise depend on the kernel it was made on.
        assert rule.includes.min_kernel is rule.excludes.min_kernel is None


@ALL_PROFILES
def test_the_default_is_eperm(profile: str) -> None:
    assert say(shipped_profile(profile).default_action) == "EPERM"
    assert Path(shipped_path(profile)).stat().st_size < 32_768


@ALL_PROFILES
@ALL_ARCHES
@pytest.mark.parametrize("userns", [False, True])
def test_programs_agree_with_the_rules(profile: str, arch: str, userns: bool) -> None:
    """Every number, with argument words built from every constant the rules compare with."""
    parsed = shipped_profile(profile)
    features = ("userns",) if userns else ()
    caps = SECURITY_PROFILES[profile].capabilities
    rules = parsed.resolve(arch=arch, caps=caps, features=features)
    program = compile_profile(profile, caps, arch, allow_userns=userns)
    assert len(program) // 8 <= 256
    constants = {0, 3, 9, 12, 1 << 31, (1 << 64) - 1}
    for rule in rules:
        constants.update(word for test in rule.args for word in (test.value, test.value_two))
    words = sorted(constants | {word | 1 << 32 for word in constants})
    steps = 0
    for number in [*range(480), 0x40000000, 0x40000010, 0xFFFFFFFF]:
        tested = any(rule.args for rule in rules_for(rules, arch, number))
        for first in words if tested else [0, 1 << 32]:
            for args in ((first, 0, 0), (1, first, 1), (2, 1, first), (16, 3, first)):
                trace = interpret(program, ARCHES[arch].audit, number, args)
                assert trace.verdict == reference(parsed, rules, arch, number, args)
                steps = max(steps, trace.steps)
    assert steps < 80


def rules_for(rules: tuple[Rule, ...], arch: str, number: int) -> Iterator[Rule]:
    name = names_by_number(arch).get(number)
    return (rule for rule in rules if name in rule.names)


@ALL_PROFILES
@ALL_ARCHES
def test_the_kernel_can_cache_what_is_simply_allowed(profile: str, arch: str) -> None:
    """Its emulator follows these instructions on these two words only; see seccomp.c."""
    program = compile_profile(profile, arch=arch)
    rules = shipped_profile(profile).resolve(arch=arch)
    cached = 0
    for number in table(arch).values():
        if any(rule.args for rule in rules_for(rules, arch, number)):
            continue
        trace = interpret(program, ARCHES[arch].audit, number)
        assert trace.loads == {0, 4}
        assert trace.codes <= {0x20, 0x05, 0x15, 0x25, 0x35, 0x06}
        assert trace.steps <= 16
        cached += trace.verdict == RET_ALLOW
    assert cached > 230


def test_compiling_is_quick() -> None:
    for profile in SHIPPED:
        shipped_profile.cache_clear()
        best = 1.0
        for _ in range(10):
            compiler._compiled.cache_clear()
            compiler._caps_named.cache_clear()
            shipped_profile.cache_clear()
            began = time.perf_counter()
            compile_profile(profile, arch="x86_64")
            best = min(best, time.perf_counter() - began)
        assert best < 0.010, "about 2 ms when it was written, reading the file included"


@ALL_ARCHES
@pytest.mark.parametrize("userns", [False, True])
def test_each_profile_allows_no_more_than_the_wider_one(arch: str, userns: bool) -> None:
    for narrow, wide in (("restrictive", "moderate"), ("moderate", "permissive")):
        inner = compile_profile(narrow, arch=arch, allow_userns=userns)
        outer = compile_profile(wide, arch=arch, allow_userns=userns)
        for name in table(arch):
            for args in ((0,), (1, 3), (2, 1, 6), (10, 2, 17), (16, 3, 0), (3, 0x5412), (9, 9)):
                if verdict(inner, arch, name, args) == RET_ALLOW:
                    assert verdict(outer, arch, name, args) == RET_ALLOW, (name, args)


SENSITIVE = {
    # Whatever capabilities are held, in the userns variant too.
    "bpf": "EPERM",
    "clone3": "ENOSYS",
    "finit_module": "EPERM",
    "init_module": "EPERM",
    "delete_module": "EPERM",
    "io_uring_enter": "EPERM",
    "io_uring_register": "EPERM",
    "io_uring_setup": "EPERM",
    "kcmp": "EPERM",
    "kexec_file_load": "EPERM",
    "kexec_load": "EPERM",
    "keyctl": "ENOSYS",
    "add_key": "ENOSYS",
    "request_key": "ENOSYS",
    "memfd_secret": "EPERM",
    "move_pages": "EPERM",
    "open_by_handle_at": "EPERM",
    "name_to_handle_at": "EPERM",
    "perf_event_open": "EPERM",
    "pidfd_getfd": "EPERM",
    "process_vm_readv": "EPERM",
    "process_vm_writev": "EPERM",
    "reboot": "EPERM",
    "settimeofday": "EPERM",
    "clock_settime": "EPERM",
    "adjtimex": "EPERM",
    "swapon": "EPERM",
    "acct": "EPERM",
    "quotactl": "EPERM",
    "syslog": "EPERM",
    "lookup_dcookie": "EPERM",
    "fanotify_init": "EPERM",
    "userfaultfd": "EPERM",
    "vhangup": "EPERM",
}


@ALL_PROFILES
@ALL_ARCHES
@pytest.mark.parametrize("name", SENSITIVE)
def test_nothing_opens_these(profile: str, arch: str, name: str) -> None:
    for caps in ((), ALL_CAPABILITIES):
        for userns in (False, True):
            program = compile_profile(profile, caps, arch, allow_userns=userns)
            assert say(verdict(program, arch, name)) == SENSITIVE[name]


@ALL_ARCHES
def test_what_sandboxed_programs_cannot_do_without(arch: str) -> None:
    for profile in SHIPPED:
        program = compile_profile(profile, arch=arch)
        for name in (
            *("read", "openat", "execve", "mmap", "futex", "kill", "prctl", "seccomp", "rseq"),
            *("landlock_restrict_self", "mknodat", "memfd_create", "vmsplice", "getrandom"),
            *("clone", "wait4", "statx", "faccessat2", "fchmodat2", "close_range", "setpgid"),
        ):
            assert verdict(program, arch, name) == RET_ALLOW, name


def test_namespace_flags_of_clone() -> None:
    closed = compile_profile("moderate", arch="x86_64")
    opened = compile_profile("moderate", arch="x86_64", allow_userns=True)
    threads = 0x3D0F00
    assert verdict(closed, "x86_64", "clone", (threads,)) == RET_ALLOW
    for flag in (0x20000, *(1 << bit for bit in range(25, 31))):
        assert say(verdict(closed, "x86_64", "clone", (flag | 17,))) == "EPERM"
        assert say(verdict(closed, "x86_64", "clone", (flag | 17 | 1 << 32,))) == "EPERM"
        assert verdict(opened, "x86_64", "clone", (flag | 17,)) == RET_ALLOW


@ALL_PROFILES
def test_socket_families(profile: str) -> None:
    """All families, with an upper half that the kernel ignores and without."""
    for userns in (False, True):
        program = compile_profile(profile, ALL_CAPABILITIES, "x86_64", allow_userns=userns)
        for family in range(64):
            for protocol in range(300):
                wanted = family == 1 or (family in (2, 10) and protocol in (0, 1, 6, 17, 58))
                if profile != "restrictive":
                    wanted = wanted or (family == 16 and protocol == 0)
                args = (family | 7 << 32, 1, protocol | 9 << 32)
                assert (verdict(program, "x86_64", "socket", args) == RET_ALLOW) is wanted
        assert say(verdict(program, "x86_64", "socket", (2, 0o2004000 | 10, 0))) == "EAFNOSUPPORT"


# The documentation, read back.


def section(title: str) -> str:
    text = DOC.read_text()
    match = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert match, f"no section {title!r} in {DOC.name}"
    return match[1]


def rows(title: str) -> list[list[str]]:
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def calls_in(cell: str) -> tuple[str, ...]:
    return tuple(re.findall(r"`(\w+)`", cell))


def in_a_word(profile: str, name: str) -> str:
    """What the first table says of one call in one profile."""
    parsed = shipped_profile(profile)
    arch = next(arch for arch in ARCHES if name in table(arch))
    rules = [rule for rule in parsed.resolve(arch=arch) if name in rule.names]
    if any(rule.args for rule in rules):
        return "tests"
    action = rules[0].action if rules else parsed.default_action
    if action == RET_ALLOW:
        return "allow"
    for rule in parsed.rules:
        if name in rule.names and rule.includes.caps and rule.action == RET_ALLOW:
            return " ".join(sorted(rule.includes.caps))
    return say(action)


def test_the_documented_refusals_are_all_and_only_those_there_are() -> None:
    documented: dict[str, list[str]] = {}
    for _group, cell, *words, why in rows("Refused system calls"):
        assert why
        for name in calls_in(cell):
            assert name not in documented, f"{name} is listed twice"
            documented[name] = words
    actual = {name: [in_a_word(profile, name) for profile in SHIPPED] for name in EVERY_CALL}
    refused = {name: words for name, words in actual.items() if words != ["allow"] * 3}
    assert documented == refused


def in_words(test: ArgTest) -> str:
    def number(value: int) -> str:
        return str(value) if value < 256 else hex(value)

    if test.op == "NE":
        return f"`arg{test.index} != {number(test.value)}`"
    assert test.op == "MASKED_EQ"
    if test.value == 0xFFFFFFFF:
        return f"`(int) arg{test.index} == {number(test.value_two)}`"
    return f"`arg{test.index} & {test.value:#x} == {number(test.value_two)}`"


def test_the_documented_tests_are_all_and_only_those_there_are() -> None:
    table_rows = rows("Tests on arguments")
    for letter, profile in zip("PMR", SHIPPED, strict=True):
        documented = [
            (calls_in(calls), test, answer)
            for calls, test, answer, profiles, _why in table_rows
            if letter in profiles
        ]
        tested = {name for row in documented for name in row[0]}
        actual = [
            (rule.names, ", ".join(map(in_words, rule.args)) or "otherwise", say(rule.action))
            for rule in shipped_profile(profile).resolve(arch="x86_64")
            if rule.args or tested & set(rule.names)
        ]
        assert documented == actual, profile


@ALL_PROFILES
def test_the_documented_userns_variant(profile: str) -> None:
    documented = set(calls_in(section("Nested user namespaces").split("\n\n")[1]))
    rules = shipped_profile(profile).rules
    included = [rule for rule in rules if "userns" in rule.includes.features]
    assert {name for rule in included for name in rule.names} == documented
    for rule in included:
        assert rule.action == RET_ALLOW
        assert not rule.args
    everything = [(number,) for number in (0, 1, 2, 16, 1 << 28)]
    for arch in ARCHES:
        closed = compile_profile(profile, arch=arch)
        opened = compile_profile(profile, arch=arch, allow_userns=True)
        for name in table(arch):
            for args in everything:
                after = verdict(opened, arch, name, args)
                assert after == (
                    RET_ALLOW if name in documented else verdict(closed, arch, name, args)
                )


def test_errnos_are_the_documented_few() -> None:
    found = {
        say(rule.action)
        for profile in SHIPPED
        for rule in shipped_profile(profile).rules
        if rule.action & 0xFFFF0000 == RET_ERRNO
    }
    assert found == {"EPERM", "ENOSYS", "EAFNOSUPPORT", "EPROTONOSUPPORT", "errno 0"}
