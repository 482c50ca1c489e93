# Generated from _async by tools/generate_sync_client.py. Change that, not this.
"""Background commands: they go on whether or not anybody listens."""

from __future__ import annotations

from builtins import list as List
from collections.abc import Mapping
from typing import Any

from agentkernel.client._sync.commands import CommandStream, Command, command_body
from agentkernel.client._sync.transport import Transport, shared_transport
from agentkernel.client.results import CommandResult, JobInfo
from agentkernel.client.wire import segment
from agentkernel.errors import ConflictError

_PAGE = 500


class Job:
    """One job. `info` is what was known when it was asked last."""

    def __init__(self, transport: Transport, info: JobInfo) -> None:
        self.info = info
        self._transport = transport

    @property
    def id(self) -> str:
        return self.info.id

    def refresh(self) -> JobInfo:
        body = self._transport.call("GET", f"/v1/jobs/{self.id}")
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
    ) -> CommandStream:
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
        return CommandStream(
            self._transport,
            f"/v1/jobs/{self.id}/attach",
            query=query,
            offsets=(stdout_offset, stderr_offset),
        )

    def wait(self) -> CommandResult:
        """How it ended, when it has. A lost job is a ConflictError: nobody knows how it ended."""
        info = self.refresh()
        if info.state == "running":
            with self.output() as output:
                return output.wait()
        if info.result is None:
            raise ConflictError("the job was lost with its sandbox's processes")
        return info.result

    def signal(self, number: int) -> None:
        self._transport.call(
            "POST", f"/v1/jobs/{self.id}/signal", json={"signal": int(number)}
        )

    def kill(self) -> None:
        """The whole tree, whatever it did to hide."""
        self._transport.call("POST", f"/v1/jobs/{self.id}/signal", json={"kill": True})

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.info.state}>"


class Jobs:
    """The jobs of a sandbox."""

    def __init__(self, transport: Transport, sandbox: str) -> None:
        self._transport = transport
        self._path = f"/v1/sandboxes/{segment(sandbox)}/jobs"

    def start(
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
    ) -> Job:
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
        body = self._transport.call("POST", self._path, json=command_body(command, options))
        return Job(self._transport, JobInfo.of(body))

    def list(self) -> list[Job]:
        body = self._transport.call("GET", self._path)
        return [Job(self._transport, JobInfo.of(entry)) for entry in body["jobs"]]

    def get(self, id: str) -> Job:
        return find_job(self._transport, id)


def list_jobs(
    *,
    sandbox: str | None = None,
    state: str | None = None,
    transport: Transport | None = None,
) -> List[Job]:
    """The jobs of all sandboxes, in the order they were started."""
    transport = transport or shared_transport()
    query: dict[str, Any] = {"sandbox": sandbox, "state": state, "limit": _PAGE}
    found: List[Job] = []
    while True:
        body = transport.call("GET", "/v1/jobs", query=query)
        found += [Job(transport, JobInfo.of(entry)) for entry in body["jobs"]]
        if body.get("next") is None:
            return found
        query["after"] = body["next"]


def find_job(transport: Transport, id: str) -> Job:
    """A job of any sandbox."""
    body: dict[str, Any] = transport.call("GET", f"/v1/jobs/{segment(id)}")
    return Job(transport, JobInfo.of(body))
