"""Tools: commands in the background of a sandbox, which go on between calls."""

from __future__ import annotations

import contextlib
from typing import Annotated, NamedTuple

from msgspec import Meta

from agentkernel.client._async.jobs import AsyncJob, find_job
from agentkernel.client.results import JobInfo
from agentkernel.errors import DaemonTimeoutError, InvalidInputError
from agentkernel.mcp.commands import in_words
from agentkernel.mcp.pages import PAGE_BYTES, decoded, whole
from agentkernel.mcp.registry import Answer, Arguments, Body, Env, SandboxName, Session, tool
from agentkernel.mcp.tools_commands import Cwd, ShellCommand

JobId = Annotated[str, Meta(max_length=64, description="The job's id, as job_start told it")]


class JobBody(Body):
    """A job."""

    job: Annotated[str, Meta(description="Its id")]
    sandbox: Annotated[str, Meta(description="The id of its sandbox")]
    state: Annotated[str, Meta(description="running, ended, or lost with its sandbox's processes")]
    command: str
    outcome: Annotated[str, Meta(description="How it ended, as of a command")] | None = None
    exit_code: int | None = None


class JobList(Body):
    jobs: list[JobBody]


def _command(info: JobInfo) -> str:
    return (
        info.argv[2]
        if info.argv[:2] == ["sh", "-c"] and len(info.argv) == 3
        else " ".join(info.argv)
    )


def _body(info: JobInfo) -> JobBody:
    return JobBody(
        job=info.id,
        sandbox=info.sandbox_id,
        state=info.state,
        command=_command(info)[:500],
        outcome=info.result.outcome.value if info.result else None,
        exit_code=info.result.exit_code if info.result else None,
    )


def _line(info: JobInfo) -> str:
    state = info.state if info.result is None else in_words(info.result)
    return f"{info.id}: {state}: {_command(info)[:200]}"


class JobStart(Arguments):
    sandbox: SandboxName
    command: ShellCommand
    env: Env | None = None
    cwd: Cwd | None = None
    timeout_seconds: (
        Annotated[
            float,
            Meta(gt=0, le=1e6, description="End it after so many seconds; never unless given"),
        ]
        | None
    ) = None


@tool("Start a job", effect="changes", arguments=JobStart, body=JobBody)
async def job_start(session: Session, wanted: JobStart) -> Answer:
    """Starts a shell command in the background of a sandbox and answers at once with the job's id,
    for servers, long builds and tests. It goes on until it ends, job_kill, or the end of the
    sandbox. job_output shows what it writes."""
    sandbox = await session.sandbox(wanted.sandbox)
    job = await sandbox.jobs.start(
        wanted.command, env=wanted.env, cwd=wanted.cwd, timeout_seconds=wanted.timeout_seconds
    )
    return Answer([_line(job.info)], _body(job.info))


class JobOf(Arguments):
    sandbox: SandboxName


@tool("List jobs", effect="reads", arguments=JobOf, body=JobList)
async def job_list(session: Session, wanted: JobOf) -> Answer:
    """Lists the jobs of a sandbox, those that ended too."""
    sandbox = await session.sandbox(wanted.sandbox)
    jobs = await sandbox.jobs.list()
    lines = [_line(job.info) for job in jobs] or ["there are no jobs"]
    return Answer(["\n".join(lines)], JobList(jobs=[_body(job.info) for job in jobs]))


class JobOutput(Arguments):
    job: JobId
    cursor: (
        Annotated[
            str, Meta(max_length=40, description="Of the last answer: only what came after it")
        ]
        | None
    ) = None
    wait_seconds: Annotated[
        float, Meta(ge=0, le=50, description="If nothing new is there, wait so long for it")
    ] = 0.0


class JobOutputBody(JobBody, kw_only=True):
    """What a job wrote."""

    stdout: str
    stderr: str
    cursor: Annotated[str, Meta(description="For the next call: what comes after this")]
    more: Annotated[bool, Meta(description="More is there already; call again")] = False
    skipped_bytes: Annotated[int, Meta(description="Older output that is not kept any more")] = 0
    not_utf8: list[str] = []


@tool("Output of a job", effect="reads", arguments=JobOutput, body=JobOutputBody)
async def job_output(session: Session, wanted: JobOutput) -> Answer:
    """Shows what a job wrote, at most 32 KiB at a time, and whether it still runs. The answer's
    cursor, given to the next call, shows what came after it. The newest 64 MiB of each stream are
    kept as long as the sandbox."""
    offsets = _offsets(wanted.cursor)
    job = await find_job(session.transport, wanted.job)
    page = await _read(job, offsets)
    if wanted.wait_seconds and not page.stdout and not page.stderr and job.info.state == "running":
        await _wait(job, offsets, wanted.wait_seconds)
        await job.refresh()
        page = await _read(job, offsets)
    stdout, stderr = decoded(page.stdout), decoded(page.stderr)
    cursor = f"{page.offsets[0]}.{page.offsets[1]}"
    fields = {name: getattr(_body(job.info), name) for name in JobBody.__struct_fields__}
    body = JobOutputBody(
        **fields,
        stdout=stdout[0],
        stderr=stderr[0],
        cursor=cursor,
        more=page.more,
        skipped_bytes=page.skipped,
        not_utf8=[name for name, out in (("stdout", stdout), ("stderr", stderr)) if not out[1]],
    )
    lines = [_line(job.info)]
    if page.skipped:
        lines.append(f"--- {page.skipped} older bytes are not kept any more")
    for name, (text, exact) in (("stdout", stdout), ("stderr", stderr)):
        if text:
            mark = "" if exact else " (bytes that are not UTF-8 are replaced by marks)"
            lines += [f"--- {name}{mark}", text.removesuffix("\n")]
    more = "more is there" if page.more else "that is all until now"
    lines.append(f'[{more}; cursor "{cursor}"]')
    return Answer(["\n".join(lines)], body)


class _Page(NamedTuple):
    stdout: bytes
    stderr: bytes
    offsets: tuple[int, int]
    more: bool
    skipped: int


def _offsets(cursor: str | None) -> tuple[int, int]:
    parts = (cursor or "0.0").split(".")
    if len(parts) != 2 or not all(p.isascii() and p.isdigit() and len(p) < 18 for p in parts):
        raise InvalidInputError("this is not a cursor", hint="take it as job_output told it")
    return int(parts[0]), int(parts[1])


async def _read(job: AsyncJob, offsets: tuple[int, int]) -> _Page:
    """What is there now from `offsets` on, as much as one answer holds."""
    data = {"stdout": bytearray(), "stderr": bytearray()}
    at = {"stdout": offsets[0], "stderr": offsets[1]}
    skipped, room = 0, PAGE_BYTES
    more = False
    stream = job.output(stdout_offset=offsets[0], stderr_offset=offsets[1], follow=False)
    async with stream:
        async for chunk in stream:
            if room <= 0 and chunk.data:
                more = True
                break
            # What came before was dropped by whoever keeps it.
            gap = chunk.offset - at[chunk.stream] - len(data[chunk.stream]) if chunk.data else 0
            if gap > 0:
                skipped += gap + len(data[chunk.stream])
                at[chunk.stream] = chunk.offset
                data[chunk.stream].clear()
            data[chunk.stream] += chunk.data[:room]
            more = more or len(chunk.data) > room
            room -= min(len(chunk.data), room)
    for name, piece in data.items():
        # A running job may have written half a character.
        if more or job.info.state == "running":
            del piece[whole(bytes(piece)) :]
        at[name] += len(piece)
    return _Page(
        bytes(data["stdout"]), bytes(data["stderr"]), (at["stdout"], at["stderr"]), more, skipped
    )


async def _wait(job: AsyncJob, offsets: tuple[int, int], seconds: float) -> None:
    """Returns when it has written something after `offsets`, has ended, or the time is over."""
    stream = job.output(stdout_offset=offsets[0], stderr_offset=offsets[1])
    async with stream:
        with contextlib.suppress(DaemonTimeoutError):
            await stream.read(seconds=seconds)


class JobKill(Arguments):
    job: JobId


@tool("End a job", effect="destroys", arguments=JobKill, body=JobBody)
async def job_kill(session: Session, wanted: JobKill) -> Answer:
    """Ends a job with everything it has started."""
    job = await find_job(session.transport, wanted.job)
    if job.info.state == "running":
        await job.kill()
        with contextlib.suppress(DaemonTimeoutError):
            async with job.output(stdout_offset=1 << 60, stderr_offset=1 << 60) as stream:
                while await stream.read(seconds=10) is not None:
                    pass
        await job.refresh()
    return Answer([_line(job.info)], _body(job.info))
