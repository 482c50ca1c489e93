"""A proxy such as a company has: it takes CONNECT and absolute-form requests, and keeps them."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from .listening import Listener, Visit


class Forwarder(Listener):
    """Everything it is asked for it finds on 127.0.0.1, whatever the name. `heads`: the first lines
    and headers of what it was asked."""

    def __init__(self) -> None:
        self.heads: list[str] = []
        super().__init__()

    def serve(self, connection: socket.socket, visit: Visit) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            if not (data := connection.recv(65536)):
                return
            head += data
        visit.received += head
        first = head.partition(b"\r\n")[0].decode("latin-1")
        self.heads.append(head.decode("latin-1"))
        method, target, _ = first.split(" ", 2)
        if method == "CONNECT":
            port = int(target.rpartition(":")[2])
        else:
            port = int(target.split("/")[2].partition(":")[2] or 80)
        with socket.create_connection(("127.0.0.1", port)) as beyond:
            if method == "CONNECT":
                connection.sendall(b"HTTP/1.1 200 Through\r\n\r\n")
            else:
                path = "/" + target.split("/", 3)[3]
                beyond.sendall(head.replace(target.encode(), path.encode(), 1))
            back = threading.Thread(target=_pump, args=(beyond, connection), daemon=True)
            back.start()
            _pump(connection, beyond)
            back.join(20)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
