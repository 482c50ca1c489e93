"""Running tests/fuzz: hypothesis, and coverage-guided where atheris is installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from .results import Result
from .targets import BUILD, ROOT, FuzzFailure

SLACK_SECONDS = 300


def _interpreter() -> str:
    """The clone's own environment, else whoever runs this."""
    own = ROOT / ".venv" / "bin" / "python"
    return str(own) if own.exists() else sys.executable


def check() -> None:
    """Raises FuzzFailure where it can't be run."""
    found = subprocess.run(
        [_interpreter(), "-c", "import hypothesis, pytest"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    if found.returncode:
        raise FuzzFailure("the Python side needs the packages of the tests; ./test installs them")


def run(seconds: float, *, seed: int | None = None) -> Result:
    """All of tests/fuzz; with 0 seconds as short as in a normal run of the tests."""
    result = Result("python", "hypothesis", seconds=seconds)
    BUILD.mkdir(parents=True, exist_ok=True)
    counts = BUILD / f"python-executions-{os.getpid()}"
    counts.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "AGENTKERNEL_FUZZ_SECONDS": f"{seconds:g}",
        "AGENTKERNEL_FUZZ_COUNTS": str(counts),
        "AGENTKERNEL_FUZZ_SEED": "" if seed is None else str(seed),
    }
    command = [_interpreter(), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command.append("tests/fuzz/test_parsers.py")
    try:
        done = subprocess.run(
            [*command, f"--timeout={seconds + 60:.0f}"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds + SLACK_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        result.findings.append(f"no end within {seconds + SLACK_SECONDS:.0f} s")
        return result
    said = done.stdout.decode(errors="replace")
    if counts.exists():
        result.executions = sum(map(int, counts.read_text().split()))
        counts.unlink()
    failed = re.findall(r"^FAILED (\S+)", said, re.MULTILINE)
    if failed:
        kept = BUILD / "crashes" / "python.txt"
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(said)
        result.findings += [f"{name}\n    said: {kept}" for name in failed]
    elif done.returncode:
        raise FuzzFailure(f"tests/fuzz could not be run:\n{said[-3000:]}")
    return result
