"""The daemon's door to a network: where it listens, by which names it is called, with which key.

What must hold: without anybody's word nothing listens; on any address but this machine's own,
nothing is said in clear text.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from agentkernel.config.addresses import is_loopback, joined, split_address
from agentkernel.config.finding import user_file
from agentkernel.errors import HostError, InvalidInputError, NotFoundError, PolicyDeniedError

_LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")
_PREFIX: Final = "daemon."
KEYS: Final = (
    "listen",
    "tls_cert",
    "tls_key",
    "allow_hosts",
    "allow_origins",
    "insecure_http",
    "preview_domain",
)


@dataclass(frozen=True, kw_only=True)
class Listen:
    """What was asked for. `listen` is HOST:PORT."""

    listen: str
    tls_cert: str | None = None
    tls_key: str | None = None
    allow_hosts: tuple[str, ...] = ()
    allow_origins: tuple[str, ...] = ()
    insecure_http: bool = False
    preview_domain: str = "localhost"

    @classmethod
    def wanted(cls, flags: Mapping[str, Any]) -> Listen | None:
        """As the flags say, and where they say nothing the user's config.toml under [daemon]."""
        values: dict[str, Any] = {}
        path = user_file()
        if os.path.lexists(path):
            from agentkernel.config.reading import read_file

            said = read_file(path, "user").values
            values = {key: said[_PREFIX + key] for key in KEYS if _PREFIX + key in said}
        values |= {key: flags[key] for key in KEYS if flags.get(key)}
        if "listen" not in values:
            if given := [key for key in KEYS if flags.get(key)]:
                raise InvalidInputError(
                    f"--{given[0].replace('_', '-')} is about listening, and there is no --listen"
                )
            return None
        return cls(**values)


@dataclass(frozen=True)
class Network:
    """A socket that listens, and what callers have to say to be heard on it."""

    listener: socket.socket
    url: str
    hosts: frozenset[str]
    origins: tuple[str, ...]
    tls: ssl.SSLContext | None = field(repr=False)


@contextlib.contextmanager
def listening(wanted: Listen) -> Iterator[Network]:
    """Raises PolicyDeniedError, HostError, NotFoundError and InvalidInputError."""
    host, port = split_address(wanted.listen)
    tls = _context(wanted)
    family, address = _resolve(host, port)
    if tls is None and not is_loopback(address) and not wanted.insecure_http:
        raise PolicyDeniedError(
            f"on {address} tokens and all else would pass the network in clear text",
            hint="give --tls-cert and --tls-key; or --insecure-http, if something else encrypts",
        )
    listener = _bound(family, address, port)
    try:
        port = listener.getsockname()[1]
        scheme = "http" if tls is None else "https"
        yield Network(
            listener,
            f"{scheme}://{joined(host, port)}",
            _names(host, address, port, scheme) | frozenset(wanted.allow_hosts),
            wanted.allow_origins,
            tls,
        )
    finally:
        listener.close()


def _names(host: str, address: str, port: int, scheme: str) -> frozenset[str]:
    """What it may be called: how it was told to listen, and as this machine calls itself."""
    own = {joined(host, port), joined(address, port)}
    if is_loopback(address) or address in ("0.0.0.0", "::"):
        own |= {f"{name}:{port}" for name in _LOCAL_NAMES}
    if port == (443 if scheme == "https" else 80):
        own |= {name.rpartition(":")[0] for name in own}  # what a browser leaves out
    return frozenset(own)


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as exc:
        raise NotFoundError(f"{host} is no address of this machine: {exc.strerror}") from None
    # The same for every start, whatever the resolver prefers today.
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return family, str(address[0])


def _bound(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        # Inherited by what is accepted: an end that vanished is noticed within some minutes.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 20)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
        listener.bind((address, port))
        listener.listen(1024)
        listener.setblocking(False)
    except OSError as exc:
        listener.close()
        raise HostError(
            f"{joined(address, port)} can't be listened on: {exc.strerror}",
            hint="choose another address: --listen, or `agentkernel config set daemon.listen`",
        ) from None
    return listener


def _context(wanted: Listen) -> ssl.SSLContext | None:
    if wanted.tls_cert is None and wanted.tls_key is None:
        return None
    if wanted.tls_cert is None:
        raise InvalidInputError("a key needs its certificate", hint="give --tls-cert")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(wanted.tls_cert, wanted.tls_key, password=_no_password)
    except (OSError, ValueError) as exc:
        what = getattr(exc, "reason", None) or getattr(exc, "strerror", None) or str(exc)
        raise InvalidInputError(
            f"the certificate {wanted.tls_cert} and its key can't be used: {what}",
            hint="both are PEM files that you can read; the key may be in the certificate's file",
        ) from None
    return context


def _no_password() -> str:
    """Never asks a terminal: the daemon has none."""
    raise ValueError("the key is encrypted")
