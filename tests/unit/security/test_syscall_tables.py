"""The system call tables against the headers of this machine, where it has them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentkernel.errors import InvalidInputError, UnsupportedError
from agentkernel.security.seccomp import syscalls
from agentkernel.security.seccomp.syscalls import ARCHES, arch_named, is_known, table

X86_HEADERS = [
    Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    Path("/usr/include/asm/unistd_64.h"),
]
GENERIC_HEADER = Path("/usr/include/asm-generic/unistd.h")


def test_x86_64_agrees_with_the_header() -> None:
    header = next((path for path in X86_HEADERS if path.exists()), None)
    if header is None:
        pytest.skip("no x86_64 kernel headers here")
    found = dict(re.findall(r"^#define __NR_(\w+)\s+(\d+)$", header.read_text(), re.MULTILINE))
    assert len(found) > 300
    ours = table("x86_64")
    newest = max(ours.values())
    for name, number in found.items():
        if int(number) <= newest:
            assert ours[name] == int(number)


def test_aarch64_agrees_with_the_generic_header() -> None:
    if not GENERIC_HEADER.exists():
        pytest.skip("no generic kernel headers here")
    pattern = r"^#define __NR(?:3264)?_(\w+)\s+(\d+)$"
    found = dict(re.findall(pattern, GENERIC_HEADER.read_text(), re.MULTILINE))
    found["newfstatat"] = found.pop("fstatat")
    ours = table("aarch64")
    # The rest of the header is for other ABIs: 32-bit times and the like.
    checked = 0
    for name in found.keys() & ours.keys():
        assert ours[name] == int(found[name]), name
        checked += 1
    assert checked > 270


@pytest.mark.parametrize("arch", sorted(ARCHES))
def test_tables_are_whole(arch: str) -> None:
    numbers = list(table(arch).values())
    assert len(set(numbers)) == len(numbers)
    gap = range(337, 424) if arch == "x86_64" else [*range(244, 260), *range(295, 424)]
    assert sorted({*numbers, *gap}) == list(range(470))
    assert table(arch)["file_setattr"] == 469
    assert table(arch)["clone3"] == 435


def test_architectures_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert arch_named("aarch64").docker == "arm64"
    with pytest.raises(InvalidInputError):
        arch_named("z80")
    with pytest.raises(InvalidInputError):
        table("z80")
    fake = os.uname_result(("Linux", "host", "6.1", "v", "riscv64"))
    monkeypatch.setattr(os, "uname", lambda: fake)
    with pytest.raises(UnsupportedError, match="riscv64"):
        arch_named()


def test_known_means_on_any_architecture() -> None:
    assert is_known("arch_prctl")
    assert is_known("read")
    assert not is_known("socketcall")


def test_loading_is_quick() -> None:
    best = 1.0
    for _ in range(10):
        syscalls._tables.cache_clear()
        began = time.perf_counter()
        table("x86_64")
        best = min(best, time.perf_counter() - began)
    assert best < 0.002


def test_importing_reads_nothing_and_loads_little() -> None:
    code = (
        "import sys\n"
        "import agentkernel.security.profiles, agentkernel.security.seccomp.compiler\n"
        "print(sorted({'json', 'asyncio', 'pathlib', 'subprocess'} & set(sys.modules)))\n"
    )
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
