"""Running the C targets: for a time, or their kept inputs once."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from .arena import Arena, arena
from .results import Result
from .targets import BUILD, FuzzFailure, Target

CRASHES = BUILD / "crashes"
# Of one input; of loading and ending a run.
INPUT_SECONDS = 10
SLACK_SECONDS = 120
MEMORY_MB = 2048
# A target's kept inputs, all together.
CORPUS_BYTES = 240_000


def _options(target: Target) -> list[str]:
    return [
        f"-timeout={INPUT_SECONDS}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-max_len={target.max_length}",
        "-dict=/work/dictionary",
        "-artifact_prefix=/work/crashes/",
        "-print_final_stats=1",
        "-detect_leaks=0",
    ]


def _read(said: str, result: Result) -> None:
    """Executions and coverage from what libFuzzer prints."""
    if match := re.search(r"stat::number_of_executed_units:\s*(\d+)", said):
        result.executions = int(match[1])
    elif numbers := re.findall(r"^#(\d+)\s", said, re.MULTILINE):
        result.executions = int(numbers[-1])
    if lines := re.findall(r"cov: (\d+) ft: (\d+)", said):
        result.edges, result.features = map(int, lines[-1])


def symbolized(program: Path, said: str) -> str:
    """The names behind the addresses: in its own root a program can't look them up."""
    pattern = re.compile(r"\(/work/target\+(0x[0-9a-f]+)\)")
    tool = shutil.which("addr2line")
    addresses = sorted(set(pattern.findall(said)))
    if not tool or not addresses:
        return said
    command = [tool, "-f", "-s", "-e", str(program), *addresses]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    lines = done.stdout.decode(errors="replace").splitlines()
    names = {
        address: f"{name} {place}"
        for address, name, place in zip(addresses, lines[::2], lines[1::2], strict=False)
    }
    return pattern.sub(lambda match: names.get(match[1], match[0]), said)


def _collect(place: Arena, said: str, status: int, result: Result) -> None:
    """Crashing inputs go to a place that stays, with what was said of them."""
    said = symbolized(place.target.program, said) if status else said
    for path in sorted((place.work / "crashes").iterdir()):
        CRASHES.mkdir(parents=True, exist_ok=True)
        kept = CRASHES / f"{place.target.name}-{path.name}"
        shutil.copy(path, kept)
        kept.with_name(f"{kept.name}.txt").write_text(said)
        command = f"tools/fuzz reproduce {place.target.name} {kept}"
        result.findings.append(f"{_reason(said)}\n    reproduce: {command}")
    if status and not result.findings:
        tail = "\n".join(said.splitlines()[-30:])
        raise FuzzFailure(f"{place.target.name} ended with {status} and no input:\n{tail}")


def _reason(said: str) -> str:
    patterns = (r"a promise does not hold: .*", r"runtime error: .*", r"SUMMARY: .*", r"ERROR: .*")
    for pattern in patterns:
        if match := re.search(pattern, said):
            return match[0]
    return "unknown"


def _keep(place: Arena, result: Result) -> None:
    """Add what reached something new to the kept inputs, the smallest first."""
    done = place.run(["-merge=1", *_options(place.target), "/work/corpus", "/work/new"], 600)
    if done.returncode:
        raise FuzzFailure(f"merging: {done.stdout.decode(errors='replace')[-2000:]}")
    corpus = place.target.corpus
    corpus.mkdir(parents=True, exist_ok=True)
    size = sum(path.stat().st_size for path in corpus.iterdir())
    for path in sorted((place.work / "corpus").iterdir(), key=lambda path: path.stat().st_size):
        content = path.read_bytes()
        name = hashlib.sha256(content).hexdigest()[:16]
        if not content or (corpus / name).exists() or size + len(content) > CORPUS_BYTES:
            continue
        if (corpus / path.name).exists():
            continue
        (corpus / name).write_bytes(content)
        size += len(content)
        result.kept += 1


def run(
    target: Target,
    seconds: float,
    *,
    keep: bool,
    seeds: Sequence[bytes] = (),
    luck: int | None = None,
) -> Result:
    """Fuzz for a time, from the kept inputs (and `seeds`) on; with `luck` as chance would have it
    again."""
    result = Result(target.name, "libFuzzer, ASan, UBSan", seconds=seconds)
    with arena(target) as place:
        for number, seed in enumerate(seeds):
            (place.work / "corpus" / f"seed-{number}").write_bytes(seed)
        arguments = [f"-max_total_time={max(1, int(seconds))}", *_options(target)]
        if luck is not None:
            arguments.append(f"-seed={luck}")
        done = _run(place, [*arguments, "/work/new", "/work/corpus"], seconds, result)
        if done is None:
            return result
        said = done.stdout.decode(errors="replace")
        _read(said, result)
        _collect(place, said, done.returncode, result)
        if keep and not result.findings:
            _keep(place, result)
    return result


def regress(target: Target) -> Result:
    """Every kept input once, and nothing else."""
    result = Result(target.name, "kept inputs", seconds=0)
    if not any(target.corpus.glob("*")):
        raise FuzzFailure(f"{target.corpus} holds no inputs")
    with arena(target) as place:
        done = _run(place, [*_options(target), "-runs=0", "/work/corpus"], 0, result)
        if done is None:
            return result
        said = done.stdout.decode(errors="replace")
        _read(said, result)
        _collect(place, said, done.returncode, result)
    return result


def reproduce(target: Target, path: Path) -> tuple[int, str]:
    """One input, with all that the program says."""
    with arena(target) as place:
        shutil.copy(path, place.work / "input")
        (place.work / "input").chmod(0o644)
        done = place.run(["/work/input", *_options(target)], SLACK_SECONDS)
    return done.returncode, symbolized(target.program, done.stdout.decode(errors="replace"))


def _run(
    place: Arena, arguments: list[str], seconds: float, result: Result
) -> subprocess.CompletedProcess[bytes] | None:
    try:
        return place.run(arguments, seconds + SLACK_SECONDS)
    except subprocess.TimeoutExpired as expired:
        said = (expired.stdout or b"").decode(errors="replace")
        result.findings.append(f"no end within {seconds + SLACK_SECONDS:.0f} s\n{said[-2000:]}")
        return None
