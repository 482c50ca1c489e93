"""The two ends of the network's benchmark: a server in a process of its own, and a client's source,
which is run by the same interpreter on the host and inside."""

from __future__ import annotations

import datetime
import socket
import ssl
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NAMES = ("spliced.test", "intercepted.test")
_BLOCK = bytes(1 << 20)

# Prints one number: MiB or connections a second. Nothing is verified: trust is the gateway's task,
# and a client that checks a chain would measure that.
CLIENT = r"""
import socket, ssl, sys, time
mode, host, port, amount = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
name = host if not host[0].isdigit() else 'spliced.test'
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
address = socket.gethostbyname(host)
def connect(): return socket.create_connection((address, port), 60)
def secure(): return context.wrap_socket(connect(), server_hostname=name)
def head(method, path, more=''):
    return ('%s %s HTTP/1.1\r\nHost: %s:%d\r\n%s\r\n' % (method, path, name, port, more)).encode()
buffer = bytearray(1 << 20)
size = amount << 20
def read_head(s):
    seen = b''
    while b'\r\n\r\n' not in seen: seen += s.recv(65536)
    return len(seen.partition(b'\r\n\r\n')[2])
begun = time.perf_counter()
if mode == 'down':
    with secure() as s:
        s.sendall(head('GET', '/%d' % size))
        got = read_head(s)
        while got < size:
            more = s.recv_into(buffer)
            if not more: sys.exit('it ended early')
            got += more
elif mode == 'up':
    with secure() as s:
        s.sendall(head('POST', '/', 'Content-Length: %d\r\n' % size))
        for _ in range(amount): s.sendall(buffer)
        read_head(s)
else:
    for _ in range(amount):
        with (secure() if mode == 'tls' else connect()) as s:
            s.sendall(head('GET', '/1', 'Connection: close\r\n'))
            read_head(s)
print(amount / (time.perf_counter() - begun))
"""


class Server:
    """Two ports, TLS and plain. `ca`: what its certificate is signed by."""

    def __init__(self, place: Path) -> None:
        self.ca = place / "ca.pem"
        chain = place / "server.pem"
        _certify(self.ca, chain)
        words = [sys.executable, __file__, str(chain)]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        self._tls, self._plain = self._process.stdout.readline().split()

    def ports(self, mode: str) -> tuple[str]:
        return (self._plain if mode == "echo" else self._tls,)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout
        self._process.stdout.close()


def _certify(ca: Path, chain: Path) -> None:
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "benchmark")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAMES[0])])
    signer, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    made = {}
    for name, mine in ((issuer, signer), (subject, key)):
        is_ca = name is issuer
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(issuer)
            .public_key(mine.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - day)
            .not_valid_after(now + day)
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        )
        if not is_ca:
            shown = x509.SubjectAlternativeName([x509.DNSName(each) for each in NAMES])
            builder = builder.add_extension(shown, critical=False)
        made[name] = builder.sign(signer, hashes.SHA256())
    ca.write_bytes(made[issuer].public_bytes(serialization.Encoding.PEM))
    chain.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made[subject].public_bytes(serialization.Encoding.PEM)
    )


# -- the server's own process ----------------------------------------------------------------------


def _serve(chain: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    listeners = [socket.create_server(("127.0.0.1", 0), backlog=512) for _ in range(2)]
    print(*(listener.getsockname()[1] for listener in listeners), flush=True)
    threading.Thread(target=_accept, args=(listeners[1], None), daemon=True).start()
    _accept(listeners[0], context)


def _accept(listener: socket.socket, context: ssl.SSLContext | None) -> None:
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_answer, args=(connection, context), daemon=True).start()


def _answer(connection: socket.socket, context: ssl.SSLContext | None) -> None:
    """One request: so many bytes as its path says, or a body of a length to be taken."""
    with suppress(OSError):
        stream = context.wrap_socket(connection, server_side=True) if context else connection
        with stream:
            seen = b""
            while b"\r\n\r\n" not in seen:
                if not (data := stream.recv(65536)):
                    return
                seen += data
            head, _, body = seen.partition(b"\r\n\r\n")
            size = int(head.split(b" ")[1][1:] or b"0")
            if head.startswith(b"POST"):
                wanted = int(head.lower().partition(b"content-length:")[2].split()[0])
                buffer = bytearray(1 << 20)
                got = len(body)
                while got < wanted and (more := stream.recv_into(buffer)):
                    got += more
            stream.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
            while size:
                part = min(size, len(_BLOCK))
                stream.sendall(_BLOCK[:part])
                size -= part


if __name__ == "__main__":
    _serve(sys.argv[1])
