"""New access tokens in time: asked for by the daemon, one request at a time for each login.

What must hold: a refresh token that the provider gave is kept before anything else is done with the
answer, since the one before may be worth nothing from then on; so a crash after that loses nothing.
Whoever asked and leaves does not stop a request that is under way. Sandboxes use the new token from
their next request on. Without a daemon nobody asks: the gateway goes on with the last token.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from agentkernel import faults
from agentkernel.agents.credentials import Tokens, read_answer
from agentkernel.agents.definition import OAuth
from agentkernel.agents.reading import Definitions
from agentkernel.audit.entries import Actor
from agentkernel.audit.trail import Trail, acting
from agentkernel.errors import (
    AgentKernelError,
    ConflictError,
    InvalidInputError,
    LoginEndedError,
    LoginError,
)
from agentkernel.kernel.agents.login_model import LoginRecord
from agentkernel.kernel.agents.login_records import LoginRecords
from agentkernel.kernel.network_control import setting_of
from agentkernel.kernel.secrets import Secrets
from agentkernel.kernel.store import SandboxRecord, Store, event_of
from agentkernel.network.policy.model import Operator
from agentkernel.network.secrets.bindings import reference_of
from agentkernel.network.secrets.names import access_name, refresh_name

# The longest sleep: clocks of machines that slept themselves jump.
_MOST_SLEEP: Final = 60.0
_CLOSE_SECONDS: Final = 5.0


async def login_users(rows: Store, reference: str) -> list[SandboxRecord]:
    """The sandboxes that a secret is bound to."""
    found = []
    for record in await rows.all_sandboxes():
        setting = setting_of(record)
        if setting and any(each.reference == reference for each in setting.secrets):
            found.append(record)
    return found


class Refreshing:
    """Of all logins."""

    def __init__(
        self,
        definitions: Definitions,
        secrets: Secrets,
        rows: Store,
        trail: Trail,
        records: LoginRecords,
        operator: Operator,
    ) -> None:
        self._definitions = definitions
        self._secrets = secrets
        self._rows = rows
        self._trail = trail
        self._records = records
        self._operator = operator
        self._under_way: dict[tuple[str, str], asyncio.Task[LoginRecord]] = {}
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}
        self._wakeup = asyncio.Event()
        self._clock: asyncio.Task[None] | None = None

    def start(self) -> None:
        with acting(Actor(door="clock")):
            self._clock = asyncio.create_task(self._watch(), name="logins")

    def wake(self) -> None:
        self._wakeup.set()

    async def close(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._clock
        if waiting := list(self._under_way.values()):
            _, left = await asyncio.wait(waiting, timeout=_CLOSE_SECONDS)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def quiet(self, owner: str, agent: str) -> AsyncIterator[None]:
        """Nothing is written of this login meanwhile by whoever refreshes it."""
        async with self._locks.setdefault((owner, agent), asyncio.Lock()):
            yield

    async def renew(self, oauth: OAuth, record: LoginRecord) -> LoginRecord:
        """With a new access token. All who ask meanwhile get the same. Raises LoginError,
        LoginEndedError."""
        key = (record.owner, record.agent)
        task = self._under_way.get(key)
        if task is None:
            task = asyncio.create_task(self._logged(oauth, record), name="login")
            self._under_way[key] = task
            task.add_done_callback(self._done)
        return await asyncio.shield(task)

    def _done(self, task: asyncio.Task[LoginRecord]) -> None:
        self._under_way = {k: each for k, each in self._under_way.items() if each is not task}
        if not task.cancelled():
            task.exception()  # whoever asked may have left

    async def _logged(self, oauth: OAuth, record: LoginRecord) -> LoginRecord:
        """Every request has a line in the audit log, whoever it is for: a user, or the clock."""
        action = self._trail.action(
            "agent.refresh", owner=record.owner, args={"agent": record.agent}
        )
        action.begin(None, None)
        try:
            renewed = await self._renew(oauth, record)
        except BaseException as error:
            action.failed(error)
            raise
        action.end()
        return renewed

    async def _renew(self, oauth: OAuth, record: LoginRecord) -> LoginRecord:
        # Loaded here: most daemons have no such login.
        from agentkernel.kernel.agents.token_requests import TokenRefused, ask_token

        owner, agent = record.owner, record.agent
        name = reference_of(owner, refresh_name(agent))
        async with self.quiet(owner, agent):
            known = self._records.get(owner, agent)
            if known is None:
                raise ConflictError(f"the login with {agent} was removed meanwhile")
            if known.obtained_at != record.obtained_at:
                return known  # somebody else was first
            refresh = (await self._secrets.values([name])).get(name)
            if refresh is None or not record.refreshable:
                return await self._failed(record, "there is no refresh token", ended=True)
            try:
                answer = await ask_token(oauth, refresh, self._operator)
                tokens = read_answer(oauth, answer, time.time())
            except TokenRefused as refused:
                return await self._failed(record, refused.words, ended=refused.ended)
            except InvalidInputError as error:
                return await self._failed(record, error.message, ended=False)
            return await self._keep(record, tokens)

    async def _keep(self, record: LoginRecord, tokens: Tokens) -> LoginRecord:
        owner, agent = record.owner, record.agent
        faults.point("login.answered")
        if tokens.refresh is not None:
            await self._secrets.keep(refresh_name(agent), tokens.refresh, owner=owner)
        faults.point("login.refresh_kept")
        await self._secrets.keep(access_name(agent), tokens.access, owner=owner)
        faults.point("login.access_kept")
        now = time.time()
        renewed = await asyncio.to_thread(
            self._records.put,
            msgspec.structs.replace(
                record,
                expires_at=tokens.expires_at,
                obtained_at=now,
                refreshed_at=now,
                kept={**record.kept, **tokens.kept},
                problem="",
                failures=0,
                failed_at=0.0,
                ended=False,
            ),
        )
        await self._tell(renewed, "login.refreshed", agent=agent)
        return renewed

    async def _failed(self, record: LoginRecord, words: str, *, ended: bool) -> LoginRecord:
        failed = await asyncio.to_thread(
            self._records.put,
            msgspec.structs.replace(
                record,
                problem=words,
                failures=record.failures + 1,
                failed_at=time.time(),
                ended=ended,
            ),
        )
        if ended or failed.failures == 1:
            await self._tell(failed, "login.failed", agent=record.agent, reason=words, ended=ended)
        if ended:
            raise LoginEndedError(
                f"the login with {record.agent} has ended: {words}",
                hint=f"`agentkernel agent login {record.agent}`",
            )
        raise LoginError(
            f"there is no new token for {record.agent}: {words}",
            hint="it is asked for again, with pauses; until the token's end the old one is used",
        )

    async def _tell(self, record: LoginRecord, kind: str, **body: object) -> None:
        """In the events of all sandboxes that use the login."""
        users = await login_users(self._rows, _reference(record))
        if users:
            await self._rows.append_events([event_of(user, kind, **body) for user in users])

    async def _watch(self) -> None:
        while True:
            self._wakeup.clear()
            sleep = _MOST_SLEEP
            with contextlib.suppress(AgentKernelError):  # a full disk now, better luck next time
                sleep = await self._look()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(sleep):
                    await self._wakeup.wait()

    async def _look(self) -> float:
        """Asks for what is due; returns how long nothing else will be. A login that no running
        sandbox uses is left alone: it is refreshed when it is used."""
        sleep = _MOST_SLEEP
        records = await asyncio.to_thread(self._records.all)
        due = [record for record in records if record.due_at is not None]
        if not due:
            return sleep
        used = await self._used()
        for record in due:
            left = (record.due_at or 0.0) - time.time()
            if left > 0:
                sleep = min(sleep, left)  # also of one that nobody uses yet
                continue
            if _reference(record) not in used:
                continue
            with contextlib.suppress(AgentKernelError):  # it is in the record and in events
                oauth = self._definitions.get(record.agent).login.oauth
                if oauth is not None:
                    await self.renew(oauth, record)
            again = self._records.get(record.owner, record.agent)
            if again is not None and again.due_at is not None and again.due_at > time.time():
                sleep = min(sleep, again.due_at - time.time())
        return max(sleep, 0.01)

    async def _used(self) -> set[str]:
        return {
            bound.reference
            for record in await self._rows.all_sandboxes()
            if record.state == "running" and (setting := setting_of(record))
            for bound in setting.secrets
        }


def _reference(record: LoginRecord) -> str:
    return reference_of(record.owner, access_name(record.agent))
