"""The programs that keep logins for docker: `docker-credential-NAME`.

What must hold: a secret is on no command line and in no message; a program that hangs, or writes
without end, is killed.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import time

import msgspec

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")
_SECONDS = 30.0
_MOST_BYTES = 64 << 10
_NOT_FOUND = b"credentials not found"
# A user name that says that the secret is a token for getting others.
IDENTITY = "<token>"


class HelperFailed(Exception):
    """With words that hold nothing of what it wrote."""


class Kept(msgspec.Struct, rename="pascal"):
    """What a helper keeps."""

    username: str = ""
    secret: str = ""

    def __repr__(self) -> str:
        return "Kept(…)"


def ask_helper(name: str, server: str, *, seconds: float = _SECONDS) -> Kept | None:
    """None: it has no login for that server. Blocks until it has answered. Raises HelperFailed."""
    if not _NAME.match(name):
        raise HelperFailed("its name is none that a credential helper can have")
    program = f"docker-credential-{name}"
    path = shutil.which(program)
    if path is None or not os.path.isabs(path):
        raise HelperFailed(f"{program} is not on the PATH of the daemon")
    try:
        process = subprocess.Popen(
            [path, "get"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        raise HelperFailed(f"{program} can't be run: {error.strerror}") from None
    try:
        output = _converse(process, server.encode(), seconds)
        if output is None:
            raise HelperFailed(f"{program} did not answer in {seconds:g} seconds")
        if len(output) > _MOST_BYTES:
            raise HelperFailed(f"{program} wrote more than a login can be")
        if process.wait() != 0:
            if _NOT_FOUND in output:
                return None
            raise HelperFailed(f"{program} ended with {process.returncode}")
    finally:
        _end(process)
    try:
        return msgspec.json.decode(output, type=Kept)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise HelperFailed(f"{program} wrote no login") from None


def _converse(process: subprocess.Popen[bytes], question: bytes, seconds: float) -> bytes | None:
    """All it writes until it ends; None: it did not end in time."""
    assert process.stdin is not None and process.stdout is not None
    deadline = time.monotonic() + seconds
    with contextlib.suppress(OSError):  # it need not read: a pipe takes as much as we have to say
        process.stdin.write(question)
        process.stdin.close()
    output = b""
    while len(output) <= _MOST_BYTES:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
            return None
        block = os.read(process.stdout.fileno(), _MOST_BYTES + 1)
        if not block:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                return None
            return output
        output += block
    return output


def _end(process: subprocess.Popen[bytes]) -> None:
    """With all it has started."""
    assert process.stdin is not None and process.stdout is not None
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    with contextlib.suppress(OSError):
        process.stdin.close()
    process.stdout.close()
