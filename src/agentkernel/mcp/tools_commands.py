"""Tools: commands, in a sandbox of their own or in one that stays, and their long output."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from agentkernel.client._async.sandbox import AsyncSandbox
from agentkernel.errors import InvalidInputError
from agentkernel.mcp.commands import CommandBody, carry, described
from agentkernel.mcp.registry import Answer, Arguments, Body, Env, SandboxName, Session, tool

MAX_TEXT = 1 << 20

ShellCommand = Annotated[
    str,
    Meta(
        min_length=1, max_length=100_000, description="For a shell (sh -c), such as: ls -l | wc -l"
    ),
]
Stdin = Annotated[str, Meta(max_length=MAX_TEXT, description="What the command reads from stdin")]
Cwd = Annotated[str, Meta(min_length=1, max_length=4096, description="Directory to run it in")]
Seconds = Annotated[
    float,
    Meta(gt=0, le=86400, description="End it after so many seconds; 120 unless given"),
]

# What reads a program from its stdin, so that no length of an argument bounds it.
_INTERPRETERS = {
    "python": ["python3", "-"],
    "javascript": ["node", "-"],
    "shell": ["sh", "-s"],
    "bash": ["bash", "-s"],
}


class Run(Arguments):
    command: ShellCommand | None = None
    code: (
        Annotated[
            str,
            Meta(max_length=MAX_TEXT, description="A program to run instead of a command"),
        ]
        | None
    ) = None
    language: Annotated[
        Literal["python", "javascript", "shell", "bash"],
        Meta(description="What code is written in"),
    ] = "python"
    stdin: Stdin | None = None
    env: Env | None = None
    cwd: Cwd | None = None
    timeout_seconds: Seconds | None = None


@tool("Run in a fresh sandbox", effect="adds", arguments=Run, body=CommandBody)
async def run(session: Session, wanted: Run) -> Answer:
    """Runs a shell command, or a program given as code, in a fresh sandbox that is removed
    afterwards with everything in it: nothing carries over from one run to the next. Use create and
    exec to keep files or processes. The sandbox is a Linux machine with this host's programs, but
    none of its files, and reaches only what its network policy allows. A command that fails is a
    normal answer with its exit code. Long output is shown in part, with a cursor for the tool
    output."""
    if (wanted.command is None) == (wanted.code is None):
        raise InvalidInputError("give either command or code")
    if wanted.code is not None and wanted.stdin is not None:
        raise InvalidInputError(
            "code can't have stdin as well", hint="write it to a file and exec it"
        )
    words: str | list[str] = wanted.command or _INTERPRETERS[wanted.language]
    stdin = wanted.stdin if wanted.code is None else wanted.code
    stream = AsyncSandbox.run_stream(
        words,
        cwd=wanted.cwd,
        timeout_seconds=session.operator.command_seconds(wanted.timeout_seconds),
        stdin=stdin is not None,
        output_bytes=session.operator.output_bytes,
        transport=session.transport,
        **session.operator.spec_with(wanted.env),
    )
    # Its sandbox ends with the connection, and everything in it.
    with session.under_way.one():
        ended = await carry(stream, session.report, stdin=stdin, kill=False)
    text, body = described(ended, session.outputs, session.owner)
    return Answer([text], body)


class Exec(Arguments):
    sandbox: SandboxName
    command: ShellCommand
    stdin: Stdin | None = None
    env: Env | None = None
    cwd: Cwd | None = None
    timeout_seconds: Seconds | None = None


@tool("Run in a sandbox", effect="changes", arguments=Exec, body=CommandBody)
async def exec_(session: Session, wanted: Exec) -> Answer:
    """Runs a shell command in a sandbox and waits for its end. Files stay for the next call;
    variables and the working directory do not. A command that fails is a normal answer with its
    exit code. What runs for long or for ever, such as a server, belongs into job_start. Long output
    is shown in part, with a cursor for the tool output."""
    sandbox = await session.sandbox(wanted.sandbox)
    stream = sandbox.stream(
        wanted.command,
        env=wanted.env,
        cwd=wanted.cwd,
        timeout_seconds=session.operator.command_seconds(wanted.timeout_seconds),
        stdin=wanted.stdin is not None,
        output_bytes=session.operator.output_bytes,
    )
    with session.under_way.one():
        ended = await carry(stream, session.report, stdin=wanted.stdin, kill=True)
    text, body = described(ended, session.outputs, session.owner)
    return Answer([text], body)


class Output(Arguments):
    cursor: Annotated[str, Meta(max_length=64, description="As an earlier answer told it")]


class OutputBody(Body):
    """A page of output."""

    text: str
    offset: Annotated[int, Meta(description="Where the page begins, in bytes")]
    total_bytes: int
    cursor: Annotated[str, Meta(description="Of the next page; missing after the last")] | None = (
        None
    )
    not_utf8: Annotated[bool, Meta(description="Bytes were replaced by marks")] = False


@tool("More of a long output", effect="reads", arguments=Output, body=OutputBody)
async def output(session: Session, wanted: Output) -> Answer:
    """Shows the next page of an output that was cut, by the cursor of the answer that was cut or of
    the page before. Outputs of the last commands are kept while this server runs."""
    page = session.outputs.page(session.owner, wanted.cursor)
    end = page.offset + len(page.text.encode()) if page.exact else None
    told = f"[from byte {page.offset} of {page.total}"
    told += "" if end is None else f", to {end}"
    told += f'; next: cursor "{page.next}"]' if page.next else "; this is the end]"
    body = OutputBody(
        text=page.text,
        offset=page.offset,
        total_bytes=page.total,
        cursor=page.next,
        not_utf8=not page.exact,
    )
    return Answer([page.text, told], body)
