"""Logins of agents, of which nothing but placeholders enters a sandbox: `kernel.agents.logins`.

An API key is a secret as any other. A subscription's tokens are secrets, too: the access token is
bound to sandboxes as `agent-NAME-access`; the refresh token has a name that no binding can have, so
it is never anywhere but in the store and in requests to the provider. Every owner has logins of its
own, one for all sandboxes of an agent.
"""

from __future__ import annotations

import asyncio
import time
from builtins import list as List
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from agentkernel.agents.credentials import file_inside, read_login
from agentkernel.agents.definition import AgentDefinition, Key, OAuth
from agentkernel.agents.reading import Definitions
from agentkernel.audit.trail import Trail, audited
from agentkernel.errors import (
    ConflictError,
    InvalidInputError,
    LoginEndedError,
    LoginError,
    NotFoundError,
    UnsupportedError,
)
from agentkernel.kernel.agents.login_model import LoginRecord, LoginStatus
from agentkernel.kernel.agents.login_records import LoginRecords
from agentkernel.kernel.agents.refreshing import Refreshing, login_users
from agentkernel.kernel.secrets import Secrets
from agentkernel.kernel.store import Store
from agentkernel.network.policy.model import Operator, SecretBinding
from agentkernel.network.secrets.bindings import reference_of
from agentkernel.network.secrets.names import access_name, login_variable, refresh_name
from agentkernel.network.secrets.store import Hidden

NOTHING_ENTERS: Final = "nothing: a placeholder stands for it"


@dataclass(frozen=True)
class LoginUse:
    """What a sandbox gets of a login: `secrets` as in SandboxSpec; `words`: which login that is,
    for people. Empty: there is none."""

    secrets: tuple[str, ...] = ()
    words: str = ""


class Logins:
    """See the module. `directory`: where the records of logins are."""

    def __init__(
        self,
        definitions: Definitions,
        secrets: Secrets,
        rows: Store,
        trail: Trail,
        directory: Path,
        operator: Operator,
    ) -> None:
        self._definitions = definitions
        self._secrets = secrets
        self._rows = rows
        self.trail = trail
        self._records = LoginRecords(directory)
        self._refreshing = Refreshing(definitions, secrets, rows, trail, self._records, operator)

    def start(self) -> None:
        """Sees to it from now on that tokens of sandboxes that run are new ones in time."""
        self._refreshing.start()

    async def close(self) -> None:
        """Waits for what is being asked for, and ends."""
        await self._refreshing.close()

    async def use(self, definition: AgentDefinition, *, owner: str) -> LoginUse:
        """The owner's login with this agent, refreshed if it is about to end. Raises
        LoginEndedError, LoginError: there is one that can't be used."""
        record = self._oauth_record(definition, owner)
        oauth = definition.login.oauth
        if record is not None and oauth is not None:
            record = await self._usable(definition, record)
            hosts = ",".join(oauth.hosts)
            whose = f" of {record.account}" if record.account else ""
            binding = f"{login_variable(definition.name)}={access_name(definition.name)}@{hosts}"
            return LoginUse((binding,), f"the login{whose}")
        keys = await self._keys(definition, owner)
        if not keys:
            return LoginUse()
        names = ", ".join(key.secret for key in keys)
        words = f"the API key {names}" if len(keys) == 1 else f"the API keys {names}"
        return LoginUse(tuple(map(_binding, keys)), words)

    async def files(
        self, definition: AgentDefinition, bound: Sequence[SecretBinding], *, owner: str
    ) -> dict[str, bytes]:
        """Files of the agent's home (as "~/…") that stand for the login, made of the placeholders
        that the new sandbox has been given."""
        oauth = definition.login.oauth
        record = self._oauth_record(definition, owner)
        wanted = reference_of(owner, access_name(definition.name))
        placeholder = next((each.placeholder for each in bound if each.reference == wanted), None)
        if oauth is None or record is None or placeholder is None:
            return {}
        return {oauth.file: file_inside(oauth, record.kept, placeholder)}

    async def status(self, agent: str, *, owner: str) -> LoginStatus:
        """What is known of the owner's login with an agent. Raises NotFoundError."""
        definition = self._definitions.get(agent)
        login = definition.login
        record = self._oauth_record(definition, owner)
        shown = LoginStatus(
            agent=agent,
            keys=[key.secret for key in login.keys],
            file=login.oauth.file if login.oauth else "",
            can_log_in=bool(login.command and login.oauth),
            about=login.about,
        )
        if record is not None and login.oauth is not None:
            return msgspec.structs.replace(
                shown,
                kind="oauth",
                state=record.state,
                account=record.account,
                created_at=record.created_at,
                expires_at=record.expires_at,
                refreshed_at=record.refreshed_at,
                refreshable=record.refreshable,
                problem=record.problem,
                enters=login.oauth.leaks or NOTHING_ENTERS,
                sandboxes=await self._users(owner, access_name(agent)),
            )
        used = [key.secret for key in await self._keys(definition, owner)]
        if not used:
            return shown
        users = [name for secret in used for name in await self._users(owner, secret)]
        return msgspec.structs.replace(
            shown,
            kind="key",
            state="ok",
            secrets=used,
            enters=NOTHING_ENTERS,
            sandboxes=list(dict.fromkeys(users)),
        )

    async def list(self, *, owner: str) -> List[LoginStatus]:
        """Of all agents there are, by name; one whose definition can't be read is left out."""
        shown = []
        for name in self._definitions.names():
            try:
                shown.append(await self.status(name, owner=owner))
            except InvalidInputError:
                continue  # whoever asks for it by name is told
        return shown

    @audited("agent.login")
    async def take(self, agent: str, value: Hidden, *, owner: str) -> LoginStatus:
        """Takes over a login from the agent's own file, given as its content. Raises
        InvalidInputError, UnsupportedError."""
        oauth = self._oauth(agent)
        tokens = read_login(oauth, value.reveal())
        now = time.time()
        if tokens.expires_at is not None and tokens.expires_at <= now and tokens.refresh is None:
            raise InvalidInputError(
                "that login has ended, and has no refresh token", hint="log in again"
            )
        self.trail.found(None, None)
        async with self._refreshing.quiet(owner, agent):
            if tokens.refresh is not None:
                await self._secrets.keep(refresh_name(agent), tokens.refresh, owner=owner)
            else:
                await self._secrets.forget(refresh_name(agent), owner=owner)
            await self._secrets.keep(access_name(agent), tokens.access, owner=owner)
            await asyncio.to_thread(
                self._records.put,
                LoginRecord(
                    agent=agent,
                    owner=owner,
                    created_at=now,
                    account=tokens.label,
                    expires_at=tokens.expires_at,
                    obtained_at=now,
                    refreshable=tokens.refresh is not None and bool(oauth.token_url),
                    kept=tokens.kept,
                ),
            )
        self._refreshing.wake()
        return await self.status(agent, owner=owner)

    @audited("agent.login_key")
    async def take_key(
        self, agent: str, value: Hidden, *, name: str | None = None, owner: str
    ) -> LoginStatus:
        """An API key, kept as the secret `name`, which is one that the agent takes (the first of
        them unless given). It stands in place of any other login with the agent."""
        keys = self._definitions.get(agent).login.keys
        key = next((key for key in keys if name in (None, key.secret)), None)
        if key is None:
            takes = ", ".join(each.secret for each in keys)
            raise InvalidInputError(
                f"{agent} takes no API key" + (f" {name[:64]!a}" if name else ""),
                hint=f"it takes {takes}" if takes else None,
            )
        self.trail.found(None, None)
        await self._secrets.keep(key.secret, value, owner=owner)
        await self._forget(agent, owner)
        record = LoginRecord(agent=agent, owner=owner, created_at=time.time(), key=key.secret)
        await asyncio.to_thread(self._records.put, record)
        return await self.status(agent, owner=owner)

    @audited("agent.logout")
    async def remove(self, agent: str, *, owner: str) -> LoginStatus:
        """Forgets a login: its tokens, or the API key that was set for it. What the provider knows
        of it stays there. Raises NotFoundError, ConflictError."""
        before = await self.status(agent, owner=owner)
        record = self._records.get(owner, agent)
        if before.kind == "none":
            raise NotFoundError(f"you are not logged in with {agent}")
        if record is None:
            names = " ".join(before.secrets)
            raise ConflictError(
                f"{agent} uses what you set as a secret ({names}), as other agents may",
                hint=f"`agentkernel secret remove {names}`",
            )
        self.trail.found(None, None)
        await self._forget(agent, owner)
        if record.key:
            await self._secrets.forget(record.key, owner=owner)
        return before

    async def refresh(self, agent: str, *, owner: str) -> LoginStatus:
        """Asks for a new access token now. Raises NotFoundError, LoginError, LoginEndedError."""
        oauth = self._oauth(agent)
        record = self._oauth_record(self._definitions.get(agent), owner)
        if record is None:
            raise NotFoundError(f"there is no login with {agent} to refresh")
        await self._refreshing.renew(oauth, record)
        return await self.status(agent, owner=owner)

    async def _usable(self, definition: AgentDefinition, record: LoginRecord) -> LoginRecord:
        oauth = self._oauth(definition.name)
        now = time.time()
        over = record.expires_at is not None and record.expires_at <= now
        if record.ended or (over and not record.refreshable):
            raise LoginEndedError(
                f"the login with {definition.name} has ended"
                + (f": {record.problem}" if record.problem else ""),
                hint=f"`agentkernel agent login {definition.name}`",
            )
        reference = reference_of(record.owner, access_name(record.agent))
        # Somebody may have removed it as a secret.
        gone = reference not in await self._secrets.values([reference])
        over = over or gone
        if over or (record.due_at is not None and record.due_at <= now):
            try:
                return await self._refreshing.renew(oauth, record)
            except LoginEndedError:
                raise
            except LoginError:
                if over:
                    raise
        return record

    def _oauth_record(self, definition: AgentDefinition, owner: str) -> LoginRecord | None:
        record = self._records.get(owner, definition.name)
        if record is None or record.key or definition.login.oauth is None:
            return None
        return record

    def _oauth(self, agent: str) -> OAuth:
        oauth = self._definitions.get(agent).login.oauth
        if oauth is None:
            raise UnsupportedError(
                f"{agent} has no login but API keys",
                hint=f"`agentkernel agent login {agent} --api-key`",
            )
        return oauth

    async def _forget(self, agent: str, owner: str) -> None:
        async with self._refreshing.quiet(owner, agent):
            # The record first: tokens that no record tells of are used by nobody.
            await asyncio.to_thread(self._records.remove, owner, agent)
            await self._secrets.forget(access_name(agent), owner=owner)
            await self._secrets.forget(refresh_name(agent), owner=owner)

    async def _keys(self, definition: AgentDefinition, owner: str) -> List[Key]:
        there = {secret.name for secret in await self._secrets.list(owner=owner)}
        found = [key for key in definition.login.keys if key.secret in there]
        if record := self._records.get(owner, definition.name):
            found.sort(key=lambda key: key.secret != record.key)
        return found if definition.login.all_keys else found[:1]

    async def _users(self, owner: str, secret: str) -> List[str]:
        found = await login_users(self._rows, reference_of(owner, secret))
        return [record.name or record.id for record in found]


def _binding(key: Key) -> str:
    where = key.binding.removeprefix("@")
    return f"{key.secret}@{where}" if where else key.secret
