"""Tools: files of a sandbox, read, written and listed. Every call runs inside it."""

from __future__ import annotations

import binascii
import stat
from contextlib import aclosing
from typing import Annotated, Literal

from msgspec import Meta

from agentkernel.client._async.files import AsyncFiles
from agentkernel.client.results import Entry
from agentkernel.errors import InvalidInputError
from agentkernel.mcp.pages import PAGE_BYTES, decoded, whole
from agentkernel.mcp.registry import (
    Answer,
    Arguments,
    Body,
    GuestPath,
    Image,
    SandboxName,
    Session,
    tool,
)

MAX_CONTENT = 3 << 20
# What models take of an image, before it is written in base64.
MAX_IMAGE = 3 << 20
# How far a line is looked for.
MAX_SCAN = 64 << 20
LIST_ENTRIES = 500
_WALK_ENTRIES = 5000
_WALK_DIRECTORIES = 500
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


class ReadFile(Arguments):
    sandbox: SandboxName
    path: GuestPath
    offset: Annotated[int, Meta(ge=0, le=1 << 50, description="Byte to begin with")] = 0
    line: (
        Annotated[
            int, Meta(ge=1, le=1 << 30, description="Line to begin with, from 1, instead of offset")
        ]
        | None
    ) = None
    limit: Annotated[
        int, Meta(ge=4, le=PAGE_BYTES, description="Most bytes to show; 32 KiB unless given")
    ] = PAGE_BYTES


@tool("Read a file", effect="reads", arguments=ReadFile)
async def read_file(session: Session, wanted: ReadFile) -> Answer:
    """Reads a file of a sandbox: text as it is, a picture (PNG, JPEG, GIF, WebP) as a picture. Of a
    long text one piece is shown, with the offset to read on from; line begins at a line of it."""
    files = (await session.sandbox(wanted.sandbox)).files
    offset = wanted.offset
    if wanted.line is not None:
        if offset:
            raise InvalidInputError("give either offset or line")
        offset = await _offset_of_line(files, wanted.path, wanted.line)
    # One byte more tells whether there is more.
    data = await files.read_bytes(wanted.path, offset=offset, length=wanted.limit + 1)
    if offset == 0 and (mime_type := image_type(data)) is not None:
        return await _image(files, wanted.path, mime_type)
    piece = data[: wanted.limit]
    if len(data) > len(piece):
        piece = piece[: whole(piece)]
    text, exact = decoded(piece)
    return Answer([text, _told(offset, piece, data, exact)])


def _told(offset: int, piece: bytes, data: bytes, exact: bool) -> str:
    end = offset + len(piece)
    if len(data) > len(piece):
        told = f"[bytes {offset} to {end}; there is more: read on with offset {end}]"
    elif offset or not piece:
        told = f"[bytes {offset} to {end}, which is the end]"
    else:
        told = f"[the whole file, {end} bytes]"
    return told if exact else f"{told} [bytes that are not UTF-8 are replaced by marks]"


async def _offset_of_line(files: AsyncFiles, path: str, line: int) -> int:
    """Where a line begins."""
    missing, at = line - 1, 0
    if missing == 0:
        return 0
    async with aclosing(files.read_stream(path, length=MAX_SCAN)) as pieces:
        async for piece in pieces:
            breaks = piece.count(b"\n")
            if breaks < missing:
                missing -= breaks
                at += len(piece)
                continue
            place = -1
            for _ in range(missing):
                place = piece.index(b"\n", place + 1)
            return at + place + 1
    raise InvalidInputError(f"{path} has no line {line}", hint=f"it has {line - missing}, or fewer")


def image_type(data: bytes) -> str | None:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((name for magic, name in _MAGIC if data.startswith(magic)), None)


async def _image(files: AsyncFiles, path: str, mime_type: str) -> Answer:
    data = await files.read_bytes(path, length=MAX_IMAGE + 1)
    if len(data) > MAX_IMAGE:
        size = (await files.stat(path)).size
        raise InvalidInputError(
            f"{path} is a picture of {size} bytes; {MAX_IMAGE} can be shown",
            hint="make a smaller one of it in the sandbox",
        )
    return Answer([f"[{path}: {mime_type}, {len(data)} bytes]"], image=Image(mime_type, data))


class WriteFile(Arguments):
    sandbox: SandboxName
    path: GuestPath
    content: Annotated[str, Meta(max_length=MAX_CONTENT)]
    encoding: Annotated[
        Literal["utf-8", "base64"], Meta(description="base64: content is bytes in that form")
    ] = "utf-8"
    append: Annotated[bool, Meta(description="Add to the end instead of replacing the file")] = (
        False
    )
    executable: Annotated[bool, Meta(description="Make it a program that can be run")] = False


class Written(Body):
    path: str
    size: Annotated[int, Meta(description="Of what was written, in bytes")]


@tool("Write a file", effect="changes", arguments=WriteFile, body=Written)
async def write_file(session: Session, wanted: WriteFile) -> Answer:
    """Writes a file in a sandbox, whole or not at all, and makes the directories above it. What was
    there is replaced; edit_file changes a part."""
    files = (await session.sandbox(wanted.sandbox)).files
    data = content_bytes(wanted.content, wanted.encoding)
    if wanted.append:
        if wanted.executable:
            raise InvalidInputError("append does not change the mode", hint="exec: chmod +x")
        size = await files.append(wanted.path, data)
    else:
        mode = 0o755 if wanted.executable else None
        size = await files.write(wanted.path, data, mode=mode, parents=True)
    verb = "added to" if wanted.append else "written to"
    return Answer([f"{len(data)} bytes {verb} {wanted.path}"], Written(path=wanted.path, size=size))


def content_bytes(content: str, encoding: str) -> bytes:
    try:
        if encoding == "base64":
            return binascii.a2b_base64(content, strict_mode=True)
        return content.encode()
    except (binascii.Error, UnicodeEncodeError) as exc:
        raise InvalidInputError(f"content is not {encoding}: {exc}") from None


class ListFiles(Arguments):
    sandbox: SandboxName
    path: GuestPath
    depth: Annotated[
        int, Meta(ge=1, le=10, description="How many levels of directories to look into")
    ] = 1
    start: Annotated[
        int, Meta(ge=0, le=_WALK_ENTRIES, description="The entry to begin with, as an answer told")
    ] = 0


class FileBody(Body):
    path: Annotated[str, Meta(description="Relative to the directory that was asked for")]
    type: Annotated[str, Meta(description="file, dir, link, fifo, socket, char or block")]
    size: int
    mode: Annotated[str, Meta(description="As ls -l writes it")]
    target: Annotated[str, Meta(description="Where a link leads")] | None = None


class FileList(Body):
    path: str
    entries: list[FileBody]
    next_start: Annotated[int, Meta(description="There are more; begin with this one")] | None = (
        None
    )
    incomplete: Annotated[
        bool, Meta(description="There is more than one walk looks at; list a directory below")
    ] = False


@tool("List files", effect="reads", arguments=ListFiles, body=FileList)
async def list_files(session: Session, wanted: ListFiles) -> Answer:
    """Lists a directory of a sandbox, and with depth those below it, in the order of their names;
    500 entries at a time. Links are not followed."""
    files = (await session.sandbox(wanted.sandbox)).files
    found, complete = await _walk(files, wanted.path, wanted.depth)
    shown = found[wanted.start : wanted.start + LIST_ENTRIES]
    after = wanted.start + len(shown)
    body = FileList(
        path=wanted.path,
        entries=shown,
        next_start=after if after < len(found) else None,
        incomplete=not complete,
    )
    lines = [
        f"{entry.mode} {entry.size:>10} {entry.path}"
        + (f" -> {entry.target}" if entry.target else "")
        for entry in shown
    ]
    if body.next_start is not None:
        lines.append(f"[{len(found) - after} more: start {after}]")
    if body.incomplete:
        lines.append("[not everything was looked at: list a directory below]")
    return Answer(["\n".join(lines) or "[empty]"], body)


async def _walk(files: AsyncFiles, path: str, depth: int) -> tuple[list[FileBody], bool]:
    """Everything down to `depth`, parents first; False if it was too much."""
    found: list[FileBody] = []
    waiting = [("", 1)]
    looked = 0
    while waiting:
        below, level = waiting.pop()
        if looked == _WALK_DIRECTORIES:
            return found, False
        looked += 1
        entries = sorted(await files.list(f"{path}/{below}" if below else path), key=_by_name)
        directories = []
        for entry in entries:
            if len(found) == _WALK_ENTRIES:
                return found, False
            found.append(_file(below, entry))
            if entry.type == "dir" and level < depth:
                directories.append((f"{below}/{entry.name}" if below else entry.name, level + 1))
        waiting += reversed(directories)
    return found, True


def _by_name(entry: Entry) -> str:
    return entry.name


def _file(below: str, entry: Entry) -> FileBody:
    kinds = {"dir": stat.S_IFDIR, "link": stat.S_IFLNK, "fifo": stat.S_IFIFO,
             "socket": stat.S_IFSOCK, "char": stat.S_IFCHR, "block": stat.S_IFBLK}  # fmt: skip
    return FileBody(
        path=_text(f"{below}/{entry.name}" if below else entry.name),
        type=entry.type,
        size=entry.size,
        mode=stat.filemode(kinds.get(entry.type, stat.S_IFREG) | stat.S_IMODE(entry.mode)),
        target=None if entry.target is None else _text(entry.target),
    )


def _text(name: str) -> str:
    """Names may be any bytes; an answer is text."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
