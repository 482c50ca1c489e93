"""Sandboxes over the daemon.

async with await AsyncSandbox.create(ttl_seconds=900) as sandbox:
    result = await sandbox.exec("python3 -c 'print(2 + 2)'")
    print(result.stdout, result.exit_code)
"""

from __future__ import annotations

import contextlib
from builtins import list as List
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from types import EllipsisType, TracebackType
from typing import TYPE_CHECKING, Any, Literal

from agentkernel.client._async.commands import AsyncCommandStream, Command, command_body
from agentkernel.client._async.files import AsyncFiles
from agentkernel.client._async.jobs import AsyncJobs
from agentkernel.client._async.network import AsyncNetwork
from agentkernel.client._async.ports import AsyncPorts
from agentkernel.client._async.runs import (
    finish,
    may_be_fetched,
    run,
    run_batch,
    run_stream,
)
from agentkernel.client._async.transport import (
    LONG_CALL_SECONDS,
    AsyncTransport,
    shared_transport,
)
from agentkernel.client._async.workspace import AsyncWorkspace
from agentkernel.client.results import CommandResult, Event, ProbeResult, SandboxInfo
from agentkernel.client.toolchains import host_environment
from agentkernel.client.wire import broken, segment
from agentkernel.errors import NotFoundError
from agentkernel.ids import new_id

if TYPE_CHECKING:
    from agentkernel.client._async.agent import AsyncAgent
    from agentkernel.client.agent_requests import OnPermission

AtEnd = Literal["stop", "remove"]
_PAGE = 500


class AsyncSandbox:
    """One sandbox. `info` is what was known when it was asked last."""

    def __init__(self, transport: AsyncTransport, info: SandboxInfo, *, kept: bool = True) -> None:
        self.info = info
        self.kept = kept
        self._transport = transport
        self._path = f"/v1/sandboxes/{segment(info.id)}"
        self.files = AsyncFiles(transport, info.id)
        self.jobs = AsyncJobs(transport, info.id)
        self.network = AsyncNetwork(transport, info.id)
        self.ports = AsyncPorts(transport, info.id)
        self.workspace = AsyncWorkspace(transport, info.id)

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def name(self) -> str | None:
        return self.info.name

    # -- life -----------------------------------------------------------------------------------

    @classmethod
    async def create(
        cls,
        *,
        name: str | None = None,
        kept: bool | None = None,
        labels: Mapping[str, str] | None = None,
        ttl_seconds: float | None = None,
        idle_seconds: float | None = None,
        on_ttl: AtEnd | None = None,
        on_idle: AtEnd | None = None,
        idempotency_key: str | None = None,
        progress: Callable[[str], object] | None = None,
        transport: AsyncTransport | None = None,
        **spec: Any,
    ) -> AsyncSandbox:
        """Makes and starts a sandbox; `spec` has the fields of `SandboxSpec`.

        One that has no name is removed at the end of its `with` block, and its files are in
        memory. With a name, or `kept=True`, it stays, and its files survive stop and start.
        `progress`: called with sentences while something is made for it, such as an image fetched.
        """
        transport = transport or shared_transport()
        if kept is None:
            kept = name is not None
        wanted = {
            "name": name,
            "labels": None if labels is None else dict(labels),
            "ttl_seconds": ttl_seconds,
            "idle_seconds": idle_seconds,
            "on_ttl": on_ttl,
            "on_idle": on_idle,
            "ephemeral": not kept,
            "host_env": host_environment(transport.daemon),
            **spec,
        }
        body = await _created(
            transport,
            {key: value for key, value in wanted.items() if value is not None},
            {"Idempotency-Key": idempotency_key or new_id()},
            progress,
        )
        return cls(transport, SandboxInfo.of(body), kept=kept)

    @classmethod
    async def connect(cls, id: str, *, transport: AsyncTransport | None = None) -> AsyncSandbox:
        """The sandbox of an id or a name. Leaving its `with` block leaves it alone."""
        transport = transport or shared_transport()
        body = await transport.call("GET", f"/v1/sandboxes/{segment(id)}")
        return cls(transport, SandboxInfo.of(body))

    @classmethod
    async def list(
        cls,
        *,
        labels: Mapping[str, str] | None = None,
        state: str | None = None,
        owner: str | None = None,
        transport: AsyncTransport | None = None,
    ) -> List[AsyncSandbox]:
        """All sandboxes with all of these labels, in the order they were made.

        `owner`: another's, or `"*"` for everybody's; that needs the scope `admin`.
        """
        transport = transport or shared_transport()
        query: dict[str, Any] = {
            "label": [f"{key}={value}" for key, value in (labels or {}).items()],
            "state": state,
            "owner": owner,
            "limit": _PAGE,
        }
        found: List[AsyncSandbox] = []
        while True:
            body = await transport.call("GET", "/v1/sandboxes", query=query)
            found += [cls(transport, SandboxInfo.of(entry)) for entry in body["sandboxes"]]
            if body.get("next") is None:
                return found
            query["after"] = body["next"]

    async def refresh(self) -> SandboxInfo:
        """What it is now; while it runs, `info.raw["effective"]` says what holds in it."""
        return self._told(await self._transport.call("GET", self._path))

    async def start(self) -> SandboxInfo:
        """Runs a stopped sandbox again. One that runs is left as it is."""
        return self._told(
            await self._transport.call("POST", f"{self._path}/start", seconds=LONG_CALL_SECONDS)
        )

    async def stop(self, *, grace_seconds: float | None = None) -> SandboxInfo:
        """Ends every process and keeps the files, unless they were in memory."""
        wanted = {} if grace_seconds is None else {"grace_seconds": grace_seconds}
        seconds = (grace_seconds or 0.0) + 60.0
        return self._told(
            await self._transport.call("POST", f"{self._path}/stop", json=wanted, seconds=seconds)
        )

    async def extend(self, ttl_seconds: float) -> SandboxInfo:
        """Its time to live begins anew, from now."""
        wanted = {"ttl_seconds": ttl_seconds}
        return self._told(await self._transport.call("POST", f"{self._path}/extend", json=wanted))

    async def update(
        self,
        *,
        name: str | None | EllipsisType = ...,
        labels: Mapping[str, str | None] | EllipsisType = ...,
        ttl_seconds: float | None | EllipsisType = ...,
        idle_seconds: float | None | EllipsisType = ...,
        on_ttl: AtEnd | EllipsisType = ...,
        on_idle: AtEnd | EllipsisType = ...,
    ) -> SandboxInfo:
        """Changes what is given; None takes it away. Of the labels each is one of its own. A time
        to live begins anew, from now."""
        wanted = {
            "name": name,
            "labels": labels,
            "ttl_seconds": ttl_seconds,
            "idle_seconds": idle_seconds,
            "on_ttl": on_ttl,
            "on_idle": on_idle,
        }
        given = {key: value for key, value in wanted.items() if value is not ...}
        if isinstance(labels, Mapping):
            given["labels"] = dict(labels)
        return self._told(await self._transport.call("PATCH", self._path, json=given))

    async def usage(self) -> dict[str, Any] | None:
        """What it has used since it was started, or in its last run. None: nobody knows."""
        body = await self._transport.call("GET", f"{self._path}/usage")
        usage: dict[str, Any] | None = body.get("usage")
        return usage

    async def preview_url(self, port: int) -> str:
        """The address of a published port's preview for a browser, with its token. Raises
        NotFoundError if it is not published, or the daemon listens on no network."""
        for found in await self.ports.list():
            if found.port == port:
                if found.preview_url is None:
                    raise NotFoundError(
                        "the daemon listens on no network, where a browser could find previews",
                        hint="agentkernel config set daemon.listen 127.0.0.1:8700, then "
                        "agentkernel daemon restart",
                    )
                return found.preview_url
        raise NotFoundError(f"port {port} is not published", hint="publish it: ports.publish")

    async def logs(self, *, after: int = 0, follow: bool = False) -> AsyncGenerator[Event, None]:
        """What happened to it, from its beginning; with `follow` also what happens."""
        query = {"after": after, "follow": int(follow)}
        async with aclosing(self._transport.events(f"{self._path}/logs", query=query)) as events:
            async for kind, body in events:
                yield Event.of(kind, body)

    async def probe(self) -> ProbeResult:
        """What a guest can reach, tried from inside; the sandbox has to run, and stays as it is."""
        body = await self._transport.call(
            "POST", f"{self._path}/probe", json={}, seconds=LONG_CALL_SECONDS
        )
        return ProbeResult.of(body)

    async def remove(self) -> None:
        """Ends it and removes every trace but its events."""
        await self._transport.call("DELETE", self._path, seconds=LONG_CALL_SECONDS)

    def _told(self, body: dict[str, Any]) -> SandboxInfo:
        self.info = SandboxInfo.of(body)
        return self.info

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self.kept:
            # Its time was over, or somebody was quicker.
            with contextlib.suppress(NotFoundError):
                await self.remove()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name or self.id} {self.info.state}>"

    # -- agents ---------------------------------------------------------------------------------

    def agent(
        self,
        name: str | None = None,
        *,
        command: Sequence[str] | None = None,
        model: str | None = None,
        env: Mapping[str, str] | None = None,
        mcp: Sequence[Mapping[str, Any]] | None = None,
        resume: str | None = None,
        on_permission: OnPermission | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> AsyncAgent:
        """An agent of this sandbox, for prompts: `await sandbox.agent("claude").prompt("…")`.

        `name`: one that it was made with (`agents=["claude"]`); or `command`: any command line in
        it that speaks the Agent Client Protocol. What it asks leave for is allowed, since the
        sandbox guards; with `on_permission` that is called, and gives the id of the option that is
        chosen, or None. `resume`: the id of a session to go on with.
        """
        from agentkernel.client._async.agent import AsyncAgent

        return AsyncAgent(
            self._transport,
            self.id,
            name,
            command=command,
            model=model,
            env=env,
            mcp=mcp,
            resume=resume,
            on_permission=on_permission,
            progress=progress,
        )

    # -- commands -------------------------------------------------------------------------------

    async def exec(
        self,
        command: Command,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        timeout_seconds: float | None = None,
        stdin: bytes | str | None = None,
        output_bytes: int | None = None,
        check: bool = False,
    ) -> CommandResult:
        """Runs a command to its end. A string is for a shell, a list is argv.

        A command that fails is a result; with `check` it is a CommandFailedError.
        """
        options = {"env": env, "cwd": cwd, "user": user, "timeout_seconds": timeout_seconds}
        result = await finish(
            self._transport, f"{self._path}/exec", command, options, stdin, output_bytes, {}
        )
        return result.check() if check else result

    def stream(
        self,
        command: Command,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        timeout_seconds: float | None = None,
        stdin: bool = False,
        pty: tuple[int, int] | None = None,
        output_bytes: int | None = None,
    ) -> AsyncCommandStream:
        """A command whose output is read while it runs; `pty` is rows and columns.

        `output_bytes`: what of each of stdout and stderr is delivered; the rest is counted.
        """
        options = {
            "env": env,
            "cwd": cwd,
            "user": user,
            "timeout_seconds": timeout_seconds,
            "stdin": stdin or None,
            "pty": None if pty is None else [*pty],
            "output_bytes": output_bytes,
        }
        return AsyncCommandStream(
            self._transport, f"{self._path}/exec/stream", first=command_body(command, options)
        )

    # Commands in sandboxes of their own.
    run = staticmethod(run)
    run_batch = staticmethod(run_batch)
    run_stream = staticmethod(run_stream)


async def _created(
    transport: AsyncTransport,
    wanted: dict[str, Any],
    headers: Mapping[str, str],
    progress: Callable[[str], object] | None,
) -> Any:
    """A stream is told of what is made for it, and that takes as long as it takes."""
    if progress is None and not may_be_fetched(wanted):
        return await transport.call(
            "POST", "/v1/sandboxes", json=wanted, headers=headers, seconds=LONG_CALL_SECONDS
        )
    async with aclosing(
        transport.events("/v1/sandboxes", method="POST", json=wanted, headers=headers)
    ) as events:
        async for kind, body in events:
            if kind == "progress" and progress is not None:
                progress(str(body.get("text")))
            elif kind == "sandbox":
                return body
    raise broken("a sandbox that did not come to an end")
