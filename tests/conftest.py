"""Fixtures that every kind of test shares: a state directory, sandboxes in it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from agentkernel.backends.base import Sandbox
from agentkernel.backends.local.layer_worker import LocalLayerWorker
from agentkernel.conformance import Bench
from agentkernel.errors import HostError
from agentkernel.guest.processes import ProcessOptions
from agentkernel.kernel.commands import ExecResult
from agentkernel.kernel.runs import Runs
from agentkernel.kernel.spec import SandboxSpec

Run = Callable[..., Awaitable[ExecResult]]
NeedEngine = Callable[[str], Awaitable[None]]

MUST_WORK = frozenset(filter(None, os.environ.get("MUST_WORK", "").split(",")))

# Found counterexamples are printed; a clone that can't be written to must pass too.
settings.register_profile("default", database=None, deadline=None)
settings.load_profile("default")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def no_config(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whoever runs the tests may have a config.toml and a keyring: they are not the tests'."""
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))
    os.environ["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"


@pytest.fixture(scope="session", autouse=True)
def no_layers_of_others(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Files of images may belong to this user's subuids: pytest could not remove them later."""
    yield
    worker = LocalLayerWorker()
    for depth in ("*", "*/*"):
        for path in tmp_path_factory.getbasetemp().glob(f"{depth}/images/layers/*-subuid-*"):
            if path.is_dir():
                worker.remove(str(path))


@pytest.fixture(scope="session")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One state directory for the run: the host image is made once."""
    path = tmp_path_factory.mktemp("state")
    os.environ["AGENTKERNEL_STATE_DIR"] = str(path)
    return path


@pytest.fixture(scope="session")
def need_engine(tmp_path_factory: pytest.TempPathFactory) -> NeedEngine:
    """Tries an engine once. Unless it makes sandboxes here the test is skipped with the reason, or
    fails where MUST_WORK names the engine."""
    unusable: dict[str, str] = {}

    async def need(name: str) -> None:
        if name not in unusable:
            try:
                async with Bench(name, tmp_path_factory.mktemp(name)).sandbox():
                    unusable[name] = ""
            except HostError as exc:
                unusable[name] = exc.message
        if reason := unusable[name]:
            if name in MUST_WORK:
                pytest.fail(f"{name} must work here: {reason}")
            pytest.skip(f"{name}: {reason}")

    return need


@pytest.fixture
async def runs(state_dir: Path) -> AsyncIterator[Runs]:
    async with Runs(state_dir) as runs:
        yield runs
    assert not os.listdir(state_dir / "runs"), "a sandbox left its directory behind"


@pytest.fixture
async def sandbox(runs: Runs) -> Sandbox:
    """A sandbox of the host image with all defaults."""
    return await runs.create(SandboxSpec())


@pytest.fixture
def run(runs: Runs, sandbox: Sandbox) -> Run:
    """Runs a command in `sandbox`: a list is argv, a string a shell command."""

    async def run_(
        command: str | list[str], *, stdin: bytes = b"", user: str | None = None, **options: object
    ) -> ExecResult:
        argv = ["sh", "-c", command] if isinstance(command, str) else command
        chosen = ProcessOptions(user=user, **options)  # type: ignore[arg-type]
        return await runs.run(sandbox, argv, chosen, stdin=stdin)

    return run_


@pytest.fixture(scope="session")
def daemon_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A state directory whose daemon starts when it is needed, and is gone with its sandboxes."""
    path = tmp_path_factory.mktemp("daemon")
    yield path
    environment = {**os.environ, "AGENTKERNEL_STATE_DIR": str(path)}
    if (path / "state.db").exists():
        for words in (("sandbox", "gc", "--older-than", "1ms"), ("daemon", "stop")):
            command = [sys.executable, "-m", "agentkernel", *words]
            subprocess.run(command, env=environment, timeout=50, check=True)


@pytest.fixture
def daemon_dir(daemon_state: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes `daemon_state` the one in force; and commands begin where there is no project, which a
    plain `run` would have at /workspace."""
    monkeypatch.setenv("AGENTKERNEL_STATE_DIR", str(daemon_state))
    monkeypatch.chdir(daemon_state)
    return daemon_state
