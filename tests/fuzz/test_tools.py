"""The fuzzer itself: it finds what is there to be found, and runs nowhere but in its arena."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FUZZ = ROOT / "agentd" / "fuzz"
TOOL = [str(ROOT / "tools" / "fuzz")]

needs_clang = pytest.mark.skipif(shutil.which("clang") is None, reason="clang is not installed")


def fuzz(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*TOOL, *words], capture_output=True, text=True, timeout=55, check=False)


@needs_clang
def test_a_planted_fault_is_found_and_told() -> None:
    done = fuzz("control")
    if done.returncode == 2:
        pytest.skip(f"nothing can be fuzzed here: {done.stderr[:300]}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "heap-buffer-overflow" in done.stdout


@needs_clang
def test_targets_refuse_to_run_on_the_machine() -> None:
    """The control is every other run: in the arena the same program starts."""
    if fuzz("control").returncode:
        pytest.skip("nothing could be built: the test above says why")
    program = ROOT / ".build" / "fuzz" / "programs" / "control"
    done = subprocess.run(
        [str(program), "-runs=1"], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 2 and "refused" in done.stderr


def test_every_target_is_known_and_has_inputs() -> None:
    listed = set(fuzz("list").stdout.split()) - {"python"}
    written = {path.stem.removeprefix("fuzz_") for path in FUZZ.glob("fuzz_*.c")} - {"control"}
    assert listed == written
    for name in written:
        sizes = [path.stat().st_size for path in (FUZZ / "corpus" / name).iterdir()]
        assert sizes and sum(sizes) <= 250_000, name


def test_the_dictionary_knows_every_key_of_the_protocol() -> None:
    dictionary = (FUZZ / "protocol.dict").read_text()
    for path in sorted((ROOT / "agentd" / "src").glob("*.c")):
        for key in re.findall(r'\bmp_get(?:_\w+)?\(\w+, "(\w+)"', path.read_text()):
            assert f'"\\x{0xA0 | len(key):02x}{key}"' in dictionary, f"{path.name}: {key}"


def test_unknown_targets_are_told() -> None:
    done = fuzz("run", "nothing", "--seconds", "1")
    assert done.returncode == 2 and "no such target" in done.stderr
