"""A TCP server in threads, and a record of who came and what they sent."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

SECONDS = 20.0


@dataclass
class Visit:
    """One connection. `received` grows while it lasts; of TLS it is what was said inside."""

    peer: tuple[str, int]
    received: bytearray = field(default_factory=bytearray)
    sni: str | None = None
    fault: str = ""
    open: bool = True


class Listener:
    """Accepts on 127.0.0.1 until it is closed; each connection has a thread of its own."""

    def __init__(self, address: str = "127.0.0.1", backlog: int = 512, port: int = 0) -> None:
        self._socket = socket.create_server((address, port), backlog=backlog)
        self.port: int = self._socket.getsockname()[1]
        self.visits: list[Visit] = []
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def serve(self, connection: socket.socket, visit: Visit) -> None:
        """What a connection is for; to be said by each kind of server."""
        raise NotImplementedError

    def _accept(self) -> None:
        while True:
            try:
                connection, peer = self._socket.accept()
            except OSError:
                return
            visit = Visit(peer)
            with self._lock:
                self.visits.append(visit)
                self._open.add(connection)
            threading.Thread(target=self._serve, args=(connection, visit), daemon=True).start()

    def _serve(self, connection: socket.socket, visit: Visit) -> None:
        connection.settimeout(SECONDS)
        try:
            self.serve(connection, visit)
        except (OSError, ValueError) as exc:
            visit.fault = visit.fault or str(exc)
        finally:
            visit.open = False
            with self._lock:
                self._open.discard(connection)
            connection.close()

    def mark(self) -> Callable[[], list[Visit]]:
        """From now on: a call that tells the visits since."""
        begun = len(self.visits)
        return lambda: self.visits[begun:]

    def received(self) -> bytes:
        """All bytes of all visits."""
        return b"\n".join(bytes(visit.received) for visit in list(self.visits))

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join(SECONDS)


class Recorder(Listener):
    """Takes whatever comes, greets first if it is told to, and echoes."""

    def __init__(self, address: str = "127.0.0.1", greeting: bytes = b"") -> None:
        self._greeting = greeting
        super().__init__(address)

    def serve(self, connection: socket.socket, visit: Visit) -> None:
        if self._greeting:
            connection.sendall(self._greeting)
        while data := connection.recv(65536):
            visit.received += data
            connection.sendall(data)
