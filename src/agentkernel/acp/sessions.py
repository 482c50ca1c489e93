"""The agent of a bridge: a session of the daemon's, found again or started."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, Final

from agentkernel.acp.attaching import attach, same_directory
from agentkernel.acp.opening import LoginNeededError, Opened
from agentkernel.acp.own_servers import own_servers
from agentkernel.acp.places import Known, Place, places_for, take
from agentkernel.acp.stdio import log
from agentkernel.client._async.agent_sessions import AsyncAgentSession, AsyncAgentSessions
from agentkernel.client._async.jobs import find_job
from agentkernel.client._async.sandbox import AsyncSandbox
from agentkernel.client._async.transport import AsyncTransport
from agentkernel.errors import AgentKernelError, ConflictError, LoginError, NotFoundError

# Of a spec: what differs between two shells of a user and says nothing of the sandbox.
_NO_PURPOSE: Final = ("config", "host_env")


class SessionOpener:
    """`project`: as the editor calls it. `spec`: of the sandbox, in which it is; `options`: other
    fields of an AgentRequest. `sandbox`: one that is there and has the project. `servers_file`: see
    `own_servers`; empty: the agent reads its own."""

    def __init__(
        self,
        transport: AsyncTransport,
        agent: str,
        *,
        project: str,
        spec: Mapping[str, Any],
        options: Mapping[str, Any],
        sandbox: str | None = None,
        servers_file: str = "",
    ) -> None:
        self.agent = agent
        self._transport = transport
        self._sessions = AsyncAgentSessions(transport)
        self._project = project
        self._spec = dict(spec)
        self._options = {**options, "drive": False, "attended": True}
        self._sandbox = sandbox
        self._servers_file = servers_file
        self._place: Place | None = None
        self._session: AsyncAgentSession | None = None

    async def open(self) -> Opened:
        try:
            session, again = await self._found() or (await self._started(), False)
        except LoginError as error:
            raise LoginNeededError(error.message, hint=error.hint) from None
        except ConflictError as error:
            if error.details.get("agent") == self.agent:
                raise LoginNeededError(error.message, hint=error.hint) from None
            raise
        self._session = session
        sandbox = await AsyncSandbox.connect(session.info["sandbox"], transport=self._transport)
        log(f"{self.agent} is in the sandbox {sandbox.name or sandbox.id}")
        job = await find_job(self._transport, session.info["job"])
        guest = await self._guest(session)
        opened = await attach(sandbox, job, self._project, guest, again=again)
        if self._servers_file:
            opened.servers.extend(await own_servers(sandbox, self._servers_file))
        return opened

    async def _guest(self, session: AsyncAgentSession) -> str:
        """Where the project is inside. Raises ConflictError if another one is."""
        if not same_directory(session.info["project"], self._project):
            has = session.info["project"] or "no project"
            raise ConflictError(
                f"the sandbox has {has}, and not {self._project}",
                hint="leave out --sandbox, or start the agent in that directory",
            )
        async with aclosing(session.events(follow=False)) as events:
            first = await anext(events)
        return str(first["body"]["workspace"])

    async def leave(self, *, idle: bool) -> None:
        """What it knows is in its sandbox, so one that waits for nothing but us is ended: the
        next editor's is started there. One that works goes on."""
        if idle and self._session is not None:
            try:
                await self._session.stop()
            except AgentKernelError as error:
                log(error.message)
        if self._place is not None:
            self._place.release()
            self._place = None

    async def _found(self) -> tuple[AsyncAgentSession, bool] | None:
        """The session that the last editor left: it runs, or is gone on with."""
        if self._sandbox is not None:
            return None
        for place in places_for(self._purpose()):
            assert place.known is not None
            try:
                session = await self._sessions.get(place.known.session)
                if session.info["state"] == "running":
                    self._place = place
                    return session, True
                session = await self._start(resume=session.id)
                self._take(session, place)
                return session, False
            except NotFoundError:
                place.forget()
            except BaseException:
                place.release()
                raise
        return None

    async def _started(self) -> AsyncAgentSession:
        session = await self._start(sandbox=self._sandbox)
        self._take(session, None)
        return session

    async def _start(
        self, *, resume: str | None = None, sandbox: str | None = None
    ) -> AsyncAgentSession:
        spec = {} if resume or sandbox else self._spec
        return await self._sessions.start(
            self.agent,
            mode="acp",
            resume=resume,
            sandbox=sandbox,
            progress=log,
            options=self._options,
            **spec,
        )

    def _take(self, session: AsyncAgentSession, old: Place | None) -> None:
        place, made_at = old, time.time()
        if old is not None and old.known is not None:
            made_at = old.known.made_at
            if old.sandbox != session.info["sandbox"]:
                old.forget()  # its sandbox is gone, and another has what it left
                place = None
        place = place or take(session.info["sandbox"])
        if place is not None:
            place.write(Known(self._purpose(), session.id, made_at))
        self._place = place

    def _purpose(self) -> str:
        """What a sandbox has to be made for to be found: all that was asked for."""
        spec = {key: value for key, value in self._spec.items() if key not in _NO_PURPOSE}
        words = [self.agent, self._project, spec, self._options]
        return hashlib.sha256(json.dumps(words, sort_keys=True, default=str).encode()).hexdigest()
