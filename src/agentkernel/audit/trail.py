"""Actions as lines: one when an action begins, one with its result, both before anybody is told.

    class Kernel:
        @audited("sandbox.stop")
        async def stop(self, id, …):
            record, live = await self._find(id, owner)      # calls trail.found(…)

What must hold: nothing is done to a sandbox before `found` was called for it, as that writes the
first line, and raises if it can't be written: no line, no action. What ends things goes on without
(ENDING): a full disk must not keep a sandbox alive. A result that can't be written is counted, and
the log says so with its next line.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, ParamSpec, Protocol, TypeVar

import msgspec

from agentkernel.audit.entries import Actor
from agentkernel.audit.log import AuditLog
from agentkernel.errors import AgentKernelError

ENDING: Final = frozenset(
    {
        "sandbox.stop", "sandbox.remove", "job.kill", "job.signal", "kernel.stop",
        "kernel.stop_asked", "token.revoke", "port.unpublish", "secret.remove",
        "volume.remove", "agent.logout", "agent.remove",
        "image.remove", "image.prune", "agent.stop", "agent.forget", "agent.cancel",
    }
)  # fmt: skip

P = ParamSpec("P")
T = TypeVar("T")

_actor: ContextVar[Actor | None] = ContextVar("agentkernel_actor", default=None)
_current: ContextVar[Action | None] = ContextVar("agentkernel_action", default=None)


class acting:
    """Everything that is asked for in the block, and in tasks made in it, is asked by `actor`."""

    __slots__ = ("_asker", "_token")

    def __init__(self, actor: Actor) -> None:
        self._asker = actor

    def __enter__(self) -> None:
        self._token = _actor.set(self._asker)

    def __exit__(self, *_: object) -> None:
        _actor.reset(self._token)


def current_actor() -> Actor:
    """Whoever asks; without a door in between, this process itself."""
    return _actor.get() or Actor(door="library", uid=os.getuid(), pid=os.getpid())


class Shows(Protocol):
    """How the owner of a trail puts parameters and results into bounded words without secrets."""

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]: ...

    def outcome(self, result: Any) -> dict[str, Any]: ...


Ended = Callable[[str, str | None, Mapping[str, Any]], None]


class Observer(Protocol):
    """Who counts or times what is done. Must not raise."""

    def began(self, action: str) -> Ended:
        """What is to be called with the action's result, code and details."""


class Action:
    """Something that is being done. `begin` at most once, then `end` once."""

    __slots__ = (
        "_actor", "_args", "_asked", "_ended", "_log", "_name", "_sandbox", "_seq", "action",
    )  # fmt: skip

    def __init__(
        self,
        log: AuditLog,
        action: str,
        actor: Actor,
        asked: str | None,
        args: dict[str, Any],
        ended: Ended | None = None,
    ) -> None:
        self.action = action
        self._ended = ended
        self._log = log
        self._actor = actor
        self._asked = asked
        self._args = args
        self._sandbox: str | None = None
        self._name: str | None = None
        self._seq: int | None = None

    def begin(self, sandbox: str | None, name: str | None) -> None:
        if self._seq is not None:
            return
        self._sandbox, self._name, self._seq = sandbox, name, 0
        try:
            self._seq = self._log.append(
                self.action, actor=self._actor, sandbox=sandbox, name=name, args=self._args
            )
        except AgentKernelError:
            if self.action not in ENDING:
                raise
            self._log.lost()

    def end(
        self, result: str = "ok", code: str | None = None, details: dict[str, Any] | None = None
    ) -> None:
        args = None
        if not self._seq:
            # It came to nothing before its target was known, or its first line was lost.
            args = self._args if self._asked is None else {"asked": self._asked, **self._args}
        try:
            self._log.append(
                self.action, of=self._seq or None, actor=self._actor, sandbox=self._sandbox,
                name=self._name, args=args, result=result, code=code, details=details,
            )  # fmt: skip
        except AgentKernelError:
            self._log.lost()
        if self._ended is not None:
            self._ended(result, code, details or {})

    def failed(self, error: BaseException, details: dict[str, Any] | None = None) -> None:
        if isinstance(error, AgentKernelError):
            self.end("error", error.code, details)
        elif isinstance(error, asyncio.CancelledError | GeneratorExit):
            self.end("cancelled", details=details)
        else:
            self.end("error", "internal", details)


class Trail:
    """What an owner of sandboxes writes its log with."""

    def __init__(self, log: AuditLog, shows: Shows) -> None:
        self.log = log
        self.shows = shows
        self.observer: Observer | None = None

    def close(self) -> None:
        self.note("kernel.stop")
        self.log.close()

    def found(self, sandbox: str | None, name: str | None) -> None:
        """The target of what is being done is known; nothing was done to it yet. None: it is no
        sandbox."""
        if action := _current.get():
            action.begin(sandbox, name)

    def action(
        self, action: str, *, asked: str | None = None, owner: str | None = None, args: Any = None
    ) -> Action:
        actor = current_actor()
        if owner is not None and actor.owner != owner:
            actor = msgspec.structs.replace(actor, owner=owner)
        ended = self.observer.began(action) if self.observer else None
        return Action(self.log, action, actor, asked, args or {}, ended)

    def note(
        self, action: str, *, sandbox: str | None = None, name: str | None = None,
        result: str = "ok", code: str | None = None, **args: Any,
    ) -> None:  # fmt: skip
        """Something that is done by one line: it happened, or was refused."""
        shown = self.shows.arguments(args)
        done = self.action(action, args=shown)
        done._sandbox, done._name = sandbox, name
        done.end(result, code)


class Trailed(Protocol):
    """Who has audited methods."""

    @property
    def trail(self) -> Trail: ...


def audited(action: str, key: str | None = None) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """For a coroutine method, or one that returns an async context manager (an action that lasts as
    long as the block). Its first parameter is the target, as the caller named it, unless the
    target is new; with `key` it is an argument of that name, for what is inside a sandbox."""

    def decorate(method: Callable[P, T]) -> Callable[P, T]:
        names = tuple(inspect.signature(method).parameters)[1:]
        targeted = names[0] in ("id", "sandbox")

        def begin(self: Trailed, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Action:
            given = dict(zip(names, args, strict=False))
            given.update(kwargs)
            asked = given.get(names[0]) if targeted else None
            shown = self.trail.shows.arguments(given)
            asked = asked[:64] if isinstance(asked, str) else None
            if key is not None:
                shown, asked = {key: asked, **shown}, None
            return self.trail.action(action, asked=asked, owner=given.get("owner"), args=shown)

        wrapper: Any
        if inspect.iscoroutinefunction(method):

            @functools.wraps(method)
            async def call(self: Trailed, *args: Any, **kwargs: Any) -> Any:
                done = begin(self, args, kwargs)
                token = _current.set(done)
                try:
                    result = await method(self, *args, **kwargs)  # type: ignore[arg-type]
                except BaseException as exc:
                    done.failed(exc)
                    raise
                finally:
                    _current.reset(token)
                done.end(details=self.trail.shows.outcome(result))
                return result

            wrapper = call
        else:

            @functools.wraps(method)
            def block(self: Trailed, *args: Any, **kwargs: Any) -> Any:
                inner: Any = method(self, *args, **kwargs)  # type: ignore[arg-type]
                return _Block(inner, self.trail, begin(self, args, kwargs))

            wrapper = block
        wrapper.audited = action
        result: Callable[P, T] = wrapper
        return result

    return decorate


class _Block(AbstractAsyncContextManager[Any]):
    """A context manager whose time is an action. It is the current one while it is entered only:
    what is done inside the block is not part of it."""

    def __init__(
        self, inner: AbstractAsyncContextManager[Any], trail: Trail, action: Action
    ) -> None:
        self._inner = inner
        self._trail = trail
        self._action = action
        self._value: Any = None

    async def __aenter__(self) -> Any:
        token = _current.set(self._action)
        try:
            self._value = await self._inner.__aenter__()
        except BaseException as exc:
            self._action.failed(exc)
            raise
        finally:
            _current.reset(token)
        return self._value

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        try:
            swallowed = await self._inner.__aexit__(kind, error, trace)
        except BaseException as exc:
            self._action.failed(exc)
            raise
        if error is not None and not swallowed:
            self._action.failed(error)
        else:
            self._action.end(details=self._trail.shows.outcome(self._value))
        return swallowed
