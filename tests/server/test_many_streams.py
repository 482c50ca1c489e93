"""A thousand event streams at once: each at its command's pace, and the daemon stays small."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

import pytest

from agentkernel.client._async.sandbox import AsyncSandbox
from agentkernel.client._async.transport import AsyncTransport

from .daemon_process import Daemon

MIB = 1 << 20
SANDBOXES = 50
STREAMS = 1000
LINES = 100
STOPPED = 10
# A tenth of a second between two lines, by a builtin: a program for each would be 100,000 of them.
# It begins when all are open, and says when it writes its last line, by the test's own clock.
SCRIPT = f"""
exec 3<> <(:)
until [[ -e /tmp/go ]]; do read -t 0.2 -u 3; done
for ((i = 1; i < {LINES}; i++)); do echo $i; read -t 0.1 -u 3; done
echo "last $EPOCHREALTIME"
"""


def memory_of(pid: int) -> int:
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGESIZE")


class Reader:
    """One stream, read as it comes, over a connection of its own."""

    def __init__(self, daemon: Daemon, sandbox: str) -> None:
        self._daemon = daemon
        self._path = f"/v1/sandboxes/{sandbox}/exec"
        self.first_at = 0.0
        self.lines: list[str] = []
        self.result: dict[str, object] = {}
        self.started = asyncio.Event()
        self.spoke = asyncio.Event()
        self.going_on = asyncio.Event()
        self.going_on.set()

    async def run(self) -> None:
        reader, writer = await asyncio.open_unix_connection(
            str(self._daemon.state_dir / "api.sock"), limit=MIB
        )
        body = json.dumps({"argv": ["bash", "-c", SCRIPT]}).encode()
        writer.write(
            f"POST {self._path} HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        text = ""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            while not self.result:
                await self.going_on.wait()
                size = int(await reader.readuntil(b"\r\n"), 16)
                data = (await reader.readexactly(size + 2))[:-2]
                assert size, "it ended without a last word"
                for event in data.decode().split("\n\n"):
                    kind, _, body_text = event.partition("\ndata: ")
                    if kind == "event: stdout":
                        self.first_at = self.first_at or time.time()
                        self.spoke.set()
                        text += json.loads(body_text)["text"]
                    elif kind == "event: exit":
                        self.result = json.loads(body_text)
                    elif kind == "event: start":
                        self.started.set()
                    else:
                        assert kind in ("event: ping", ""), event
        finally:
            writer.close()
        self.lines = text.splitlines()


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_thousand_streams(own_daemon: Daemon) -> None:
    transport = AsyncTransport(str(own_daemon.state_dir), start=False)
    sandboxes = await asyncio.gather(
        *(AsyncSandbox.create(transport=transport, ephemeral=True) for _ in range(SANDBOXES))
    )
    before = memory_of(own_daemon.pid)
    most = 0
    readers = [Reader(own_daemon, sandboxes[n % SANDBOXES].id) for n in range(STREAMS)]
    stopped, others = readers[:STOPPED], readers[STOPPED:]
    tasks = []
    async with asyncio.timeout(240):
        for begin in range(0, STREAMS, SANDBOXES):
            some = readers[begin : begin + SANDBOXES]
            tasks += [asyncio.create_task(reader.run()) for reader in some]
            await asyncio.gather(*(reader.started.wait() for reader in some))
        assert not any(
            task.done() or reader.first_at for task, reader in zip(tasks, readers, strict=True)
        )
        await asyncio.gather(*(sandbox.files.write("/tmp/go", b"") for sandbox in sandboxes))
        await asyncio.gather(*(reader.spoke.wait() for reader in stopped))
        for reader in stopped:
            reader.going_on.clear()
        pending = set(tasks[STOPPED:])
        while pending:
            done, pending = await asyncio.wait(pending, timeout=0.5)
            for task in done:
                task.result()
            most = max(most, memory_of(own_daemon.pid) - before)
        assert not any(task.done() for task in tasks[:STOPPED])
        for reader in stopped:
            reader.going_on.set()
        await asyncio.gather(*tasks[:STOPPED])
    numbers = [str(n) for n in range(1, LINES)]
    for reader in readers:
        assert reader.lines[:-1] == numbers
        assert reader.result["exit_code"] == 0
    for reader in others:
        last = float(reader.lines[-1].removeprefix("last "))
        assert reader.first_at < last, "the first line came before the last was written"
    assert most <= 64 * MIB, f"{most >> 20} MiB"
    transport.close()
