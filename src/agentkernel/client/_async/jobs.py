"""Background commands: they go on whether or not anybody listens."""

from __future__ import annotations

from builtins import list as List
from collections.abc import Mapping
from typing import Any

from agentkernel.client._async.commands import AsyncCommandStream, Command, command_body
from agentkernel.client._async.transport import AsyncTransport, shared_transport
from agentkernel.client.results import CommandResult, JobInfo
from agentkernel.client.wire import segment
from agentkernel.errors import ConflictError

_PAGE = 500


class AsyncJob:
    """One job. `info` is what was known when it was asked last."""

    def __init__(self, transport: AsyncTransport, info: JobInfo) -> None:
        self.info = info
        self._transport = transport

    @property
    def id(self) -> str:
        return self.info.id

    async def refresh(self) -> JobInfo:
        body = await self._transport.call("GET", f"/v1/jobs/{self.id}")
        self.info = JobInfo.of(body)
        return self.info

    def output(
        self,
        *,
        stdout_offset: int = 0,
        stderr_offset: int = 0,
        follow: bool = True,
        recent: int | None = None,
        size: tuple[int, int] | None = None,
        whole: bool = False,
    ) -> AsyncCommandStream:
        """Its output from the given offsets, live to its end; leaving it leaves the job alone.

        `recent`: only the last so many bytes of what is there. `size`: rows and columns of the
        terminal on which a job with one (`pty`) is shown: its program draws all of it anew. Others
        may be attached to such a job at the same time; one that reads too slowly misses some,
        unless it is to have it `whole`: then the others wait for it.

        Without `follow` it ends when all that was there at its beginning is read; then there is a
        `result` only if the job has ended.
        """
        query = {"stdout_offset": stdout_offset, "stderr_offset": stderr_offset}
        if not follow:
            query["follow"] = 0
        if whole:
            query["whole"] = 1
        if recent is not None:
            query["recent"] = recent
        if size is not None:
            query["rows"], query["columns"] = size
        return AsyncCommandStream(
            self._transport,
            f"/v1/jobs/{self.id}/attach",
            query=query,
            offsets=(stdout_offset, stderr_offset),
        )

    async def wait(self) -> CommandResult:
        """How it ended, when it has. A lost job is a ConflictError: nobody knows how it ended."""
        info = await self.refresh()
        if info.state == "running":
            async with self.output() as output:
                return await output.wait()
        if info.result is None:
            raise ConflictError("the job was lost with its sandbox's processes")
        return info.result

    async def signal(self, number: int) -> None:
        await self._transport.call(
            "POST", f"/v1/jobs/{self.id}/signal", json={"signal": int(number)}
        )

    async def kill(self) -> None:
        """The whole tree, whatever it did to hide."""
        await self._transport.call("POST", f"/v1/jobs/{self.id}/signal", json={"kill": True})

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.info.state}>"


class AsyncJobs:
    """The jobs of a sandbox."""

    def __init__(self, transport: AsyncTransport, sandbox: str) -> None:
        self._transport = transport
        self._path = f"/v1/sandboxes/{segment(sandbox)}/jobs"

    async def start(
        self,
        command: Command,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        timeout_seconds: float | None = None,
        stdin: bool | None = None,
        pty: tuple[int, int] | None = None,
        output_bytes: int | None = None,
    ) -> AsyncJob:
        """Returns when it runs, has ended, or could not be started: `info` tells.

        `output_bytes`: how much of each of its streams is kept, the newest (64 MiB unless given).
        `pty`: rows and columns of a terminal that it has.
        """
        options = {
            "env": env,
            "cwd": cwd,
            "user": user,
            "timeout_seconds": timeout_seconds,
            "stdin": stdin,
            "pty": None if pty is None else [*pty],
            "output_bytes": output_bytes,
        }
        body = await self._transport.call("POST", self._path, json=command_body(command, options))
        return AsyncJob(self._transport, JobInfo.of(body))

    async def list(self) -> list[AsyncJob]:
        body = await self._transport.call("GET", self._path)
        return [AsyncJob(self._transport, JobInfo.of(entry)) for entry in body["jobs"]]

    async def get(self, id: str) -> AsyncJob:
        return await find_job(self._transport, id)


async def list_jobs(
    *,
    sandbox: str | None = None,
    state: str | None = None,
    transport: AsyncTransport | None = None,
) -> List[AsyncJob]:
    """The jobs of all sandboxes, in the order they were started."""
    transport = transport or shared_transport()
    query: dict[str, Any] = {"sandbox": sandbox, "state": state, "limit": _PAGE}
    found: List[AsyncJob] = []
    while True:
        body = await transport.call("GET", "/v1/jobs", query=query)
        found += [AsyncJob(transport, JobInfo.of(entry)) for entry in body["jobs"]]
        if body.get("next") is None:
            return found
        query["after"] = body["next"]


async def find_job(transport: AsyncTransport, id: str) -> AsyncJob:
    """A job of any sandbox."""
    body: dict[str, Any] = await transport.call("GET", f"/v1/jobs/{segment(id)}")
    return AsyncJob(transport, JobInfo.of(body))
