"""Every program of `examples`, run as it stands; each prints what it says it does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from agentkernel import Sandbox

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
SDK = ROOT / "sdks" / "typescript"
MUST_WORK = frozenset(filter(None, os.environ.get("MUST_WORK", "").split(",")))
DEADLINE_S = 50.0

# What has to be printed, in this order; the same in Python and TypeScript but for how lists look.
SHOWN = {
    "errors": [
        "exit code: 3",
        "command_failed - exited 2",
        "outcome: timeout",
        "file: /nowhere: No such file",
        "not_found",
        "it works",
    ],
    "files": ["hello.txt file 12", "remove hello.txt"],
    "interactive": ["answer: 42\n", "terminal: 80 24", "outcome: signaled"],
    "jobs": ["line 1\nline 2\nline 3\n", "exit code: 0", "ended by signal 9", "ended"],
    "parallel": ["-> 45\n", "-> 4950\n", "-> 499500\n", "-> 49995000\n"],
    "run_a_script": ["outcome: exited", "printed: 42\n", "failed with 3 and said: something"],
    "stream_output": ["step 1\nstep 2\nstep 3\n", "exit code: 0", "first line: y\n"],
}
SHOWN_BY_CURL = {
    "errors": ['"code":"not_found"', "status 404", "$.cpus", "status 400", "attempt 1: status 201",
               "attempt 2: status 200", "removed: status 204"],
    "files": ['{"size":6}', "hello\n", "hello.txt", '"files":1', '"stdout":"hello\\n"'],
    "jobs": ["working", '"outcome":"signaled"', "event: sandbox.created", "event: job.ended"],
    "stream_output": ["event: stdout", "step 1", "step 3", "event: exit", '"exit_code":3'],
    "run_a_script": ['"stdout":"4\\n"', '"stdout":"a\\nb\\n"', "status 200"],
}  # fmt: skip

SHOWN_BY_MCP = {
    "use_the_tools": ["tools: ", "run: 42\n", "exit code 0 - hello from the sandbox\n", "removed\n"]
}


def programs(folder: str, kind: str) -> list[str]:
    found = sorted(path.stem for path in (EXAMPLES / folder).glob(f"*.{kind}"))
    assert found, folder
    return found


def printed(command: list[str], environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, (
        f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    )
    return done.stdout


def check(text: str, wanted: list[str]) -> None:
    pattern = ".*".join(re.escape(words) for words in wanted)
    assert re.search(pattern, text, re.DOTALL), f"{text}\nlacks one of, or the order of\n{wanted}"


def test_every_example_is_expected_to_show_something() -> None:
    assert programs("python", "py") == programs("typescript", "ts") == sorted(SHOWN)
    assert programs("curl", "sh") == sorted(SHOWN_BY_CURL)
    assert programs("mcp", "py") == sorted(SHOWN_BY_MCP)


def test_the_index_names_every_example_and_nothing_else() -> None:
    linked = set(re.findall(r"\]\(([\w/]+\.\w+)\)", (EXAMPLES / "README.md").read_text()))
    there = {
        path.relative_to(EXAMPLES).as_posix()
        for path in EXAMPLES.rglob("*")
        if path.suffix in (".py", ".ts", ".sh") and "node_modules" not in path.parts
    }
    assert linked == there


@pytest.mark.parametrize("name", programs("python", "py"))
def test_python(name: str, daemon_dir: Path) -> None:
    check(printed([sys.executable, str(EXAMPLES / "python" / f"{name}.py")]), SHOWN[name])


@pytest.mark.parametrize("name", programs("curl", "sh"))
def test_curl(name: str, daemon_dir: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl")
    Sandbox.list()  # curl can't start a daemon
    check(printed([str(EXAMPLES / "curl" / f"{name}.sh")]), SHOWN_BY_CURL[name])


@pytest.fixture(scope="module")
def compiled() -> Path:
    """The TypeScript programs as a user's compiler makes them, against the built package."""
    reason = None
    if shutil.which("node") is None:
        reason = "there is no node"
    elif not (SDK / "dist").is_dir():
        reason = "sdks/typescript is not built: `npm ci && npm run build` there"
    if reason is not None:
        if "typescript" in MUST_WORK:
            pytest.fail(reason)
        pytest.skip(reason)
    sources = [str(path) for path in sorted((EXAMPLES / "typescript").glob("*.ts"))]
    printed(["node", str(SDK / "scripts" / "compile.mjs"), "examples", *sources])
    return SDK / ".build" / "examples"


@pytest.fixture
def command(tmp_path: Path) -> dict[str, str]:
    """The environment with an `agentkernel` to start: this clone's, by this Python."""
    program = tmp_path / "agentkernel"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m agentkernel "$@"\n')
    program.chmod(0o755)
    return {"AGENTKERNEL_BIN": str(program), "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.parametrize("name", programs("typescript", "ts"))
def test_typescript(name: str, compiled: Path, daemon_dir: Path, command: dict[str, str]) -> None:
    check(printed(["node", str(compiled / f"{name}.js")], command), SHOWN[name])


@pytest.mark.parametrize("name", programs("mcp", "py"))
def test_mcp(name: str, daemon_dir: Path, command: dict[str, str]) -> None:
    if find_spec("mcp") is None:
        pytest.skip("there is no mcp package")
    program = [sys.executable, str(EXAMPLES / "mcp" / f"{name}.py")]
    check(printed(program, command), SHOWN_BY_MCP[name])


def test_what_is_not_shown_is_found() -> None:
    check("one two three", ["one", "three"])
    with pytest.raises(AssertionError, match="lacks"):
        check("one two three", ["three", "one"])
