"""The daemon and the machine it works on: what is there, how it is, what happened."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from agentkernel.client._async.agent_sessions import AsyncAgentSessions
from agentkernel.client._async.agents import AsyncAgents
from agentkernel.client._async.images import AsyncImages
from agentkernel.client._async.jobs import AsyncJob, find_job, list_jobs
from agentkernel.client._async.secrets import AsyncSecrets
from agentkernel.client._async.templates import AsyncTemplates
from agentkernel.client._async.tokens import AsyncTokens
from agentkernel.client._async.transport import (
    LONG_CALL_SECONDS,
    AsyncTransport,
    shared_transport,
)
from agentkernel.client._async.volumes import AsyncVolumes
from agentkernel.client.results import Backend, Event


class AsyncHost:
    """The daemon of the state directory that is in force."""

    def __init__(self, *, transport: AsyncTransport | None = None) -> None:
        self._transport = transport or shared_transport()
        self.agents = AsyncAgents(self._transport)
        self.agent_sessions = AsyncAgentSessions(self._transport)
        self.images = AsyncImages(self._transport)
        self.secrets = AsyncSecrets(self._transport)
        self.tokens = AsyncTokens(self._transport)
        self.templates = AsyncTemplates(self._transport)
        self.volumes = AsyncVolumes(self._transport)

    async def version(self) -> dict[str, Any]:
        """Version, process and state directory of the daemon."""
        return await self._object("/v1/version")

    async def status(self) -> dict[str, Any]:
        """How many sandboxes and jobs there are by state, and what the daemon itself takes."""
        return await self._object("/v1/status")

    async def openapi(self) -> dict[str, Any]:
        """The API's description of itself."""
        return await self._object("/v1/openapi.json")

    async def backends(self, *, check: bool = False) -> list[Backend]:
        """The engines of this machine. With `check` each is tried, which takes seconds."""
        query = {"check": 1 if check else None}
        body = await self._transport.call(
            "GET", "/v1/backends", query=query, seconds=LONG_CALL_SECONDS
        )
        return [Backend.of(entry) for entry in body["backends"]]

    async def doctor(self) -> dict[str, Any]:
        """`fit` and `findings`: the machine and the install, tried. Takes seconds."""
        return await self._object("/v1/doctor")

    async def jobs(self, *, sandbox: str | None = None, state: str | None = None) -> list[AsyncJob]:
        """The jobs of all sandboxes, in the order they were started."""
        return await list_jobs(sandbox=sandbox, state=state, transport=self._transport)

    async def job(self, id: str) -> AsyncJob:
        """A job of any sandbox."""
        return await find_job(self._transport, id)

    async def events(
        self, *, after: int | None = None, sandbox: str | None = None, follow: bool = True
    ) -> AsyncGenerator[Event, None]:
        """What happens to sandboxes and jobs, from now on or from behind event `after`."""
        query = {"after": after, "sandbox": sandbox, "follow": int(follow)}
        async with aclosing(self._transport.events("/v1/events", query=query)) as events:
            async for kind, body in events:
                yield Event.of(kind, body)

    async def audit(
        self, *, after: int | None = None, limit: int = 100, sandbox: str | None = None
    ) -> list[dict[str, Any]]:
        """Lines of the log of actions behind number `after`; without it, the newest."""
        query = {"after": after, "limit": limit, "sandbox": sandbox}
        body = await self._transport.call("GET", "/v1/audit", query=query)
        entries: list[dict[str, Any]] = body["entries"]
        return entries

    async def follow_audit(
        self, *, after: int | None = None, sandbox: str | None = None
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The same as they come, from now on unless `after` says otherwise."""
        query = {"after": after, "sandbox": sandbox}
        async with aclosing(self._transport.events("/v1/audit", query=query)) as events:
            async for _, body in events:
                yield body

    async def disk_usage(self) -> dict[str, Any]:
        """What sandboxes, volumes, images and records take, and how much of the disk is free."""
        return await self._object("/v1/system/df")

    async def prune(
        self, *, sandboxes: bool = False, volumes: bool = False, dry_run: bool = False
    ) -> dict[str, Any]:
        """Removes layers, blobs and downloads that nothing needs; `sandboxes`: and stopped
        sandboxes; `volumes`: and volumes that none has. `dry_run`: tells what would go."""
        wanted = {"sandboxes": sandboxes, "volumes": volumes, "dry_run": dry_run}
        body: dict[str, Any] = await self._transport.call(
            "POST", "/v1/system/prune", json=wanted, seconds=LONG_CALL_SECONDS
        )
        return body

    async def metrics(self) -> str:
        """The daemon's numbers, as Prometheus reads them."""
        return (await self._transport.fetch("GET", "/metrics")).decode()

    async def shut_down(self) -> None:
        """Ends the daemon; sandboxes and jobs go on, and the next call starts another."""
        await self._transport.call("POST", "/v1/shutdown")

    async def _object(self, path: str) -> dict[str, Any]:
        body: dict[str, Any] = await self._transport.call("GET", path, seconds=LONG_CALL_SECONDS)
        return body
