"""TLS around a connection, out of sight of whoever reads and writes it."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading

from agentkernel.errors import InvalidInputError

_CHUNK = 1 << 16


def client_context(authorities: str | None) -> ssl.SSLContext:
    """Names and certificates are always checked. `authorities`: instead of this machine's."""
    try:
        context = ssl.create_default_context(cafile=authorities or None)
    except OSError as exc:
        what = getattr(exc, "reason", None) or exc.strerror or exc
        raise InvalidInputError(f"AGENTKERNEL_CA, {authorities}, can't be used: {what}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def carried(connection: ssl.SSLSocket) -> socket.socket:
    """One end of a pair; what goes in there goes out through `connection`, and the other way round.
    Closing it closes the connection."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    connection.setblocking(False)
    threading.Thread(target=_carry, args=(connection, theirs), daemon=True).start()
    return ours


def _carry(outer: ssl.SSLSocket, inner: socket.socket) -> None:
    """One thread for both ways: an SSL object is not for two. Holds a chunk each way at most, so
    that whoever does not read slows the other end."""
    out, back = b"", b""
    with outer, inner, contextlib.suppress(OSError):
        while True:
            if not back:
                try:
                    back = outer.recv(_CHUNK)
                    if not back:
                        return
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    pass
            if not out:
                with contextlib.suppress(BlockingIOError):
                    out = inner.recv(_CHUNK)
                    if not out:
                        return
            if back:
                with contextlib.suppress(BlockingIOError):
                    back = back[inner.send(back) :]
            if out:
                with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    out = out[outer.send(out) :]
            if not back and outer.pending():
                continue
            poll = select.poll()
            poll.register(outer, (0 if back else select.POLLIN) | (select.POLLOUT if out else 0))
            poll.register(inner, (0 if out else select.POLLIN) | (select.POLLOUT if back else 0))
            poll.poll()
