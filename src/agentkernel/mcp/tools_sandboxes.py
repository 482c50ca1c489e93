"""Tools: sandboxes that stay, from making one to removing it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from msgspec import Meta

from agentkernel.client._async.sandbox import AsyncSandbox
from agentkernel.client.results import SandboxInfo
from agentkernel.mcp.progress import telling
from agentkernel.mcp.registry import Answer, Arguments, Body, Env, SandboxName, Session, tool
from agentkernel.quantities import size_text


class SandboxBody(Body):
    """A sandbox."""

    sandbox: Annotated[str, Meta(description="What other tools call it by: its name, else its id")]
    id: str
    state: str
    name: str | None = None
    created_at: str | None = None
    expires_at: Annotated[str, Meta(description="When its time to live is over")] | None = None
    error: str | None = None
    notices: Annotated[list[str], Meta(description="What does not hold in it")] = []
    clocks: Annotated[str, Meta(description="When it is stopped or removed by itself")] | None = (
        None
    )


class SandboxList(Body):
    sandboxes: list[SandboxBody]


class LimitBody(Body):
    what: str
    value: str
    enforced_by: str


class SandboxDetails(SandboxBody):
    """A sandbox with what holds in it and what it used."""

    profile: str | None = None
    user: str | None = None
    limits: Annotated[list[LimitBody], Meta(description="Every line that holds in it")] = []
    usage: Annotated[dict[str, float], Meta(description="What it used since it was started")] = {}


def _time(seconds: float | None) -> str | None:
    return (
        None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat("T", "seconds")
    )


def _fields(info: SandboxInfo) -> dict[str, Any]:
    return {
        "sandbox": info.name or info.id,
        "id": info.id,
        "state": info.state,
        "name": info.name,
        "created_at": _time(info.created_at),
        "expires_at": _time(info.expires_at),
        "error": info.error,
        "notices": info.notices,
    }


def _line(body: SandboxBody) -> str:
    error = f" ({body.error})" if body.error else ""
    until = f", until {body.expires_at}" if body.expires_at else ""
    return f"{body.sandbox}: {body.state}{error}, made {body.created_at}{until}"


class Create(Arguments):
    name: (
        Annotated[
            str,
            Meta(
                pattern=r"^[a-z0-9][a-z0-9-]{0,62}$",
                description="How to call it: small letters, digits and -; its id unless given",
            ),
        ]
        | None
    ) = None
    env: Env | None = None


@tool("Make a sandbox", effect="adds", arguments=Create, body=SandboxBody)
async def create(session: Session, wanted: Create) -> Answer:
    """Makes a sandbox that stays and starts it: a Linux machine of its own with this host's
    programs (compilers, interpreters) but none of its files. Its files survive until it is removed.
    The person who set this server up decided what it may use and reach; info shows it. Answers with
    the name to use in other tools, and when the sandbox goes by itself."""
    operator = session.operator
    # The first one has to make its image.
    async with telling(session.report):
        sandbox = await AsyncSandbox.create(
            name=wanted.name,
            kept=True,
            labels=dict(operator.labels) or None,
            ttl_seconds=operator.ttl_seconds,
            idle_seconds=operator.idle_seconds,
            on_ttl=operator.on_ttl,
            on_idle=operator.on_idle,
            transport=session.transport,
            **operator.spec_with(wanted.env),
        )
    body = SandboxBody(**_fields(sandbox.info), clocks=operator.clocks_in_words())
    lines = [f"made the sandbox {body.sandbox}, which runs", operator.clocks_in_words()]
    return Answer(["\n".join([*lines, *(f"note: {note}" for note in body.notices)])], body)


class List(Arguments):
    pass


@tool("List sandboxes", effect="reads", arguments=List, body=SandboxList)
async def list_(session: Session, wanted: List) -> Answer:
    """Lists the sandboxes that were made with create and are still there, also those of earlier
    conversations."""
    found = await AsyncSandbox.list(transport=session.transport)
    # Those of `run` are nobody's to use.
    kept = [entry.info for entry in found if not entry.info.raw.get("ephemeral")]
    bodies = [SandboxBody(**_fields(info)) for info in kept]
    lines = [_line(body) for body in bodies] or ["there are no sandboxes"]
    return Answer(["\n".join(lines)], SandboxList(sandboxes=bodies))


class One(Arguments):
    sandbox: SandboxName


@tool("Show a sandbox", effect="reads", arguments=One, body=SandboxDetails)
async def info(session: Session, wanted: One) -> Answer:
    """Shows a sandbox: its state, what it may use (memory, processors, processes, files), what
    enforces that, and what it used."""
    sandbox = await session.sandbox(wanted.sandbox)
    raw = sandbox.info.raw
    limits = [
        LimitBody(
            what=str(line.get("what")),
            value=str(line.get("value")),
            enforced_by=str(line.get("enforced_by")),
        )
        for line in raw.get("effective") or []
        if isinstance(line, Mapping)
    ]
    usage = {
        key: float(value)
        for key, value in (sandbox.info.usage or {}).items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    body = SandboxDetails(
        **_fields(sandbox.info),
        profile=raw.get("profile"),
        user=raw.get("user"),
        limits=limits,
        usage=usage,
    )
    lines = [_line(body), f"profile {body.profile}, commands run as {body.user}"]
    lines += [f"{line.what}: {line.value} ({line.enforced_by})" for line in limits]
    lines += [f"used: {key} {_amount(key, value)}" for key, value in usage.items()]
    return Answer(["\n".join([*lines, *(f"note: {note}" for note in body.notices)])], body)


def _amount(key: str, value: float) -> str:
    return size_text(int(value)) if key.endswith("_bytes") else f"{value:g}"


@tool("Start a sandbox", effect="adds", arguments=One, body=SandboxBody)
async def start(session: Session, wanted: One) -> Answer:
    """Runs a stopped sandbox again, with the files it had. One that runs is left as it is."""
    sandbox = await session.sandbox(wanted.sandbox)
    body = SandboxBody(**_fields(await sandbox.start()))
    return Answer([_line(body)], body)


@tool("Stop a sandbox", effect="changes", arguments=One, body=SandboxBody)
async def stop(session: Session, wanted: One) -> Answer:
    """Ends every process and job of a sandbox and keeps its files; start runs it again."""
    sandbox = await session.sandbox(wanted.sandbox)
    body = SandboxBody(**_fields(await sandbox.stop()))
    return Answer([_line(body)], body)


class Removed(Body):
    removed: str


@tool("Remove a sandbox", effect="destroys", arguments=One, body=Removed)
async def remove(session: Session, wanted: One) -> Answer:
    """Ends a sandbox and removes it with all its files, for good."""
    sandbox = await session.sandbox(wanted.sandbox)
    await sandbox.remove()
    return Answer([f"removed {wanted.sandbox}"], Removed(removed=wanted.sandbox))
