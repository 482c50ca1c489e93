"""Tokens: what callers who come over a network have to show, and what each of them may do.

    ak_<id>_<secret>      the id to find it by, 256 random bits to prove it

What must hold: a secret is given out once, by `create`; what is kept of it is its SHA-256, which is
enough for a secret that nobody chose. All tokens are in memory: to check one is not a question to
the disk, and one that was revoked is refused from that moment on, and what it holds open ends.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import math
import os
import re
import time
from builtins import list as List
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple, get_args

import msgspec

from agentkernel.audit.trail import Trail, audited
from agentkernel.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    ResourceExhaustedError,
    UnauthenticatedError,
)
from agentkernel.ids import check_name, new_id
from agentkernel.kernel.store import Store, TokenRecord

Scope = Literal["read", "exec", "manage", "host-paths", "admin"]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
DEFAULT_SCOPES: Final[tuple[Scope, ...]] = ("read", "exec", "manage")
MAX_TOKENS: Final = 1000
OWNER: Final = re.compile(r"[a-z0-9][a-z0-9:._/-]{0,127}")
# One that ended is shown for so long, then forgotten.
_KEPT_SECONDS: Final = 30 * 24 * 3600.0
# How exactly the last use is known.
_COARSE_SECONDS: Final = 3600.0
_MOST_SECONDS: Final = 1e9
_TEXT: Final = re.compile(r"ak_([a-z0-9]{20})_([0-9a-f]{64})", re.ASCII)
_NOBODY: Final = hashlib.sha256(b"").hexdigest()


class NewToken(NamedTuple):
    """The only time that `text` is there."""

    record: TokenRecord
    text: str


class Tokens:
    """All tokens of a kernel."""

    def __init__(self, store: Store, trail: Trail, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self.trail = trail
        self._clock = clock
        self._records: dict[str, TokenRecord] = {}
        self._revoked: dict[str, asyncio.Event] = {}
        self._marks: set[asyncio.Task[None]] = set()
        self._creating = asyncio.Lock()

    async def load(self) -> None:
        self._records = {record.id: record for record in await self._store.tokens()}

    async def close(self) -> None:
        """Waits for what is being written down."""
        if self._marks:
            await asyncio.wait(self._marks)

    @audited("token.create")
    async def create(
        self,
        name: str,
        *,
        acts_as: str | None = None,
        scopes: Sequence[str] = DEFAULT_SCOPES,
        expires_seconds: float | None = None,
    ) -> NewToken:
        """`acts_as`: whose sandboxes there are for it; an owner of its own unless given."""
        check_name(name)
        owner = acts_as if acts_as is not None else f"token:{name}"
        if not OWNER.fullmatch(owner):
            raise InvalidInputError(
                "an owner is a name of small letters, digits and : . _ / -, at most 128"
            )
        if unknown := sorted(set(scopes) - set(SCOPES)):
            raise InvalidInputError(
                f"{unknown[0]!r} is not a scope", hint=f"scopes are {', '.join(SCOPES)}"
            )
        if not scopes:
            raise InvalidInputError("a token without any scope is of no use")
        if expires_seconds is not None and not 0 < expires_seconds <= _MOST_SECONDS:
            raise InvalidInputError("a token expires after more than 0 s")
        async with self._creating:  # two at once would both find the name free
            now = self._clock()
            live = [record for record in self._records.values() if self._over(record, now) is None]
            if any(record.name == name for record in live):
                raise ConflictError(
                    f"there is a token named {name} already",
                    hint="choose another name and give it the same owner, or revoke that one first",
                )
            if len(live) >= MAX_TOKENS:
                raise ResourceExhaustedError(
                    f"{len(live)} tokens are valid, which is the most there may be",
                    hint="revoke some",
                )
            id, secret = new_id(), os.urandom(32).hex()
            self.trail.found(None, None)
            forgotten = now - _KEPT_SECONDS
            record = await self._store.insert_token(
                TokenRecord(
                    id=id,
                    name=name,
                    owner=owner,
                    scopes=[scope for scope in SCOPES if scope in scopes],
                    sha256=_digest(secret),
                    created_at=now,
                    expires_at=None if expires_seconds is None else now + expires_seconds,
                ),
                forget_before=forgotten,
            )
            # Not read anew: what is revoked meanwhile is known here before it is on disk.
            self._records = {
                known.id: known for known in self._records.values() if _ended(known) >= forgotten
            }
            self._records[id] = record
            return NewToken(record, f"ak_{id}_{secret}")

    @audited("token.revoke", "token")
    async def revoke(self, id: str) -> TokenRecord:
        """By id, or by the name of one that is valid. One that ended before is left as it was."""
        record = self._named(id)
        self.trail.found(None, None)
        if record.revoked_at is not None:
            return record
        now = self._clock()
        # First in memory: whoever is told that it is written has nothing left to fear.
        record = self._records[record.id] = msgspec.structs.replace(record, revoked_at=now)
        if event := self._revoked.pop(record.id, None):
            event.set()
        await self._store.mark_token(record.id, "revoked_at", now)
        return record

    def list(self) -> List[TokenRecord]:
        """In the order they were made, with those that ended lately."""
        return [*self._records.values()]

    def check(self, text: str) -> TokenRecord:
        """The token that these words are; UnauthenticatedError."""
        match = _TEXT.fullmatch(text)
        record = None if match is None else self._records.get(match[1])
        # A guess takes as long as a hit, whether there is such an id or not.
        digest = _digest("" if match is None else match[2])
        right = hmac.compare_digest(digest, _NOBODY if record is None else record.sha256)
        if record is None or not right:
            raise UnauthenticatedError("the token is not one of this daemon's", hint=_HINT)
        now = self._clock()
        if over := self._over(record, now):
            raise over
        if now - (record.last_used_at or 0.0) >= _COARSE_SECONDS:
            self._records[record.id] = msgspec.structs.replace(record, last_used_at=now)
            mark = asyncio.ensure_future(self._store.mark_token(record.id, "last_used_at", now))
            self._marks.add(mark)
            mark.add_done_callback(self._marked)
        return record

    async def over(self, id: str) -> UnauthenticatedError:
        """Returns when the token is not valid any more: why."""
        while True:
            record = self._records.get(id)
            if record is None:
                return UnauthenticatedError("the token is gone", hint=_HINT)
            now = self._clock()
            if over := self._over(record, now):
                return over
            left = _COARSE_SECONDS if record.expires_at is None else record.expires_at - now
            try:
                async with asyncio.timeout(min(left, _COARSE_SECONDS)):
                    await self._revoked.setdefault(id, asyncio.Event()).wait()
            except TimeoutError:
                pass

    def _marked(self, mark: asyncio.Task[None]) -> None:
        self._marks.discard(mark)
        if not mark.cancelled():
            mark.exception()  # a use that could not be written down is not worth a failure

    def _over(self, record: TokenRecord, now: float) -> UnauthenticatedError | None:
        if record.revoked_at is not None:
            return UnauthenticatedError("the token was revoked", hint=_HINT)
        if record.expires_at is not None and record.expires_at <= now:
            return UnauthenticatedError("the token has expired", hint=_HINT)
        return None

    def _named(self, id: str) -> TokenRecord:
        if record := self._records.get(id):
            return record
        now = self._clock()
        for record in self._records.values():
            if record.name == id and self._over(record, now) is None:
                return record
        raise NotFoundError(f"no valid token {id}", hint="list the tokens there are")


def _ended(record: TokenRecord) -> float:
    return min(
        math.inf if moment is None else moment for moment in (record.revoked_at, record.expires_at)
    )


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


_HINT: Final = "make one on the daemon's machine: `agentkernel token create NAME`"
