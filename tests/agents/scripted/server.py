"""The scripted models on this machine's loopback: one port for HTTP, HTTPS and CONNECT.

As `network.upstream_proxy` of a user's config.toml it is every model host there is: the gateway
asks it for api.anthropic.com:443 and gets this server, with a certificate for that name from a test
authority. So no name has to be resolved and no port below 1024 bound. What it does not serve it
forwards if `forward` says so (package registries), else it refuses.
"""

from __future__ import annotations

import gzip
import select
import socket
import ssl
import threading
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import h11

from ...network.world.authority import Authority
from ...network.world.listening import Listener, Visit
from .models import HOSTS, Asked, Models, parse_target
from .replies import Reply
from .script import Script

IDLE_SECONDS = 300.0
_BODY = 64 << 20


class ScriptedModels(Models, Listener):
    """Up from the moment it is made until `close`. `place`: where its certificates go. `hosts`:
    names it serves beside the known ones."""

    def __init__(
        self,
        place: Path,
        *scripts: Script,
        keys: set[str] | None = None,
        hosts: tuple[str, ...] = (),
        forward: Callable[[str], bool] = lambda host: False,
        port: int = 0,
    ) -> None:
        Models.__init__(self, list(scripts), keys or set())
        self.authority = Authority(place)
        self.hosts = {*HOSTS, *hosts}
        self.forward = forward
        self.refused: list[str] = []
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._making = threading.Lock()
        Listener.__init__(self, port=port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def settings(self) -> dict[str, str]:
        """The keys of `network` in a user's config.toml that lead to it."""
        return {"upstream_proxy": self.url, "upstream_ca": str(self.authority.ca_path)}

    def configure(self, config_home: Path, more: str = "") -> None:
        """Writes the config.toml; `more`: lines of it that stand before the section `network`."""
        lines = [f'{key} = "{value}"' for key, value in self.settings().items()]
        file = config_home / "agentkernel" / "config.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join([more, "[network]", *lines, ""]))

    # -- one connection -------------------------------------------------------------------------

    def serve(self, connection: socket.socket, visit: Visit) -> None:
        connection.settimeout(IDLE_SECONDS)
        self._talk(connection, visit, "")

    def _talk(self, connection: socket.socket, visit: Visit, host: str) -> None:
        """`host`: whom the client asked the proxy for."""
        if connection.recv(1, socket.MSG_PEEK) == b"\x16":
            secured = self._secure(connection, visit, host)
            with secured:
                self._requests(secured, visit, host)
        else:
            self._requests(connection, visit, host)

    def _secure(self, connection: socket.socket, visit: Visit, host: str) -> ssl.SSLSocket:
        def chosen(sock: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
            visit.sni = name
            sock.context = self._context(name or host or "127.0.0.1")

        first = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        first.set_alpn_protocols(["http/1.1"])
        first.sni_callback = chosen
        return first.wrap_socket(connection, server_side=True)

    def _context(self, name: str) -> ssl.SSLContext:
        with self._making:
            if name not in self._contexts:
                self._contexts[name] = self.authority.context(name)
            return self._contexts[name]

    def _requests(self, connection: socket.socket, visit: Visit, host: str) -> None:
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 18)
        while True:
            try:
                asked = self._receive(connection, http, visit, host)
            except h11.RemoteProtocolError as exc:
                visit.fault = str(exc)
                return
            if asked is None:
                return
            if asked.method == "CONNECT":
                self._connect(connection, visit, asked.path)
                return
            self._send(connection, http, self.answer(asked))
            if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
                return
            http.start_next_cycle()

    def _receive(
        self, connection: socket.socket, http: h11.Connection, visit: Visit, host: str
    ) -> Asked | None:
        asked: Asked | None = None
        body = bytearray()
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                if http.they_are_waiting_for_100_continue:
                    go_on = h11.InformationalResponse(status_code=100, headers=[])
                    connection.sendall(http.send(go_on) or b"")
                http.receive_data(connection.recv(1 << 16))
            elif isinstance(event, h11.Request):
                path, query = parse_target(event.target.decode("latin-1"))
                headers = {k.decode(): v.decode("latin-1") for k, v in event.headers}
                named = host or headers.get("host", "").partition(":")[0]
                method = event.method.decode()
                asked = Asked(method, named, path, query, headers, b"", visit.sni)
                if method == "CONNECT":
                    return asked
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > _BODY:
                    return None
            elif isinstance(event, h11.EndOfMessage):
                assert asked is not None
                asked.body = _decoded(bytes(body), asked.headers.get("content-encoding", ""))
                return asked
            else:  # it was closed
                return None

    def _send(self, connection: socket.socket, http: h11.Connection, reply: Reply) -> None:
        headers = {"server": "scripted", "request-id": "req_scripted", **reply.headers}
        if reply.events is None:
            headers["content-length"] = str(len(reply.body))
        else:
            headers["transfer-encoding"] = "chunked"
        head = h11.Response(status_code=reply.status, headers=list(headers.items()))
        connection.sendall(http.send(head) or b"")
        for data in [reply.body] if reply.events is None else reply.events:
            connection.sendall(http.send(h11.Data(data=data)) or b"")
        connection.sendall(http.send(h11.EndOfMessage()) or b"")

    # -- as a proxy -----------------------------------------------------------------------------

    def _connect(self, connection: socket.socket, visit: Visit, target: str) -> None:
        host, _, port = target.rpartition(":")
        if host in self.hosts:
            connection.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
            self._talk(connection, visit, host)
        elif self.forward(host):
            with socket.create_connection((host.strip("[]"), int(port)), 20) as other:
                connection.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
                _join(connection, other)
        else:
            self.refused.append(target)
            connection.sendall(b"HTTP/1.1 502 Not served here\r\ncontent-length: 0\r\n\r\n")


def _join(one: socket.socket, two: socket.socket) -> None:
    """Bytes of both to each other until one of them is done and the other, too."""
    others = {one: two, two: one}
    while others:
        ready, _, _ = select.select(list(others), [], [], IDLE_SECONDS)
        if not ready:
            return
        for source in ready:
            data = source.recv(1 << 16)
            if data:
                others[source].sendall(data)
                continue
            with suppress(OSError):
                others.pop(source).shutdown(socket.SHUT_WR)


def _decoded(body: bytes, encoding: str) -> bytes:
    """Raises nothing: what can't be read is recorded as it came."""
    try:
        if encoding == "gzip":
            return gzip.decompress(body)
        if encoding == "deflate":
            return zlib.decompress(body)
        if encoding == "zstd":
            from backports import zstd

            return bytes(zstd.decompress(body))
    except (OSError, zlib.error, EOFError, ImportError, ValueError):
        pass
    return body
