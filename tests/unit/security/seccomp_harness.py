"""What the seccomp tests share: a BPF interpreter, a naive evaluator, a runner for real filters.

The interpreter and the evaluator share no code with the compiler on purpose: one executes the
bytes, the other reads the rules, and the tests compare the two.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentkernel.security.seccomp.profile import (
    RET_ALLOW,
    RET_ERRNO,
    RET_KILL_PROCESS,
    ArgTest,
    Profile,
    Rule,
)
from agentkernel.security.seccomp.syscalls import ARCHES, table

CHILD = Path(__file__).with_name("seccomp_child.py")
NATIVE = os.uname().machine
U64 = (1 << 64) - 1


class Trace:
    """One run of a program: its verdict, how far it went, what it looked at."""

    def __init__(self, verdict: int, steps: int, loads: set[int], codes: set[int]) -> None:
        self.verdict = verdict
        self.steps = steps
        self.loads = loads
        self.codes = codes


@functools.lru_cache(maxsize=8)
def decode(program: bytes) -> list[tuple[int, int, int, int]]:
    """Code, two jump offsets and the constant of each instruction."""
    code = [(op, jt, jf, k) for op, jt, jf, k in struct.iter_unpack("<HBBI", program)]
    assert 0 < len(code) <= 4096
    assert code[-1][0] == 0x06, "the kernel wants a return at the end"
    return code


@functools.cache
def names_by_number(arch: str) -> dict[int, str]:
    return {number: name for name, number in table(arch).items()}


def interpret(program: bytes, audit_arch: int, number: int, args: Sequence[int] = ()) -> Trace:
    """Execute a filter as the kernel would, strict about everything the kernel checks."""
    code = decode(program)
    padded = [*args, *([0] * (6 - len(args)))]
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, audit_arch, 0x1234, *padded)
    acc, at, steps = 0, 0, 0
    loads: set[int] = set()
    codes: set[int] = set()
    while True:
        op, true, false, k = code[at]
        codes.add(op)
        steps += 1
        at += 1
        if op == 0x20:
            assert k % 4 == 0
            assert k + 4 <= len(data)
            loads.add(k)
            (acc,) = struct.unpack_from("<I", data, k)
        elif op == 0x54:
            acc &= k
        elif op == 0x05:
            at += k
        elif op in (0x15, 0x25, 0x35):
            taken = {0x15: acc == k, 0x25: acc > k, 0x35: acc >= k}[op]
            at += true if taken else false
        elif op == 0x06:
            return Trace(k, steps, loads, codes)
        else:
            raise AssertionError(f"opcode {op:#x}")


def verdict(program: bytes, arch: str, name: str | int, args: Sequence[int] = ()) -> int:
    number = table(arch)[name] if isinstance(name, str) else name
    return interpret(program, ARCHES[arch].audit, number, args).verdict


def holds(test: ArgTest, args: Sequence[int]) -> bool:
    value = args[test.index] if test.index < len(args) else 0
    return {
        "EQ": value == test.value,
        "NE": value != test.value,
        "LT": value < test.value,
        "LE": value <= test.value,
        "GT": value > test.value,
        "GE": value >= test.value,
        "MASKED_EQ": value & test.value == test.value_two,
    }[test.op]


def reference(
    profile: Profile, rules: Sequence[Rule], arch: str, number: int, args: Sequence[int]
) -> int:
    """The rules, read one after the other."""
    number &= 0xFFFFFFFF
    if arch == "x86_64" and number >= 0x40000000:
        return RET_ERRNO | errno.ENOSYS
    names = names_by_number(arch)
    if number not in names:
        denies = profile.default_action & 0xFFFF0000 == RET_ERRNO
        return RET_ERRNO | errno.ENOSYS if denies else profile.default_action
    for rule in rules:
        if names[number] in rule.names and all(holds(test, args) for test in rule.args):
            return rule.action
    return profile.default_action


def say(action: int) -> str:
    """A verdict in the words the documentation uses."""
    if action == RET_ALLOW:
        return "allow"
    if action == RET_KILL_PROCESS:
        return "kill"
    assert action & 0xFFFF0000 == RET_ERRNO
    return errno.errorcode.get(action & 0xFFFF, f"errno {action & 0xFFFF}")


def probe(
    program: bytes | None, calls: Sequence[tuple[int, Sequence[int]]], tmp_path: Path
) -> list[str]:
    """Make real system calls, each in a process of its own; "ok", an errno name or "signal N"."""
    request: dict[str, Any] = {"calls": [[number, list(args)] for number, args in calls]}
    argv = [sys.executable, str(CHILD), "probe", _store(program, tmp_path)]
    done = subprocess.run(
        argv, input=json.dumps(request), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    answers: list[str] = json.loads(done.stdout)
    return answers


def run_filtered(
    program: bytes | None, argv: Sequence[str], tmp_path: Path, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run a real program with the filter in place from its exec on."""
    return subprocess.run(
        [sys.executable, str(CHILD), "exec", _store(program, tmp_path), *argv],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=tmp_path,
        check=False,
    )


def _store(program: bytes | None, tmp_path: Path) -> str:
    if program is None:
        return "-"
    path = tmp_path / "filter.bpf"
    path.write_bytes(program)
    return str(path)
