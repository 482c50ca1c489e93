"""The fuzz targets of agentd (agentd/fuzz/fuzz_*.c), and how they are compiled."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FUZZ = ROOT / "agentd" / "fuzz"
BUILD = ROOT / ".build" / "fuzz"
CORPORA = FUZZ / "corpus"
DICTIONARY = FUZZ / "protocol.dict"

COMPILE_TIMEOUT = 300
FLAGS = (
    "-std=gnu17",
    "-g",
    "-O1",
    "-fno-strict-aliasing",
    "-fno-omit-frame-pointer",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
)


class FuzzFailure(Exception):
    """Nothing could be fuzzed: a compiler or a namespace is missing. No finding."""


@dataclass(frozen=True)
class Target:
    name: str
    weight: int  # its share of the time
    max_length: int

    @property
    def source(self) -> Path:
        return FUZZ / f"fuzz_{self.name}.c"

    @property
    def corpus(self) -> Path:
        return CORPORA / self.name

    @property
    def program(self) -> Path:
        return BUILD / "programs" / self.name


TARGETS = {
    target.name: target
    for target in (
        Target("conversation", 4, 4096),
        Target("files", 2, 2048),
        Target("messages", 2, 4096),
        Target("boot", 1, 1024),
        Target("plan", 1, 2048),
        Target("tar", 2, 8192),
        Target("user", 1, 2048),
        Target("spool", 1, 1024),
        Target("processes", 1, 512),
    )
}

# Has a fault: for the tool to prove that it finds one.
CONTROL = Target("control", 1, 64)


def sources_of(target: Target) -> list[Path]:
    """The first line of a target names the sources of agentd it is linked with."""
    with target.source.open() as handle:
        match = re.fullmatch(r"/\* sources: ([\w.\s]+) \*/\n", handle.readline())
    if not match:
        raise FuzzFailure(f"{target.source} does not name its sources")
    return [ROOT / "agentd" / "src" / name for name in match[1].split()]


def _compile(arguments: list[str]) -> None:
    clang = shutil.which("clang")
    if clang is None:
        raise FuzzFailure("clang is not installed (Debian: clang, libclang-rt-14-dev)")
    done = subprocess.run(
        [clang, *FLAGS, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=COMPILE_TIMEOUT,
        check=False,
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise FuzzFailure(f"clang could not build it:\n{said}")


def _newest(paths: list[Path]) -> float:
    return max(path.stat().st_mtime for path in paths)


def build(target: Target) -> Path:
    """Compile a target with libFuzzer and the sanitizers, unless nothing has changed."""
    program = target.program
    headers = [*(ROOT / "agentd" / "src").glob("*.[ch]"), *FUZZ.glob("*.[ch]"), Path(__file__)]
    if program.exists() and program.stat().st_mtime > _newest(headers):
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    world = program.with_name(f"{target.name}.world.o")
    # The world itself has the system's own calls.
    _compile(["-fsanitize=fuzzer-no-link", "-c", str(FUZZ / "world.c"), "-o", str(world)])
    _compile(
        [
            "-fsanitize=fuzzer",
            *("-include", str(FUZZ / "world.h")),
            *map(str, [target.source, *sources_of(target), world]),
            *("-o", str(program)),
        ]
    )
    return program
