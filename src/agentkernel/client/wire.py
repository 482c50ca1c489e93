"""HTTP/1.1 as bytes and back, without any input or output: what both clients share."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping

from agentkernel.errors import (
    AgentKernelError,
    DaemonError,
    InvalidInputError,
    NotFoundError,
    all_error_types,
)

TYPE_CHECKING = False  # as in typing, which the command line does not load
if TYPE_CHECKING:
    from typing import Any, NoReturn

MAX_HEAD = 64 << 10
MAX_CHUNK_LINE = 1 << 10
MAX_LENGTH_DIGITS = 18
VERSION_HEADER = "agentkernel-version"
OWNER_HEADER = "Agentkernel-Owner"
SPEC_HEADER = "Agentkernel-Spec"
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/")

_WORD = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-")


class Head:
    """Status and headers of an answer; header names are in lower case."""

    def __init__(self, status: int, headers: dict[str, str]) -> None:
        self.status = status
        self.headers = headers

    @property
    def keeps_alive(self) -> bool:
        return self.headers.get("connection", "").lower() != "close"

    @property
    def chunked(self) -> bool:
        return self.headers.get("transfer-encoding", "").lower() == "chunked"

    @property
    def length(self) -> int | None:
        """None: the body ends with the connection (or is chunked)."""
        if self.status in (204, 304) or self.status < 200:
            return 0
        text = self.headers.get("content-length")
        if text is None:
            return None
        if not text.isascii() or not text.isdecimal() or len(text) > MAX_LENGTH_DIGITS:
            raise broken("a length that is no number")
        return int(text)


def broken(what: str) -> DaemonError:
    return DaemonError(f"the daemon's answer can't be understood: {what}")


def quote(text: str) -> str:
    """For a path or a query; any file name survives it."""
    data = text.encode("utf-8", "surrogateescape")
    return "".join(chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in data)


def segment(id: str) -> str:
    """An id or a name as part of a path. What can't be one is not found, here as there."""
    if not id or not set(id.encode()) <= _WORD:
        raise NotFoundError(f"there is nothing called {id!r}")
    return id


def target(path: str, query: Mapping[str, Any] | None = None) -> str:
    """`path` is quoted already; values of the query are quoted here, None is left out."""
    pairs = [
        f"{key}={quote(_word(one))}"
        for key, value in (query or {}).items()
        if value is not None
        for one in (value if isinstance(value, list) else [value])
    ]
    return f"{path}?{'&'.join(pairs)}" if pairs else path


def _word(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _client() -> str:
    """What the audit log calls us: the command line is a user of this package like any other."""
    return "agentkernel-cli" if "agentkernel.cli.main" in sys.modules else "agentkernel-sdk"


def caller_headers(
    owner: str | None, client: str | None, users_spec: bool = False
) -> dict[str, str]:
    """Who calls, for every request of a transport."""
    found = {"User-Agent": client or _client()}
    if owner := owner or os.environ.get("AGENTKERNEL_OWNER"):
        if not (owner.isascii() and owner.isprintable()):
            raise InvalidInputError("an owner is small letters, digits and : . _ / -, at most 128")
        found[OWNER_HEADER] = owner
    if users_spec:
        found[SPEC_HEADER] = "user"
    return found


def request(
    method: str,
    where: str,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    *,
    chunked: bool = False,
) -> bytes:
    """With `chunked` the body follows, in chunks."""
    chosen = {"Host": "agentkernel", **(headers or {})}
    lines = [f"{method} {where} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in chosen.items()]
    if chunked:
        lines.append("Transfer-Encoding: chunked")
    elif body is not None or method in ("POST", "PUT"):
        lines.append(f"Content-Length: {len(body or b'')}")
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a line break in a header")
    return "\r\n".join((*lines, "", "")).encode("latin-1") + (body or b"")


def parse_head(data: bytes) -> Head:
    """`data`: all up to the empty line, without it."""
    first, *lines = data.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    status = rest[:3]
    if not version.startswith("HTTP/1.") or not status.isdecimal() or len(status) != 3:
        raise broken("it is not HTTP")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise broken("a header without a colon")
        headers[name.strip().lower()] = value.strip()
    return Head(int(status), headers)


def form(files: Mapping[str, bytes | str], boundary: str) -> bytes:
    """Files as `multipart/form-data`. Preconditions: no content holds the boundary."""
    parts = []
    for name, content in files.items():
        quoted = name.encode("utf-8", "surrogateescape").replace(b"\\", b"\\\\")
        for byte, code in ((b'"', b"%22"), (b"\r", b"%0D"), (b"\n", b"%0A")):
            quoted = quoted.replace(byte, code)
        data = content.encode() if isinstance(content, str) else bytes(content)
        head = b'Content-Disposition: form-data; name="file"; filename="%b"' % quoted
        parts.append(b"--%b\r\n%b\r\n\r\n%b\r\n" % (boundary.encode(), head, data))
    return b"".join((*parts, b"--%b--\r\n" % boundary.encode()))


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def chunk_size(line: bytes) -> int:
    try:
        size = int(line.split(b";")[0], 16)
    except ValueError:
        raise broken("a chunk without a size") from None
    if not 0 <= size <= 1 << 32:
        raise broken("a chunk of an impossible size")
    return size


def parse_json(body: bytes | str) -> Any:
    """The value of an answer; DaemonError if it is none."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise broken("it is not JSON") from None


def parse_object(body: bytes | str) -> dict[str, Any]:
    value = parse_json(body)
    if not isinstance(value, dict):
        raise broken("it is no object")
    return value


class EventLines:
    """An event stream's bytes to its events, by name. An `error` is raised, a `ping` not told."""

    def __init__(self) -> None:
        self._kind = ""
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
        """Exhaust it before the next call."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"event: "):
                self._kind = line[7:].decode("utf-8", "replace")
            elif line.startswith(b"data: "):
                body = parse_object(line[6:])
                if self._kind == "error":
                    raise error_of(body)
                if self._kind != "ping":
                    yield self._kind, body


def raise_problem(head: Head, body: bytes) -> NoReturn:
    """The error that an answer with a status of 400 or more stands for."""
    if "json" in head.headers.get("content-type", ""):
        try:
            problem = parse_object(body)
        except DaemonError:
            problem = None
        if problem is not None:
            raise error_of(problem)
    raise DaemonError(f"the daemon answered with status {head.status}", status=head.status)


def error_of(problem: Mapping[str, Any]) -> AgentKernelError:
    """The exception of a problem's `code`; one that this version does not know is the root's."""
    code = str(problem.get("code", "internal"))
    message = str(problem.get("detail") or problem.get("title") or code)
    details = problem.get("details")
    known = dict(details) if isinstance(details, dict) else {}
    for reserved in ("self", "message", "hint", "result"):
        known.pop(reserved, None)
    for text in ("errno_name", "path"):
        if not isinstance(known.get(text, ""), str):
            known.pop(text)
    kind = next((kind for kind in all_error_types() if kind.code == code), None)
    if kind is None:
        kind, known["code"] = AgentKernelError, code
    hint = problem.get("hint")
    return kind(message, hint=str(hint) if hint else None, **known)
