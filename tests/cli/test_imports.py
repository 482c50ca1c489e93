"""What `run` and `exec` load, once for every command: it is what every command waits for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import agentkernel

# All of the package that these two may load.
OURS = {
    "agentkernel",
    "agentkernel.cli",
    "agentkernel.cli.console",
    "agentkernel.cli.fields",
    "agentkernel.cli.foreground",
    "agentkernel.cli.main",
    "agentkernel.cli.notices",
    "agentkernel.cli.outcome",
    "agentkernel.cli.parsers",
    "agentkernel.cli.terminal",
    "agentkernel.cli.values",
    "agentkernel.cli.verbs",
    "agentkernel.client",
    "agentkernel.client._sync",
    "agentkernel.client._sync.transport",
    "agentkernel.client._sync.websocket",
    "agentkernel.client.daemon",
    "agentkernel.client.frames",
    "agentkernel.client.socket_stream",
    "agentkernel.client.toolchains",
    "agentkernel.client.wire",
    "agentkernel.errors",
    "agentkernel.outcomes",
    "agentkernel.places",
    "agentkernel.quantities",
}
# Whether there is a configuration file is for `run` to find out.
# So is whether anything here asks for a runtime.
OF_RUN = {
    "agentkernel.cli.here",
    "agentkernel.cli.project",
    "agentkernel.config",
    "agentkernel.config.finding",
    "agentkernel.detection",
    "agentkernel.detection.quick",
}
# Of the rest, what is worth a word; whatever these bring along may come.
THEIRS = (
    "__future__", "argparse", "collections.abc", "contextlib", "enum", "importlib", "json",
    "locale", "os", "re", "select", "signal", "socket", "stat", "sys", "time",
)  # fmt: skip
HEAVY = {
    "asyncio", "base64", "concurrent", "dataclasses", "email", "hashlib", "http", "inspect",
    "logging", "msgspec", "pathlib", "random", "rich", "shutil", "sqlite3", "ssl", "starlette",
    "subprocess", "tempfile", "threading", "tomllib", "typing", "urllib", "uvicorn",
}  # fmt: skip


def loaded(script: str) -> set[str]:
    """All modules after a script. -S: what else is installed may load what it likes."""
    source = str(Path(agentkernel.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys\n{script}\nprint(*sys.modules)"],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=50,
        check=True,
        env={**os.environ, "PYTHONPATH": source},
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("verb", ["run", "exec"])
def test_little_is_loaded(box: str, daemon_dir: Path, verb: str) -> None:
    words = ["run", "-q", "--", "true"] if verb == "run" else ["exec", box, "--", "true"]
    found = loaded(f"from agentkernel.cli.main import main\nassert main({words!r}) == 0")
    ours = OURS | {f"agentkernel.cli.{verb}"} | (OF_RUN if verb == "run" else set())
    assert {name for name in found if name.split(".")[0] == "agentkernel"} == ours
    assert not HEAVY & {name.split(".")[0] for name in found}
    allowed = loaded("".join(f"import {name}\n" for name in THEIRS))
    assert {name for name in found - allowed if not name.startswith("agentkernel")} == set()
