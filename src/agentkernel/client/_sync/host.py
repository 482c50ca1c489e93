# Generated from _async by tools/generate_sync_client.py. Change that, not this.
"""The daemon and the machine it works on: what is there, how it is, what happened."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import Any

from agentkernel.client._sync.agent_sessions import AgentSessions
from agentkernel.client._sync.agents import Agents
from agentkernel.client._sync.images import Images
from agentkernel.client._sync.jobs import Job, find_job, list_jobs
from agentkernel.client._sync.secrets import Secrets
from agentkernel.client._sync.templates import Templates
from agentkernel.client._sync.tokens import Tokens
from agentkernel.client._sync.transport import (
    LONG_CALL_SECONDS,
    Transport,
    shared_transport,
)
from agentkernel.client._sync.volumes import Volumes
from agentkernel.client.results import Backend, Event


class Host:
    """The daemon of the state directory that is in force."""

    def __init__(self, *, transport: Transport | None = None) -> None:
        self._transport = transport or shared_transport()
        self.agents = Agents(self._transport)
        self.agent_sessions = AgentSessions(self._transport)
        self.images = Images(self._transport)
        self.secrets = Secrets(self._transport)
        self.tokens = Tokens(self._transport)
        self.templates = Templates(self._transport)
        self.volumes = Volumes(self._transport)

    def version(self) -> dict[str, Any]:
        """Version, process and state directory of the daemon."""
        return self._object("/v1/version")

    def status(self) -> dict[str, Any]:
        """How many sandboxes and jobs there are by state, and what the daemon itself takes."""
        return self._object("/v1/status")

    def openapi(self) -> dict[str, Any]:
        """The API's description of itself."""
        return self._object("/v1/openapi.json")

    def backends(self, *, check: bool = False) -> list[Backend]:
        """The engines of this machine. With `check` each is tried, which takes seconds."""
        query = {"check": 1 if check else None}
        body = self._transport.call(
            "GET", "/v1/backends", query=query, seconds=LONG_CALL_SECONDS
        )
        return [Backend.of(entry) for entry in body["backends"]]

    def doctor(self) -> dict[str, Any]:
        """`fit` and `findings`: the machine and the install, tried. Takes seconds."""
        return self._object("/v1/doctor")

    def jobs(self, *, sandbox: str | None = None, state: str | None = None) -> list[Job]:
        """The jobs of all sandboxes, in the order they were started."""
        return list_jobs(sandbox=sandbox, state=state, transport=self._transport)

    def job(self, id: str) -> Job:
        """A job of any sandbox."""
        return find_job(self._transport, id)

    def events(
        self, *, after: int | None = None, sandbox: str | None = None, follow: bool = True
    ) -> Generator[Event, None]:
        """What happens to sandboxes and jobs, from now on or from behind event `after`."""
        query = {"after": after, "sandbox": sandbox, "follow": int(follow)}
        with closing(self._transport.events("/v1/events", query=query)) as events:
            for kind, body in events:
                yield Event.of(kind, body)

    def audit(
        self, *, after: int | None = None, limit: int = 100, sandbox: str | None = None
    ) -> list[dict[str, Any]]:
        """Lines of the log of actions behind number `after`; without it, the newest."""
        query = {"after": after, "limit": limit, "sandbox": sandbox}
        body = self._transport.call("GET", "/v1/audit", query=query)
        entries: list[dict[str, Any]] = body["entries"]
        return entries

    def follow_audit(
        self, *, after: int | None = None, sandbox: str | None = None
    ) -> Generator[dict[str, Any], None]:
        """The same as they come, from now on unless `after` says otherwise."""
        query = {"after": after, "sandbox": sandbox}
        with closing(self._transport.events("/v1/audit", query=query)) as events:
            for _, body in events:
                yield body

    def disk_usage(self) -> dict[str, Any]:
        """What sandboxes, volumes, images and records take, and how much of the disk is free."""
        return self._object("/v1/system/df")

    def prune(
        self, *, sandboxes: bool = False, volumes: bool = False, dry_run: bool = False
    ) -> dict[str, Any]:
        """Removes layers, blobs and downloads that nothing needs; `sandboxes`: and stopped
        sandboxes; `volumes`: and volumes that none has. `dry_run`: tells what would go."""
        wanted = {"sandboxes": sandboxes, "volumes": volumes, "dry_run": dry_run}
        body: dict[str, Any] = self._transport.call(
            "POST", "/v1/system/prune", json=wanted, seconds=LONG_CALL_SECONDS
        )
        return body

    def metrics(self) -> str:
        """The daemon's numbers, as Prometheus reads them."""
        return (self._transport.fetch("GET", "/metrics")).decode()

    def shut_down(self) -> None:
        """Ends the daemon; sandboxes and jobs go on, and the next call starts another."""
        self._transport.call("POST", "/v1/shutdown")

    def _object(self, path: str) -> dict[str, Any]:
        body: dict[str, Any] = self._transport.call("GET", path, seconds=LONG_CALL_SECONDS)
        return body
