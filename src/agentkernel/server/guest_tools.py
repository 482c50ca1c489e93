"""Tools that whatever runs in a sandbox has for its own sandbox, and for no other.

None of them takes a sandbox's name: which it is, the connection says (`guest_door`). None gives
more than the guest has: what it would like to have is told to its user, who decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from agentkernel.errors import AgentKernelError, NotFoundError, ResourceExhaustedError
from agentkernel.guest.processes import ProcessOptions
from agentkernel.guest.protocol import Channel
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.network_control import Asked, Question
from agentkernel.kernel.store import JobRecord, SandboxRecord
from agentkernel.network.policy.judging import rule_text
from agentkernel.quantities import size_text
from agentkernel.server.guest_mcp import (
    Answer,
    Arguments,
    Effect,
    Tool,
    read_arguments,
    schema_of,
)
from agentkernel.server.rates import Rates

INSTRUCTIONS: Final = (
    "Tools of the sandbox that you are in. They tell what you may reach and why something was "
    "denied, run commands in the background, and pass a wish on to the user. They can't change "
    "what the sandbox is allowed: if you need a host or a port, ask for it once, say so in your "
    "answer, and go on with what can be done without."
)
# Variables of a job's row. By this one those of the guest's own are known from all others.
OWN_JOB: Final = "AGENTKERNEL_OWN_JOB"
MOST_JOBS: Final = 16
PAGE_BYTES: Final = 32 << 10
ASKS: Final = (10, 1 / 60)
"""So many wishes at once, then one a minute."""
_READ_SECONDS: Final = 10.0
_DENIALS: Final = 40
# Of how many of the last events, of all sandboxes, they are looked for: a guest makes as many as it
# likes, and asks for them again and again.
_LOOK_BACK: Final = (1000, 10_000)
_SIGNALS: Final = {"TERM": signal.SIGTERM, "INT": signal.SIGINT, "HUP": signal.SIGHUP}


@dataclass(frozen=True)
class Guest:
    """What a call is bound to. `starting`: how many jobs are being started, by sandbox."""

    kernel: Kernel
    record: SandboxRecord
    asks: Rates
    starting: Counter[str]

    @property
    def id(self) -> str:
        return self.record.id


class _Given(msgspec.Struct, forbid_unknown_fields=True):
    """A word that is not known is an error, not ignored."""


class Nothing(_Given, kw_only=True):
    pass


Call = Callable[[Guest, Any], Awaitable[Answer]]
TOOLS: Final[dict[str, Tool]] = {}


def _tool(title: str, effect: Effect, given: type[_Given]) -> Callable[[Call], Call]:
    def add(function: Call) -> Call:
        async def call(guest: Guest, arguments: Arguments) -> Answer:
            return await function(guest, read_arguments(arguments, given))

        name = function.__name__
        words = " ".join((function.__doc__ or "").split())
        TOOLS[name] = Tool(name, title, words, effect, schema_of(given), call)
        return function

    return add


# -- the network ---------------------------------------------------------------------------------


@_tool("What can be reached", "reads", Nothing)
async def network_policy(guest: Guest, given: Nothing) -> Answer:
    """Shows which hosts this sandbox may reach: its rules, in order; the first that matches
    decides, and where none does the answer is no. And which secrets are put in where."""
    state = await guest.kernel.network.show(guest.id)
    policy = state.phases.get(state.phase)
    rules = [rule_text(rule) for rule in policy.rules] if policy else []
    floor = [rule_text(rule) for rule in state.floor.rules] if state.floor else []
    secrets = [_secret(bound) for bound in state.secrets if bound.get("env")]
    lines = [f"phase {state.phase}:", *(rules or ["nothing can be reached"])]
    if floor:
        lines += ["and of these only what the machine's own rules allow, too:", *floor]
    lines += ["secrets:", *secrets] if secrets else []
    body = {"phase": state.phase, "rules": rules, "floor": floor, "secrets": secrets}
    return Answer("\n".join(lines), body)


class Why(_Given, kw_only=True):
    host: Annotated[str, Meta(min_length=1, max_length=300, description="A name or an address")]
    port: Annotated[int, Meta(ge=1, le=65535)] = 443
    method: Annotated[str, Meta(max_length=32, description="Such as GET")] = ""
    path: Annotated[str, Meta(max_length=1024, description="Of the request, such as /v1")] = ""


@_tool("Why a host can or can't be reached", "reads", Why)
async def network_why(guest: Guest, given: Why) -> Answer:
    """Explains what would become of a connection or a request to a host: whether it is allowed, by
    which rule, and what the user could do about it. Nothing is sent."""
    question = read_arguments(
        {
            "host": given.host,
            "port": given.port,
            "method": given.method or None,
            "path": given.path or None,
        },
        Question,
    )
    found = await guest.kernel.network.why(guest.id, question)
    lines = [found.words]
    lines += [f"the user could change that: {command}" for command in found.change]
    body = {"outcome": found.outcome, "words": found.words, "change": list(found.change)}
    return Answer("\n".join(lines), body)


@_tool("What was denied", "reads", Nothing)
async def network_denied(guest: Guest, given: Nothing) -> Answer:
    """Lists the last connections and requests of this sandbox that were denied, and why."""
    newest = (await guest.kernel.events(1 << 60, limit=1)).next
    found: list[dict[str, Any]] = []
    for width in _LOOK_BACK:
        found = await _denials(guest, max(0, newest - width))
        if len(found) >= _DENIALS or width >= newest:
            break
    lines = [_denial(each) for each in found] or ["nothing was denied of late"]
    return Answer("\n".join(lines), {"denied": found})


async def _denials(guest: Guest, after: int) -> list[dict[str, Any]]:
    """The last ones after an event."""
    kinds = ("network.deny", "network.blocked", "network.limit")
    found: list[dict[str, Any]] = []
    while True:
        page = await guest.kernel.events(after, sandbox_id=guest.id, kinds=kinds, limit=1000)
        for event in page.records[-_DENIALS:]:
            body = event.body
            named = {key: body[key] for key in ("host", "port", "method", "path") if body.get(key)}
            found.append({**named, "reason": body.get("reason", ""), "times": body.get("times", 1)})
        del found[:-_DENIALS]
        if len(page.records) < 1000:
            return found
        after = page.next


class AskForHost(_Given, kw_only=True):
    host: Annotated[str, Meta(min_length=1, max_length=253, description="Such as api.example.org")]
    port: Annotated[int, Meta(ge=1, le=65535)] = 443
    reason: Annotated[str, Meta(min_length=1, max_length=500, description="What it is needed for")]


@_tool("Ask the user for a host", "changes", AskForHost)
async def ask_for_host(guest: Guest, given: AskForHost) -> Answer:
    """Tells the user that you need a host that you can't reach, and why. Nothing is allowed by
    this: the user sees it and may allow the host. Ask once; then go on without."""
    asked = Asked(host=given.host, port=given.port, reason=given.reason)
    return await _ask(guest, asked)


class AskForPort(_Given, kw_only=True):
    port: Annotated[int, Meta(ge=1, le=65535, description="That a server of yours listens on")]
    reason: Annotated[str, Meta(min_length=1, max_length=500, description="What is to be seen")]


@_tool("Ask the user to publish a port", "changes", AskForPort)
async def ask_for_port(guest: Guest, given: AskForPort) -> Answer:
    """Tells the user that a server of yours in this sandbox is worth a look: by publishing its port
    the user can reach it. Nothing is published by this."""
    return await _ask(guest, Asked(port=given.port, reason=given.reason))


async def _ask(guest: Guest, asked: Asked) -> Answer:
    if wait := guest.asks.take(guest.id):
        raise ResourceExhaustedError(
            "the user was asked often enough for now",
            hint=f"the next wish can be passed on in {wait:.0f} s; say it in your answer instead",
        )
    command = await guest.kernel.network.ask(guest.id, asked)
    text = f"The user is told. Nothing has changed; the user could give it by: {command}"
    return Answer(text, {"told": True, "words": text, "change": command})


# -- ports, secrets, limits ----------------------------------------------------------------------


@_tool("Published ports", "reads", Nothing)
async def ports(guest: Guest, given: Nothing) -> Answer:
    """Lists the ports of this sandbox that the user's machine has opened, and where they are there.
    Others can be used inside only."""
    found = [
        {
            "port": state.published.port,
            "at": _at(state.published.address, state.published.host_port),
            "open": state.open,
        }
        for state in await guest.kernel.ports.list(guest.id)
    ]
    lines = [
        f"{each['port']}: {each['at']}" + ("" if each["open"] else " (not open now)")
        for each in found
    ]
    return Answer("\n".join(lines or ["no port is published"]), {"ports": found})


@_tool("Secrets by name", "reads", Nothing)
async def secrets(guest: Guest, given: Nothing) -> Answer:
    """Lists the variables that hold placeholders of secrets, and the hosts on whose way the real
    values are put in. The values are nowhere in this sandbox."""
    state = await guest.kernel.network.show(guest.id)
    found = [
        {"variable": bound["env"], "hosts": list(bound["hosts"])}
        for bound in state.secrets
        if bound.get("env")
    ]
    lines = [f"{each['variable']}: {', '.join(each['hosts'])}" for each in found]
    return Answer("\n".join(lines or ["there are none"]), {"secrets": found})


@_tool("Limits and usage", "reads", Nothing)
async def limits(guest: Guest, given: Nothing) -> Answer:
    """Shows what holds in this sandbox (memory, processors, processes, disk, network and more) and
    what it has used."""
    known = await guest.kernel.known(guest.id)
    # What tells of the host's own directories is not for the guest.
    held = {line.what: line.value for line in known.effective if line.what in _SHOWN_LIMITS}
    used: dict[str, Any] = msgspec.to_builtins(known.usage) if known.usage else {}
    lines = [f"{what}: {value}" for what, value in held.items()]
    lines += [f"used: {_used(name, value)}" for name, value in used.items() if value is not None]
    return Answer("\n".join(lines), {"limits": held, "usage": used})


_SHOWN_LIMITS: Final = frozenset(
    ("memory", "cpus", "pids", "disk", "nofile", "/tmp", "/dev/shm", "/run", "network", "isolation")
)


def _used(name: str, value: Any) -> str:
    if name.endswith("_bytes"):
        return f"{name.removesuffix('_bytes').replace('_', ' ')} {size_text(value)}"
    return f"{name.replace('_', ' ')} {value}"


def _at(address: str | None, port: int) -> str:
    return "a preview" if address is None else f"{address}:{port}"


def _secret(bound: dict[str, Any]) -> str:
    return f"{bound['env']} at {', '.join(bound['hosts'])}"


def _denial(each: dict[str, Any]) -> str:
    place = f"{each.get('host', '')}" + (f":{each['port']}" if "port" in each else "")
    request = " ".join(str(each[key]) for key in ("method", "path") if key in each)
    times = f" ({each['times']} times)" if each["times"] > 1 else ""
    return f"{place} {request}".strip() + f": {each['reason']}{times}"


# -- jobs ----------------------------------------------------------------------------------------

JobId = Annotated[str, Meta(min_length=1, max_length=64, description="As job_start told it")]


class JobStart(_Given, kw_only=True):
    command: Annotated[
        str, Meta(min_length=1, max_length=65536, description="A line for the shell (sh -c)")
    ]
    cwd: Annotated[str, Meta(max_length=4096, description="The directory to begin in")] = ""
    timeout_seconds: Annotated[
        float, Meta(ge=0, le=1e6, description="End it after so long; 0: never")
    ] = 0.0


@_tool("Start a job", "changes", JobStart)
async def job_start(guest: Guest, given: JobStart) -> Answer:
    """Starts a shell command in the background of this sandbox, for servers and long builds. It
    goes on when you are done, until it ends, job_stop, or the end of the sandbox."""
    options = ProcessOptions(
        cwd=given.cwd or None,
        timeout_seconds=given.timeout_seconds or None,
        env={OWN_JOB: "1"},
    )
    # Those that are being started count, whether or not they run already.
    guest.starting[guest.id] += 1
    try:
        running = [job for job in await _jobs(guest) if job.state == "running"]
        if len(running) + guest.starting[guest.id] > MOST_JOBS:
            raise ResourceExhaustedError(
                f"{MOST_JOBS} jobs run, which is the most there may be", hint="stop some: job_stop"
            )
        job = await guest.kernel.jobs.start(guest.id, ["sh", "-c", given.command], options)
    finally:
        guest.starting[guest.id] -= 1
        if not guest.starting[guest.id]:
            del guest.starting[guest.id]
    return Answer(_job_line(job), _job_body(job))


@_tool("List jobs", "reads", Nothing)
async def job_list(guest: Guest, given: Nothing) -> Answer:
    """Lists the jobs that were started by job_start, those that ended too."""
    jobs = (await _jobs(guest))[-100:]
    lines = [_job_line(job) for job in jobs] or ["there are no jobs"]
    return Answer("\n".join(lines), {"jobs": [_job_body(job) for job in jobs]})


class JobOutput(_Given, kw_only=True):
    job: JobId
    stdout_offset: Annotated[
        int, Meta(ge=0, le=1 << 53, description="As the last answer told: only what came after")
    ] = 0
    stderr_offset: Annotated[int, Meta(ge=0, le=1 << 53)] = 0


@_tool("Output of a job", "reads", JobOutput)
async def job_output(guest: Guest, given: JobOutput) -> Answer:
    """Shows what a job has written, at most 32 KiB at a time, and whether it still runs. The
    offsets of the answer, given to the next call, show what came after it."""
    job = await _job(guest, given.job)
    written = await guest.kernel.jobs.written(job.id)
    offsets = {"stdout": given.stdout_offset, "stderr": given.stderr_offset}
    data = {"stdout": bytearray(), "stderr": bytearray()}
    room = PAGE_BYTES
    left = None
    if written is not None:
        sizes = {"stdout": written[Channel.STDOUT], "stderr": written[Channel.STDERR]}
        left = sum(max(0, sizes[name] - at) for name, at in offsets.items())
    with contextlib.suppress(TimeoutError):
        async with (
            asyncio.timeout(_READ_SECONDS),
            guest.kernel.jobs.attach(
                job.id,
                stdout_offset=given.stdout_offset,
                stderr_offset=given.stderr_offset,
                shared=True,
            ) as process,
        ):
            while room > 0 and (left is None or left > 0):
                part = await process.output()
                if part is None:
                    break
                name = "stdout" if part.channel is Channel.STDOUT else "stderr"
                piece = part.data[:room]
                data[name] += piece
                offsets[name] = part.offset + len(piece)
                room -= len(piece)
                left = None if left is None else left - len(part.data)
    job = await guest.kernel.jobs.get(job.id)
    texts = {name: bytes(piece).decode("utf-8", "replace") for name, piece in data.items()}
    lines = [_job_line(job)]
    for name, text in texts.items():
        lines += [f"--- {name}", text.removesuffix("\n")] if text else []
    lines.append(f"[next: stdout_offset {offsets['stdout']}, stderr_offset {offsets['stderr']}]")
    after = {f"{name}_offset": at for name, at in offsets.items()}
    return Answer("\n".join(lines), {**_job_body(job), **texts, **after})


class JobStop(_Given, kw_only=True):
    job: JobId
    signal: Annotated[
        Literal["TERM", "INT", "HUP", "KILL"],
        Meta(description="KILL ends it with all that it started"),
    ] = "TERM"


@_tool("Stop a job", "destroys", JobStop)
async def job_stop(guest: Guest, given: JobStop) -> Answer:
    """Sends a job a signal, or ends it with all that it started."""
    job = await _job(guest, given.job)
    if given.signal == "KILL":
        await guest.kernel.jobs.kill(job.id)
    else:
        await guest.kernel.jobs.signal(job.id, int(_SIGNALS[given.signal]))
    return Answer(f"{given.signal} was sent to {job.id}")


async def _jobs(guest: Guest) -> list[JobRecord]:
    """Those that the guest itself has started: the agent's own is none of its tools' business."""
    return [
        job
        for job in await guest.kernel.jobs.list(guest.id)
        if OWN_JOB in (job.options.get("env") or {})
    ]


async def _job(guest: Guest, id: str) -> JobRecord:
    """Of this sandbox, whatever others there are. Raises NotFoundError."""
    try:
        job = await guest.kernel.jobs.get(id)
    except AgentKernelError:
        raise NotFoundError("there is no such job here") from None
    if job.sandbox_id != guest.id or OWN_JOB not in (job.options.get("env") or {}):
        raise NotFoundError("there is no such job here")
    return job


def _job_line(job: JobRecord) -> str:
    return f"{job.id}: {_job_state(job)}: {job.argv[-1][:200]}"


def _job_state(job: JobRecord) -> str:
    status = job.status or {}
    if job.state != "ended":
        return str(job.state)
    code = status.get("exit_code")
    return f"ended, status {code}" if code is not None else f"ended, {status.get('outcome', '')}"


def _job_body(job: JobRecord) -> dict[str, Any]:
    return {
        "job": job.id,
        "state": job.state,
        "command": job.argv[-1][:500],
        "exit_code": (job.status or {}).get("exit_code"),
    }
