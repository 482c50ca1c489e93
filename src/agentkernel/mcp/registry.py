"""What a tool is: a name, words for models, the types of its arguments and answer, and a function.

Nothing of the protocol is known here, so tools can be called by anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from agentkernel.client._async.sandbox import AsyncSandbox
from agentkernel.client._async.transport import AsyncTransport
from agentkernel.errors import InvalidInputError, ResourceExhaustedError
from agentkernel.mcp.operator import Operator
from agentkernel.mcp.pages import Outputs
from agentkernel.mcp.progress import Report

MOST_COMMANDS = 32
# What a tool may do to what is there; clients ask their user before the last one.
Effect = Literal["reads", "adds", "changes", "destroys"]
A = TypeVar("A", bound=msgspec.Struct)

SandboxName = Annotated[
    str, Meta(max_length=128, description="The sandbox, by the name or id that create or list told")
]
GuestPath = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=4096,
        description="Absolute path in the sandbox, such as /root/a.py",
    ),
]
Env = Annotated[
    dict[str, str], Meta(max_length=128, description="Variables for the environment, on top")
]


class Arguments(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Base of every tool's arguments: a word that is not known is an error, not ignored."""


class Body(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Base of every answer's structured form: what says nothing is left out."""


class Image(NamedTuple):
    mime_type: str
    data: bytes


@dataclass(frozen=True)
class Answer:
    """What a tool found out: text for a model, and the same as data."""

    texts: list[str]
    body: Body | None = None
    image: Image | None = None


class UnderWay:
    """How many commands run for anybody: the output of each is held in memory."""

    def __init__(self, most: int = MOST_COMMANDS) -> None:
        self._most = most
        self._count = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        if self._count >= self._most:
            raise ResourceExhaustedError(
                f"{self._count} commands are under way, which is the most there may be",
                hint="wait for some to end, or start jobs",
            )
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1


@dataclass(frozen=True)
class Session:
    """One call's surroundings: for whom, with which bounds, and whom to tell of progress."""

    owner: str
    transport: AsyncTransport
    operator: Operator
    outputs: Outputs
    under_way: UnderWay
    report: Report

    async def sandbox(self, name: str) -> AsyncSandbox:
        return await AsyncSandbox.connect(name, transport=self.transport)


@dataclass(frozen=True)
class Tool:
    name: str
    title: str
    description: str
    effect: Effect
    arguments: type[Arguments]
    body: type[Body] | None
    function: Callable[[Session, Any], Awaitable[Answer]]

    async def call(self, session: Session, arguments: Any) -> Answer:
        """Raises AgentKernelError; arguments that are none are InvalidInputError."""
        return await self.function(session, self.read(arguments))

    def read(self, arguments: Any) -> Arguments:
        try:
            wanted = msgspec.convert(arguments or {}, self.arguments)
            # Half of a pair of surrogates is no text, and nothing could carry it on.
            msgspec.json.encode(wanted)
        except msgspec.ValidationError as exc:
            message, _, place = str(exc).partition(" - at `$.")
            where = f" ({place.rstrip('`')})" if place else ""
            raise InvalidInputError(
                f"the arguments of {self.name} are wrong: {message}{where}"
            ) from None
        except UnicodeEncodeError:
            raise InvalidInputError(f"the arguments of {self.name} are not text") from None
        return wanted


TOOLS: dict[str, Tool] = {}


def tool(
    title: str,
    *,
    effect: Effect,
    arguments: type[A],
    body: type[Body] | None = None,
) -> Callable[
    [Callable[[Session, A], Awaitable[Answer]]], Callable[[Session, A], Awaitable[Answer]]
]:
    """Makes a function a tool of its name; its docstring is what models read."""

    def add(
        function: Callable[[Session, A], Awaitable[Answer]],
    ) -> Callable[[Session, A], Awaitable[Answer]]:
        name = function.__name__.rstrip("_")
        words = " ".join((function.__doc__ or "").split())
        assert words and issubclass(arguments, Arguments) and name not in TOOLS
        TOOLS[name] = Tool(name, title, words, effect, arguments, body, function)
        return function

    return add
