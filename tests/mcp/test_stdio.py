"""What is `agentkernel mcp` alone: its start, its end, and what it refuses to start with."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import agentkernel

from .connections import connections, until

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "agentkernel", "mcp"]


@pytest.fixture
def environment(mcp_state: Path, tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "AGENTKERNEL_STATE_DIR": str(mcp_state)}


def run(
    words: list[str], environment: dict[str, str], cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, env=environment, cwd=cwd, input="", capture_output=True, text=True, timeout=30,
        check=False,
    )  # fmt: skip


def test_nothing_to_say_is_a_good_end(environment: dict[str, str]) -> None:
    done = run(COMMAND, environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_without_the_package_the_hint_says_how_to_get_it(environment: dict[str, str]) -> None:
    source = str(Path(agentkernel.__file__).parents[1])
    words = [sys.executable, "-S", "-m", "agentkernel", "mcp"]
    done = run(words, {**environment, "PYTHONPATH": source})
    assert done.returncode == 125 and "Traceback" not in done.stderr
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = " ".join(f"'{requirement}'" for requirement in extra["mcp"])
    assert f"{sys.executable} -m pip install {wanted}" in done.stderr
    codex = run(
        [*words, "install", "codex"], {**environment, "PYTHONPATH": source, "HOME": "/nowhere"}
    )
    assert codex.returncode == 125 and "tomlkit" in codex.stderr


def test_lines_that_are_no_messages(environment: dict[str, str]) -> None:
    done = subprocess.run(
        COMMAND, env=environment, input=b'\xff\n{"a":\n[]\n{}\n' + b"x" * 100_000 + b"\n",
        capture_output=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and b"Traceback" not in done.stderr


def test_a_projects_file_narrows_and_does_not_widen(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "agentkernel.toml").write_text('[sandbox]\nprofile = "permissive"\n')
    refused = run(COMMAND, environment, tmp_path)
    assert refused.returncode == 125 and "not trusted" in refused.stderr
    assert run([*COMMAND, "-c", "none"], environment, tmp_path).returncode == 0
    (tmp_path / "agentkernel.toml").write_text('[sandbox]\nprofile = "restrictive"\n')
    assert run(COMMAND, environment, tmp_path).returncode == 0


def test_an_image_is_not_for_it(environment: dict[str, str], tmp_path: Path) -> None:
    config = tmp_path / "agentkernel" / "config.toml"
    config.parent.mkdir()
    config.write_text('[sandbox]\nimage = "/srv/rootfs"\n')
    done = run(COMMAND, {**environment, "XDG_CONFIG_HOME": str(tmp_path)})
    assert done.returncode == 125 and "the image host or one of a registry" in done.stderr


def test_ctrl_c_ends_it_at_once(environment: dict[str, str]) -> None:
    process = subprocess.Popen(
        COMMAND, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin and process.stdout
    process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    process.stdin.flush()
    assert b'"id":1' in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == -signal.SIGINT
    process.stdin.close()
    process.stdout.close()


async def test_a_client_that_goes_away_ends_its_command(
    mcp_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTKERNEL_STATE_DIR", str(mcp_state))
    with connections(mcp_state, "stdio") as connect:
        async with connect() as stays:
            box = (await stays.call("create"))["sandbox"]

            async def runs() -> bool:
                found = "pgrep -f '[s]leep 4010' || true"
                return bool((await stays.call("exec", sandbox=box, command=found))["stdout"])

            async def leave() -> None:
                async with connect() as leaves:
                    command = asyncio.create_task(
                        leaves.call("exec", sandbox=box, command="setsid sleep 4010")
                    )
                    await until(runs)
                await asyncio.wait((command,))
                assert command.exception() is not None

            await leave()

            async def ended() -> bool:
                return not await runs()

            await until(ended)
            await stays.call("remove", sandbox=box)
