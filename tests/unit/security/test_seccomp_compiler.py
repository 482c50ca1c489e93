"""The compiler against a naive reading of the rules."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkernel.errors import InvalidInputError
from agentkernel.security.seccomp import compiler
from agentkernel.security.seccomp.compiler import cache_key, compile_profile, compile_rules
from agentkernel.security.seccomp.profile import (
    RET_ALLOW,
    RET_ERRNO,
    RET_KILL_PROCESS,
    ArgTest,
    parse_profile,
)
from agentkernel.security.seccomp.syscalls import ARCHES, table

from .seccomp_harness import NATIVE, U64, holds, interpret, probe, reference, verdict

EPERM = RET_ERRNO | errno.EPERM
ENOSYS = RET_ERRNO | errno.ENOSYS
NAMES = ["read", "write", "close", "ioctl", "socket", "clone", "clone3", "statx", "file_setattr"]
HALVES = [0, 1, 2, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF, 0x5412]
OPS = ["EQ", "NE", "LT", "LE", "GT", "GE", "MASKED_EQ"]

words = st.one_of(
    st.builds(lambda high, low: high << 32 | low, st.sampled_from(HALVES), st.sampled_from(HALVES)),
    st.integers(0, U64),
)


@st.composite
def arg_tests(draw: st.DrawFn) -> dict[str, Any]:
    op = draw(st.sampled_from(OPS))
    value = draw(words)
    two = draw(words) & value if op == "MASKED_EQ" else 0
    index = draw(st.integers(0, 2))
    return {"index": index, "op": f"SCMP_CMP_{op}", "value": value, "valueTwo": two}


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    actions = st.sampled_from(
        [
            {"action": "SCMP_ACT_ALLOW"},
            {"action": "SCMP_ACT_ERRNO"},
            {"action": "SCMP_ACT_ERRNO", "errnoRet": 38},
            {"action": "SCMP_ACT_KILL_PROCESS"},
            {"action": "SCMP_ACT_LOG"},
        ]
    )
    rule = st.builds(
        lambda names, action, args: {"names": names, **action, "args": args},
        st.lists(st.sampled_from(NAMES), min_size=1, max_size=4),
        actions,
        st.lists(arg_tests(), max_size=3),
    )
    return {
        "defaultAction": draw(st.sampled_from(["SCMP_ACT_ERRNO", "SCMP_ACT_ALLOW"])),
        "syscalls": draw(st.lists(rule, max_size=8)),
    }


@settings(max_examples=400, deadline=None)
@given(
    documents(),
    st.sampled_from(sorted(ARCHES)),
    st.lists(st.tuples(words, words, words), min_size=1, max_size=6),
    st.data(),
)
def test_every_program_agrees_with_the_rules(
    document: dict[str, Any], arch: str, calls: list[tuple[int, ...]], data: st.DataObject
) -> None:
    profile = parse_profile(document)
    program = compile_rules(profile, arch=arch)
    used = sorted({test.value for rule in profile.rules for test in rule.args}) or [0]
    near = data.draw(st.sampled_from(used))
    calls = [*calls, *((near + step & U64,) * 3 for step in (-1, 0, 1, 1 << 32))]
    numbers = [table(arch)[name] for name in NAMES] + [5, 244, 400, 470, 0x40000001, 0xFFFFFFFF]
    for number in numbers:
        for args in calls:
            trace = interpret(program, ARCHES[arch].audit, number, args)
            assert trace.verdict == reference(profile, profile.rules, arch, number, args)


@pytest.mark.parametrize("op", OPS)
@given(value=words, mask=words, argument=words)
def test_each_operator_is_a_64_bit_comparison(
    op: str, value: int, mask: int, argument: int
) -> None:
    two = value & mask if op == "MASKED_EQ" else 0
    test = ArgTest(1, op, mask if op == "MASKED_EQ" else value, two)
    entry = {"index": 1, "op": f"SCMP_CMP_{op}", "value": test.value, "valueTwo": two}
    program = compile_rules(
        parse_profile(
            {
                "defaultAction": "SCMP_ACT_ERRNO",
                "syscalls": [{"names": ["ioctl"], "action": "SCMP_ACT_ALLOW", "args": [entry]}],
            }
        ),
        arch="x86_64",
    )
    for word in (argument, test.value, (test.value + 1) & U64, (test.value - 1) & U64, two):
        expected = RET_ALLOW if holds(test, (0, word)) else EPERM
        assert verdict(program, "x86_64", "ioctl", (0, word)) == expected


def allow(*names: str, **more: Any) -> dict[str, Any]:
    return {"names": list(names), "action": "SCMP_ACT_ALLOW", **more}


def build(*rules: dict[str, Any], default: str = "SCMP_ACT_ERRNO", arch: str = "x86_64") -> bytes:
    document = {"defaultAction": default, "syscalls": list(rules)}
    return compile_rules(parse_profile(document), arch=arch)


def test_another_architecture_is_killed() -> None:
    program = build(allow(*NAMES))
    i386 = 0x40000003
    for foreign in (i386, ARCHES["aarch64"].audit, 0):
        assert interpret(program, foreign, 0).verdict == RET_KILL_PROCESS


@pytest.mark.parametrize("default", ["SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO", "SCMP_ACT_KILL_PROCESS"])
def test_x32_calls_do_not_exist(default: str) -> None:
    program = build(allow(*NAMES), default=default)
    for number in (0x40000000, 0x40000000 + 16, 0x40000000 + 512, 0x7FFFFFFF, 0xFFFFFFFF):
        assert verdict(program, "x86_64", number) == ENOSYS


@pytest.mark.parametrize("arch", sorted(ARCHES))
def test_unknown_numbers_do_not_exist_when_the_default_denies(arch: str) -> None:
    top = max(table(arch).values())
    program = build(allow("read"), arch=arch)
    gap = 400 if arch == "x86_64" else 250
    for number in (gap, top + 1, 1000, 0x3FFFFFFF):
        assert verdict(program, arch, number) == ENOSYS
    assert verdict(program, arch, top) == EPERM
    assert verdict(build(default="SCMP_ACT_ALLOW", arch=arch), arch, top + 1) == RET_ALLOW
    killing = build(default="SCMP_ACT_KILL_PROCESS", arch=arch)
    assert verdict(killing, arch, top + 1) == RET_KILL_PROCESS


def test_the_first_match_decides() -> None:
    one = [{"index": 0, "op": "SCMP_CMP_EQ", "value": 1}]
    denied = {"names": ["ioctl"], "action": "SCMP_ACT_ERRNO", "errnoRet": 22, "args": one}
    first = build(denied, allow("ioctl"))
    assert verdict(first, "x86_64", "ioctl", (1,)) == RET_ERRNO | 22
    assert verdict(first, "x86_64", "ioctl", (2,)) == RET_ALLOW
    assert verdict(build(allow("ioctl"), denied), "x86_64", "ioctl", (1,)) == RET_ALLOW


def test_a_name_of_another_architecture_is_ignored() -> None:
    program = build(allow("arch_prctl", "no_such_call", "read"), arch="aarch64")
    assert verdict(program, "aarch64", "read") == RET_ALLOW


def many_rules(count: int, action: str = "SCMP_ACT_ALLOW") -> list[dict[str, Any]]:
    """Argument tests that cannot be merged, spread over every second system call."""
    names = sorted(table("x86_64"), key=table("x86_64").__getitem__)[::2]
    return [
        {
            "names": [names[number % len(names)]],
            "action": action,
            "args": [{"index": 0, "op": "SCMP_CMP_EQ", "value": number << 33 | number}],
        }
        for number in range(1, count + 1)
    ]


def test_far_jumps_reach(tmp_path: Path) -> None:
    rules = many_rules(500)
    profile = parse_profile({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": rules})
    program = compile_rules(profile, arch="x86_64")
    assert len(program) // 8 > 2000
    for number in range(480):
        for value in (0, *(n << 33 | n for n in range(1, 500, 41))):
            expected = reference(profile, profile.rules, "x86_64", number, (value,))
            assert verdict(program, "x86_64", number, (value,)) == expected
    for rule in rules:
        value = rule["args"][0]["value"]
        assert verdict(program, "x86_64", rule["names"][0], (value,)) == RET_ALLOW
    if NATIVE == "x86_64":
        living = build(*many_rules(500, "SCMP_ACT_ERRNO"), default="SCMP_ACT_ALLOW")
        assert len(living) // 8 > 2000
        assert probe(living, [(table("x86_64")["getpid"], ())], tmp_path) == ["ok"]


def test_a_program_the_kernel_would_refuse_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match="4096"):
        build(*many_rules(1200))


def test_compiled_profiles_are_remembered_by_what_matters() -> None:
    first = compile_profile("moderate", ["CAP_CHOWN"])
    assert compile_profile("moderate", ["CAP_KILL"]) is first
    assert compile_profile("moderate", ["CAP_SYS_CHROOT"]) != first
    assert compile_profile("moderate", allow_userns=True) != first
    with pytest.raises(InvalidInputError, match="unknown seccomp profile"):
        compile_profile("../moderate")
    with pytest.raises(InvalidInputError, match="unknown architecture"):
        compile_profile("moderate", arch="sparc")
    with pytest.raises(InvalidInputError, match="unknown capability"):
        compile_profile("moderate", ["CAP_FLY"])


def test_the_cache_key_names_every_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    variants = [
        cache_key("moderate", arch="x86_64"),
        cache_key("permissive", arch="x86_64"),
        cache_key("moderate", arch="aarch64"),
        cache_key("moderate", ["CAP_SYS_CHROOT"], "x86_64"),
        cache_key("moderate", arch="x86_64", allow_userns=True),
    ]
    assert len(set(variants)) == len(variants)
    assert cache_key("moderate", arch="x86_64") == variants[0]
    changed = tmp_path / "changed.json"
    changed.write_text("{}")
    monkeypatch.setattr(compiler, "shipped_path", lambda name: str(changed))
    assert cache_key("moderate", arch="x86_64") != variants[0]
