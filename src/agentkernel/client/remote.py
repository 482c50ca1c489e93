"""A daemon that is named by an address: on another machine, behind TLS, or at a socket's path.

    AGENTKERNEL_URL     http://127.0.0.1:8700, https://ak.example.org, unix:/run/ak/api.sock
    AGENTKERNEL_TOKEN   what `agentkernel token create` printed
    AGENTKERNEL_CA      a PEM file with the authorities to believe instead of this machine's

It is never started from here. What the rest of the client reads and writes is always a plain
socket: with TLS, one end of a pair whose other end a thread carries to the daemon and back.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from typing import NoReturn
from urllib.parse import urlsplit

from agentkernel.client.tls import carried, client_context
from agentkernel.errors import DaemonError, InvalidInputError, PolicyDeniedError, UnsupportedError
from agentkernel.places import state_path

CONNECT_SECONDS = 10.0
_PORTS = {"http": 80, "https": 443}
_LOCAL = ("localhost", "127.0.0.1", "::1")


class Remote:
    """Stands where a `Daemon` does."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url = url
        # Of this machine: what the client itself remembers.
        self.state_dir = state_path()
        self.headers: dict[str, str] = {}
        self._context: ssl.SSLContext | None = None
        self._path: str | None = None
        if url.startswith("unix:"):
            self._path = os.path.abspath(os.path.expanduser(url.removeprefix("unix:")))
        else:
            self._read_address(url)
        # Toolchains of this machine mean nothing on another.
        self.shares_host = self._path is not None
        if token:
            if not (token.isascii() and token.isprintable()) or " " in token:
                raise InvalidInputError("AGENTKERNEL_TOKEN is not a token")
            self.headers["Authorization"] = f"Bearer {token}"

    def _read_address(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if not host or parts.scheme not in _PORTS or parts.path not in ("", "/") or parts.query:
            raise InvalidInputError(
                f"{url!r} is no address of a daemon",
                hint="write http://HOST:PORT, https://HOST:PORT or unix:PATH",
            )
        if parts.username is not None:
            raise InvalidInputError(
                "the address has a user in it", hint="the token goes into AGENTKERNEL_TOKEN"
            )
        tls = parts.scheme == "https"
        if not tls and host not in _LOCAL and not os.environ.get("AGENTKERNEL_INSECURE_HTTP"):
            raise PolicyDeniedError(
                f"the token and all else would pass the network to {host} in clear text",
                hint="use https://; or set AGENTKERNEL_INSECURE_HTTP=1, if something else encrypts",
            )
        self._host, self._port = host, port or _PORTS[parts.scheme]
        if tls:
            self._context = client_context(os.environ.get("AGENTKERNEL_CA"))
        name = f"[{host}]" if ":" in host else host
        self.headers["Host"] = name if port is None else f"{name}:{port}"

    def connect(self) -> socket.socket | None:
        """A non-blocking connection. Blocks until there is one; DaemonError."""
        try:
            if self._path is not None:
                connection = _at_path(self._path)
            else:
                address = (self._host, self._port)
                connection = socket.create_connection(address, timeout=CONNECT_SECONDS)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as exc:
            raise DaemonError(
                f"no daemon answers at {self.url}: {exc.strerror or exc}",
                hint="`agentkernel serve --listen HOST:PORT` is what starts one there",
            ) from None
        if self._context is not None:
            connection = self._encrypted(connection)
        connection.setblocking(False)
        return connection

    def _encrypted(self, connection: socket.socket) -> socket.socket:
        assert self._context is not None
        try:
            wrapped = self._context.wrap_socket(connection, server_hostname=self._host)
        except ssl.SSLCertVerificationError as exc:
            connection.close()
            raise DaemonError(
                f"the certificate of {self.url} is not one to be trusted: {exc.verify_message}",
                hint="AGENTKERNEL_CA names a PEM file with the authority that signed it",
            ) from None
        except OSError as exc:
            connection.close()
            what = getattr(exc, "reason", None) or exc.strerror or exc
            raise DaemonError(f"no TLS with {self.url}: {what}") from None
        return carried(wrapped)

    def answers(self) -> bool:
        with contextlib.suppress(DaemonError):
            connection = self.connect()
            if connection is not None:
                connection.close()
            return True
        return False

    def start(self, seconds: float = 0.0, arguments: object = ()) -> None:
        self._elsewhere("be started")

    def wait_gone(self, pid: int, seconds: float = 0.0) -> None:
        """Its process is not ours to look at."""

    @property
    def log_path(self) -> str:
        self._elsewhere("show its log")

    @property
    def socket_path(self) -> str:
        return self.url

    def _elsewhere(self, what: str) -> NoReturn:
        raise UnsupportedError(
            f"the daemon at {self.url} can't {what} from here",
            hint="do that on its machine; without AGENTKERNEL_URL this machine's own is meant",
        )


def _at_path(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(CONNECT_SECONDS)
        connection.connect(path)
    except BaseException:
        connection.close()
        raise
    return connection
