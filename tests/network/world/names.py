"""A name server that keeps every question, and whose answers may change from one to the next."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset

from .listening import Listener, Visit


@dataclass(frozen=True)
class Question:
    name: str
    kind: str
    transport: str


class NameServer:
    """UDP and TCP on one port of 127.0.0.1. `answers`: per name the sets of addresses to tell, one
    after the other and the last for ever; a name that is not there does not exist."""

    def __init__(self) -> None:
        self.questions: list[Question] = []
        self.answers: dict[str, list[Sequence[str]]] = {}
        self._lock = threading.Lock()
        self._tcp = _Tcp(self._reply)
        self.port = self._tcp.port
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind(("127.0.0.1", self.port))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def tell(self, name: str, *sets: Sequence[str]) -> None:
        with self._lock:
            self.answers[name.rstrip(".").lower()] = list(sets)

    def asked(self, part: str) -> list[Question]:
        """Questions whose name has this in it."""
        return [question for question in list(self.questions) if part in question.name]

    def _serve(self) -> None:
        while True:
            try:
                data, peer = self._udp.recvfrom(65535)
            except OSError:
                return
            if not data:
                return
            if (reply := self._reply(data, "udp")) is not None:
                with suppress(OSError):
                    self._udp.sendto(reply, peer)

    def _reply(self, data: bytes, transport: str) -> bytes | None:
        try:
            query = dns.message.from_wire(data)
        except dns.exception.DNSException:
            return None
        reply = dns.message.make_response(query)
        reply.flags |= dns.flags.RA
        for asked in query.question:
            name = asked.name.to_text().rstrip(".").lower()
            kind = dns.rdatatype.to_text(asked.rdtype)
            with self._lock:
                self.questions.append(Question(name, kind, transport))
                sets = self.answers.get(name)
                # Both families of one lookup see the same set: it is over with the question for A.
                chosen = sets[0] if sets else ()
                if sets and len(sets) > 1 and kind == "A":
                    sets.pop(0)
            if sets is None:
                reply.set_rcode(dns.rcode.NXDOMAIN)
                continue
            fitting = [a for a in chosen if (":" in a) == (kind == "AAAA")]
            if kind in ("A", "AAAA") and fitting:
                reply.answer.append(dns.rrset.from_text(asked.name, 0, "IN", kind, *fitting))
        return reply.to_wire()

    def close(self) -> None:
        # A blocked recvfrom is not woken by close; an empty datagram says that it is over.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", ("127.0.0.1", self.port))
        self._thread.join(5)
        self._udp.close()
        self._tcp.close()


class _Tcp(Listener):
    def __init__(self, reply: Callable[[bytes, str], bytes | None]) -> None:
        self._answer = reply
        super().__init__()

    def serve(self, connection: socket.socket, visit: Visit) -> None:
        with connection.makefile("rb") as stream:
            while len(size := stream.read(2)) == 2:
                data = stream.read(struct.unpack("!H", size)[0])
                visit.received += data
                if (reply := self._answer(data, "tcp")) is not None:
                    connection.sendall(struct.pack("!H", len(reply)) + reply)
