"""The asynchronous SDK: the same, and what only it can do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import agentkernel
from agentkernel import AsyncSandbox, errors

pytestmark = pytest.mark.usefixtures("daemon_dir")


@pytest.fixture
async def sandbox(daemon_dir: Path) -> AsyncIterator[AsyncSandbox]:
    async with await AsyncSandbox.create(ttl_seconds=900) as sandbox:
        yield sandbox


async def test_the_example(daemon_dir: Path) -> None:
    async with await AsyncSandbox.create(ttl_seconds=900) as sandbox:
        result = await sandbox.exec("python3 -c 'print(2 + 2)'")
        assert (result.stdout, result.exit_code) == ("4\n", 0)
    with pytest.raises(errors.NotFoundError):
        await AsyncSandbox.connect(sandbox.id)


async def test_stream(sandbox: AsyncSandbox) -> None:
    stream = sandbox.stream("echo out; echo err >&2; exit 3")
    found = {chunk.stream: chunk.text async for chunk in stream}
    assert found == {"stdout": "out\n", "stderr": "err\n"}
    assert stream.result.exit_code == 3


async def test_reading_and_writing_at_once(sandbox: AsyncSandbox) -> None:
    data = b"x" * 2_000_000
    async with sandbox.stream("cat", stdin=True) as stream:

        async def feed() -> None:
            await stream.write(data)
            await stream.close_stdin()

        feeder = asyncio.create_task(feed())
        total = sum([len(chunk.data) async for chunk in stream])
        await feeder
    assert total == len(data)


async def test_many_at_once_do_not_wait_for_one_another(sandbox: AsyncSandbox) -> None:
    await sandbox.exec("true")
    started = time.monotonic()
    done = await asyncio.gather(*(sandbox.exec(f"sleep 1; echo {n}") for n in range(8)))
    assert [int(result.stdout) for result in done] == list(range(8))
    assert time.monotonic() - started < 6


async def test_a_cancelled_call_leaves_the_client_usable(sandbox: AsyncSandbox) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await sandbox.exec("sleep 60")
    assert (await sandbox.exec("echo on")).stdout == "on\n"


async def test_jobs_and_files(sandbox: AsyncSandbox) -> None:
    job = await sandbox.jobs.start("cat /tmp/f; exit 2")
    assert (await job.wait()).exit_code == 2
    assert (await sandbox.exec("echo hi > /tmp/f; cat /tmp/f", check=True)).stdout == "hi\n"
    assert await sandbox.files.read("/tmp/f") == "hi\n"


def test_clients_outlive_an_event_loop(daemon_dir: Path) -> None:
    for _ in range(2):
        done = asyncio.run(AsyncSandbox.run("echo loop"))
        assert done.stdout == "loop\n"


async def test_run(daemon_dir: Path) -> None:
    assert (await agentkernel.arun("echo $((6 * 7))")).stdout == "42\n"
    async with AsyncSandbox.run_stream(["echo", "hi"]) as stream:
        assert [chunk.text async for chunk in stream] == ["hi\n"]


async def test_signals_pass_input_that_is_not_taken(sandbox: AsyncSandbox) -> None:
    async with sandbox.stream("echo up; exec sleep 60", stdin=True) as stream:
        assert await stream.read(seconds=20)
        writer = asyncio.create_task(stream.write(bytes(3_000_000)))
        _, waiting = await asyncio.wait((writer,), timeout=0.3)
        assert waiting, "who would have taken it?"
        await stream.signal(15)
        assert (await stream.wait()).signal == 15
        await writer
