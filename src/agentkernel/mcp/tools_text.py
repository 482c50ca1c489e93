"""Tools: text in a sandbox's files, changed in place and looked for."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from agentkernel.errors import ConflictError, InvalidInputError
from agentkernel.mcp.pages import decoded
from agentkernel.mcp.registry import (
    Answer,
    Arguments,
    Body,
    GuestPath,
    SandboxName,
    Session,
    tool,
)
from agentkernel.mcp.tools_files import MAX_CONTENT
from agentkernel.outcomes import Outcome

MAX_EDITED = 8 << 20
_SEARCH_SECONDS = 30.0
_SEARCH_BYTES = 1 << 20
_LINE = 400


class EditFile(Arguments):
    sandbox: SandboxName
    path: GuestPath
    old: Annotated[
        str, Meta(min_length=1, max_length=MAX_CONTENT, description="What stands there, exactly")
    ]
    new: Annotated[str, Meta(max_length=MAX_CONTENT, description="What is to stand there instead")]
    replace_all: Annotated[
        bool, Meta(description="Replace it wherever it stands; else it has to stand there once")
    ] = False


class Edited(Body):
    path: str
    replaced: Annotated[int, Meta(description="How often")]
    size: int


@tool("Change a file", effect="changes", arguments=EditFile, body=Edited)
async def edit_file(session: Session, wanted: EditFile) -> Answer:
    """Replaces a piece of a file in a sandbox by another, byte for byte. The old piece has to stand
    in the file exactly once, unless replace_all is true: give enough of what is around it. The file
    is replaced whole or not at all, and keeps its mode and owner."""
    files = (await session.sandbox(wanted.sandbox)).files
    before = await files.stat(wanted.path)
    data = await files.read_bytes(wanted.path, length=MAX_EDITED + 1)
    after, count = replaced(data, wanted.old, wanted.new, all=wanted.replace_all)
    now = await files.stat(wanted.path)
    if (now.mtime, now.size) != (before.mtime, before.size):
        raise ConflictError(f"{wanted.path} was changed meanwhile", hint="read it and try again")
    size = await files.write(wanted.path, after)
    times = "once" if count == 1 else f"{count} times"
    return Answer(
        [f"replaced {times} in {wanted.path}"], Edited(path=wanted.path, replaced=count, size=size)
    )


def replaced(data: bytes, old: str, new: str, *, all: bool) -> tuple[bytes, int]:
    """The new content, and how often the piece was found."""
    if len(data) > MAX_EDITED:
        raise InvalidInputError(
            f"a file of more than {MAX_EDITED >> 20} MiB is not edited", hint="use exec with sed"
        )
    try:
        piece, instead = old.encode(), new.encode()
    except UnicodeEncodeError:
        raise InvalidInputError("old and new are text") from None
    count = data.count(piece)
    if count == 0:
        wide = data.count(old.replace("\n", "\r\n").encode())
        raise InvalidInputError(
            "old does not stand in the file",
            hint="its lines end with \\r\\n: write them so"
            if wide
            else "read the file: every space and line break counts",
            found=0,
        )
    if count > 1 and not all:
        raise InvalidInputError(
            f"old stands in the file {count} times",
            hint="give more of what is around it, or replace_all",
            found=count,
        )
    if piece == instead:
        raise InvalidInputError("old and new are the same")
    return data.replace(piece, instead), count


class SearchFiles(Arguments):
    sandbox: SandboxName
    path: GuestPath
    pattern: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=2000,
                description="Extended regular expression to look for in lines; "
                "without it, files are looked for by their name",
            ),
        ]
        | None
    ) = None
    glob: (
        Annotated[str, Meta(min_length=1, max_length=200, description="Only files named so: *.py")]
        | None
    ) = None
    ignore_case: bool = False
    limit: Annotated[int, Meta(ge=1, le=1000, description="Most matches")] = 100


class Match(Body):
    path: str
    line: int | None = None
    text: str | None = None


class Matches(Body):
    matches: list[Match]
    incomplete: Annotated[bool, Meta(description="There may be more")] = False
    errors: Annotated[str, Meta(description="What could not be read")] | None = None


@tool("Search files", effect="reads", arguments=SearchFiles, body=Matches)
async def search_files(session: Session, wanted: SearchFiles) -> Answer:
    """Looks for lines that match a regular expression in the files below a directory of a sandbox,
    or for files by name (glob alone). Binary files are left out, and links are not followed."""
    if wanted.pattern is None and wanted.glob is None:
        raise InvalidInputError("give pattern, glob, or both")
    sandbox = await session.sandbox(wanted.sandbox)
    result = await sandbox.exec(
        search_command(wanted), timeout_seconds=_SEARCH_SECONDS, output_bytes=_SEARCH_BYTES
    )
    if result.outcome is Outcome.NOT_STARTED:
        raise InvalidInputError(
            "the sandbox has no grep or find", hint="look with exec and what is there"
        )
    matches = parse_matches(result.stdout_bytes, lines=wanted.pattern is not None)
    errors = decoded(result.stderr_bytes[:2000])[0].strip()
    # 1: nothing was found; 2: something could not be read, or the expression is none.
    if result.exit_code not in (0, 1) and not matches and result.outcome is Outcome.EXITED:
        raise InvalidInputError(f"the search failed: {errors}")
    incomplete = (
        len(matches) > wanted.limit or result.truncated or result.outcome is not Outcome.EXITED
    )
    body = Matches(matches=matches[: wanted.limit], incomplete=incomplete, errors=errors or None)
    lines = [
        match.path if match.line is None else f"{match.path}:{match.line}:{match.text}"
        for match in body.matches
    ]
    lines = lines or ["nothing was found"]
    if incomplete:
        lines.append("[there may be more: look for something narrower]")
    if errors:
        lines.append(f"[errors: {errors}]")
    return Answer(["\n".join(lines)], body)


def search_command(wanted: SearchFiles) -> list[str]:
    """Words, not a shell's line: nothing in them is anything but itself."""
    path = wanted.path
    if not path.startswith("/"):
        raise InvalidInputError("path is absolute, such as /root")
    if wanted.pattern is None:
        name = "-iname" if wanted.ignore_case else "-name"
        return ["find", path, "-type", "f", name, str(wanted.glob), "-print0"]
    words = ["grep", "-rnIE", "--null", "-m", str(wanted.limit + 1)]
    words += ["-i"] if wanted.ignore_case else []
    words += [f"--include={wanted.glob}"] if wanted.glob is not None else []
    return [*words, "-e", wanted.pattern, "--", path]


def parse_matches(output: bytes, *, lines: bool) -> list[Match]:
    """A last one that was cut off is left out."""
    if not lines:
        return [Match(path=decoded(name)[0]) for name in output.split(b"\0")[:-1]]
    found = []
    for line in output.split(b"\n")[:-1]:
        path, _, rest = line.partition(b"\0")
        number, colon, text = rest.partition(b":")
        if colon and number.isdigit() and len(number) < 12:
            shown = decoded(text)[0].rstrip("\r")
            shown = shown if len(shown) <= _LINE else f"{shown[:_LINE]}…"
            found.append(Match(path=decoded(path)[0], line=int(number), text=shown))
    return found
