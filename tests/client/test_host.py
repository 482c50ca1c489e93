"""The SDK about the daemon and its machine, and what it changes of a sandbox that is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentkernel import AsyncHost, AsyncSandbox, CommandResult, Host, Sandbox, errors

pytestmark = pytest.mark.usefixtures("daemon_dir")


@pytest.fixture
def sandbox(daemon_dir: Path) -> Iterator[Sandbox]:
    with Sandbox.create(ttl_seconds=900) as sandbox:
        yield sandbox


def test_the_daemon_and_its_engines() -> None:
    host = Host()
    assert host.version()["api"] == 1
    assert host.status()["memory_bytes"] > 0
    assert host.openapi()["openapi"].startswith("3.1")
    native = next(backend for backend in host.backends() if backend.name == "native")
    assert native.found and native.raw["features"]["kept"] is True


def test_doctor() -> None:
    report = Host().doctor()
    assert report["fit"] and report["findings"]


def test_what_changes_of_a_sandbox(sandbox: Sandbox) -> None:
    info = sandbox.update(labels={"a": "1", "b": "2"}, idle_seconds=300)
    assert (info.labels, info.raw["idle_seconds"]) == ({"a": "1", "b": "2"}, 300)
    info = sandbox.update(labels={"a": None}, ttl_seconds=None)
    assert (info.labels, info.expires_at, info.raw["idle_seconds"]) == ({"b": "2"}, None, 300)
    assert sandbox.info is info
    with pytest.raises(errors.InvalidInputError):
        sandbox.update(name="Not A Name")


def test_usage_and_logs(sandbox: Sandbox) -> None:
    sandbox.exec("true")
    usage = sandbox.usage()
    assert usage is not None and usage["counted_by"]
    kinds = [event.kind for event in sandbox.logs()]
    assert kinds[0] == "sandbox.created"
    for event in sandbox.logs(after=0, follow=True):
        assert event.sandbox_id == sandbox.id
        break


def test_events(sandbox: Sandbox) -> None:
    seen = [event.kind for event in Host().events(after=0, sandbox=sandbox.id, follow=False)]
    assert seen == ["sandbox.created"]


def test_all_jobs(sandbox: Sandbox) -> None:
    job = sandbox.jobs.start("sleep 60")
    host = Host()
    assert job.id in [one.id for one in host.jobs(state="running")]
    assert [one.id for one in host.jobs(sandbox=sandbox.id)] == [job.id]
    host.job(job.id).kill()
    assert job.wait().signal == 9


def test_a_batch() -> None:
    results = Sandbox.run_batch(["echo one", ["sh", "-c", "exit 2"]], parallel=2)
    one, two = results
    assert isinstance(one, CommandResult) and isinstance(two, CommandResult)
    assert (one.stdout, two.exit_code) == ("one\n", 2)
    (failed,) = Sandbox.run_batch(["true"], image="/nowhere/at/all")
    assert isinstance(failed, errors.AgentKernelError) and failed.message


def test_several_files_at_once(sandbox: Sandbox) -> None:
    files: dict[str, bytes | str] = {
        "a.txt": "text", "deep/b": bytes(range(256)), 'od"d \\ name': b"", "\udcff": b"1",
    }  # fmt: skip
    sizes = sandbox.files.upload(files, "/in", mode=0o640)
    assert sizes == {"a.txt": 4, "deep/b": 256, 'od"d \\ name': 0, "\udcff": 1}
    assert sandbox.files.read_bytes("/in/deep/b") == bytes(range(256))
    names = {entry.name for entry in sandbox.files.list("/in")}
    assert names == {"a.txt", "deep", 'od"d \\ name', "\udcff"}
    assert sandbox.files.stat("/in/a.txt").mode & 0o777 == 0o640
    with pytest.raises(errors.InvalidInputError):
        sandbox.files.upload({"../out": b""}, "/in")


def test_the_log_of_actions(sandbox: Sandbox) -> None:
    sandbox.exec("true")
    entries = Host().audit(sandbox=sandbox.id, limit=1000)
    assert [entry["action"] for entry in entries if "result" not in entry] == [
        "sandbox.create",
        "exec",
    ]
    follower = Host().follow_audit(after=entries[0]["seq"] - 1, sandbox=sandbox.id)
    assert next(follower) == entries[0]
    follower.close()


async def test_the_same_without_blocking(daemon_dir: Path) -> None:
    host = AsyncHost()
    assert (await host.version())["api"] == 1
    async with await AsyncSandbox.create() as sandbox:
        assert (await sandbox.update(labels={"x": "y"})).labels == {"x": "y"}
        kinds = [event.kind async for event in sandbox.logs()]
    assert kinds == ["sandbox.created", "sandbox.updated"]
    assert all(entry["seq"] for entry in await host.audit(limit=5))
