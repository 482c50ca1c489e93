"""One request to one address.

A host is asked for once in a pull, and all its requests go to those addresses: what was judged is
what is dialled. A registry that the user named may be anywhere; where it leads may not be nearer to
this machine than it is itself: from a public registry to public addresses only, from a private one
also to private ones, and to this machine's own from one on this machine alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import glob
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from enum import IntEnum
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

import httpx2

from agentkernel.errors import HostError, RegistryError
from agentkernel.images.oci.registry.failures import (
    Lost,
    NoTls,
    broken,
    forbidden_way,
    misbehaved,
    not_public,
    unreachable,
    untrusted,
)
from agentkernel.images.oci.registry.hosts import Origin, Place, is_loopback
from agentkernel.images.oci.registry.settings import RegistrySettings
from agentkernel.network.gateway import upstream_proxy
from agentkernel.network.gateway.flow import Refused
from agentkernel.network.policy.addresses import vet
from agentkernel.network.policy.names import Address
from agentkernel.texts import printable

# Its lines at level DEBUG hold the addresses of redirects, which are signed: they are secrets.
logging.getLogger("httpcore2").setLevel(logging.WARNING)

_MOST_ADDRESSES = 8
_TLS_SECONDS = 3.0
_NAT64 = IPv6Network("64:ff9b::/96")
# What the ssl module says when it only waits.
_NO_ERRORS = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Nearness(IntEnum):
    """Of an address, as seen from here."""

    PUBLIC = 0
    PRIVATE = 1
    LOCAL = 2
    FORBIDDEN = 3


def nearness(address: Address) -> Nearness:
    address = _meant(address)
    if vet(address, rule_private=False, port_named=False) is None:
        return Nearness.PUBLIC
    if vet(address, rule_private=True, port_named=False) is None:
        return Nearness.PRIVATE
    if vet(address, rule_private=True, port_named=True) is None:
        return Nearness.LOCAL
    return Nearness.FORBIDDEN


class Connections:
    """Those of one pull from one registry, whose name is for messages."""

    def __init__(self, registry: str, settings: RegistrySettings) -> None:
        self._registry = registry
        self._settings = settings
        self._addresses: dict[str, list[Address]] = {}
        # One set of connections for each origin: shared by address, a connection that was verified
        # for one name could carry what is for another.
        self._transports: dict[Origin, httpx2.AsyncHTTPTransport] = {}

    async def close(self) -> None:
        for transport in self._transports.values():
            await transport.aclose()

    async def nearness(self, origin: Origin) -> Nearness:
        """Of a host that the user named: its farthest address, for only that one can have
        answered. Behind a proxy names are not resolved here: then it counts as public."""
        if self._proxy(origin) is not None:
            return Nearness.PUBLIC
        found = min(nearness(address) for address in await self._resolve(origin))
        return Nearness.PUBLIC if found is Nearness.FORBIDDEN else found

    async def judge(self, origin: Origin, allowed: Nearness) -> None:
        """Whether a registry may lead there. Raises RegistryError, Lost."""
        words = await self._why_not(origin, allowed)
        if words is not None:
            raise forbidden_way(self._registry, words)

    async def require_public(self, origin: Origin) -> None:
        """For a registry whose name is the word of somebody who acts with less than the user.
        Raises PolicyDeniedError, Lost."""
        words = await self._why_not(origin, Nearness.PUBLIC)
        if words is not None:
            raise not_public(self._registry, words)

    async def _why_not(self, origin: Origin, allowed: Nearness) -> str | None:
        if origin.authority in self._settings.insecure:
            return None
        if self._proxy(origin) is not None:
            try:
                addresses = [ip_address(origin.host)]
            except ValueError:
                if is_loopback(origin.host) and allowed < Nearness.LOCAL:
                    return "this machine's loopback"
                return None
        else:
            addresses = await self._resolve(origin)
        for address in addresses:
            words = vet(
                _meant(address),
                rule_private=allowed >= Nearness.PRIVATE,
                port_named=allowed >= Nearness.LOCAL,
            )
            if words is not None:
                return f"{origin.host} is {words}"
        return None

    async def speaks_tls(self, origin: Origin) -> bool:
        """Asked of this machine's loopback alone, where plain HTTP is as good. A server with a
        certificate that is not trusted does; one that says nothing does not."""
        try:
            async with asyncio.timeout(_TLS_SECONDS), self.ask(Place(origin, "/v2/"), {}):
                return True
        except (NoTls, Lost, TimeoutError):
            return False
        except RegistryError:
            return True

    @contextlib.asynccontextmanager
    async def ask(
        self,
        place: Place,
        headers: Mapping[str, str],
        *,
        method: str = "GET",
        content: bytes | None = None,
    ) -> AsyncIterator[httpx2.Response]:
        """The head of the answer is there; the body is read by whoever asked. Raises Lost,
        RegistryError. What breaks off while the body is read is raised as Lost, too."""
        response = await self._send(method, place, headers, content)
        try:
            yield response
        except (httpx2.TransportError, ssl.SSLError) as error:
            at = place.origin.authority
            raise Lost(broken(self._registry, _words(error), at)) from None
        finally:
            await response.aclose()

    async def _send(
        self, method: str, place: Place, headers: Mapping[str, str], content: bytes | None
    ) -> httpx2.Response:
        origin = place.origin
        transport = await self._transport(origin)
        at = origin.authority
        pace = self._settings.pace
        timeout = httpx2.Timeout(pace.stall, connect=pace.connect).as_dict()
        hosts: list[Address | str] = [origin.host]
        if self._proxy(origin) is None:
            hosts = list(await self._resolve(origin))
        for host in hosts:
            try:
                request = httpx2.Request(
                    method,
                    httpx2.URL(
                        scheme=origin.scheme,
                        host=str(host),
                        port=origin.port,
                        raw_path=place.target.encode(),
                    ),
                    headers={**headers, "Host": at},
                    content=content,
                    extensions={"timeout": timeout, "sni_hostname": origin.host},
                )
                async with asyncio.timeout(pace.connect + pace.stall):
                    response = await transport.handle_async_request(request)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                if (refused := _tls_error(error)) is not None:
                    raise untrusted(self._registry, refused, at) from None
                if host is hosts[-1]:
                    gone = unreachable(self._registry, _words(error), at)
                    raise Lost(gone, reached=False) from None
            except httpx2.ProxyError as error:
                raise unreachable(self._registry, f"the proxy says {_words(error)}", at) from None
            except (httpx2.TransportError, TimeoutError) as error:
                raise Lost(broken(self._registry, _words(error), at)) from None
            except (httpx2.InvalidURL, UnicodeError):
                raise misbehaved(self._registry, "leads to an address that is none") from None
            else:
                if not isinstance(host, str):
                    self._addresses[origin.host].sort(key=lambda each: each != host)
                return response
        raise AssertionError("every host has an address")

    async def _resolve(self, origin: Origin) -> list[Address]:
        if found := self._addresses.get(origin.host):
            return found
        try:
            async with asyncio.timeout(self._settings.pace.connect):
                answers = await asyncio.get_running_loop().getaddrinfo(
                    origin.host, origin.port, type=socket.SOCK_STREAM
                )
        except (OSError, UnicodeError, TimeoutError) as error:
            at = origin.authority
            raise Lost(unreachable(self._registry, _words(error), at), reached=False) from None
        found = [ip_address(str(answer[4][0]).partition("%")[0]) for answer in answers]
        found = list(dict.fromkeys(found))[:_MOST_ADDRESSES]
        if is_loopback(origin.host):
            # Plain HTTP is for the loopback, whatever this machine's name service says of it.
            found = [address for address in found if address.is_loopback]
        if not found:
            raise Lost(unreachable(self._registry, "it has no address", origin.authority))
        self._addresses[origin.host] = found
        return found

    def _proxy(self, origin: Origin) -> upstream_proxy.Proxy | None:
        if is_loopback(origin.host):
            return None
        port = 443 if origin.scheme == "https" else 80
        try:
            return upstream_proxy.find(self._settings.upstream_proxy, origin.host, port)
        except Refused as error:
            raise unreachable(self._registry, error.words) from None

    async def _transport(self, origin: Origin) -> httpx2.AsyncHTTPTransport:
        if found := self._transports.get(origin):
            return found
        context: ssl.SSLContext | bool = False
        if origin.scheme == "https":
            context = await asyncio.to_thread(_context, origin, self._settings)
        proxy = self._proxy(origin)
        through = None
        if proxy is not None:
            host = f"[{proxy.host}]" if ":" in proxy.host else proxy.host
            basic = {"Proxy-Authorization": f"Basic {proxy.credentials}"}
            through = httpx2.Proxy(
                f"http://{host}:{proxy.port}", headers=basic if proxy.credentials else None
            )
        return self._transports.setdefault(
            origin,
            httpx2.AsyncHTTPTransport(
                verify=context,
                proxy=through,
                trust_env=False,
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=4),
            ),
        )


def _meant(address: Address) -> Address:
    """In a network without IPv4 a name server gives every IPv4 address in this form (NAT64)."""
    if isinstance(address, IPv6Address) and address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


async def read_bounded(response: httpx2.Response, most: int, seconds: float) -> bytes | None:
    """The whole body, as it came; None: it is more than that. Raises httpx2.TransportError."""
    body = bytearray()
    try:
        async with asyncio.timeout(seconds), contextlib.aclosing(response.aiter_raw()) as blocks:
            async for block in blocks:
                body += block
                if len(body) > most:
                    return None
    except TimeoutError:
        raise httpx2.ReadTimeout("it did not answer in time") from None
    return bytes(body)


def _context(origin: Origin, settings: RegistrySettings) -> ssl.SSLContext:
    """The system's authorities (SSL_CERT_FILE and SSL_CERT_DIR say others), the operator's, and
    those that docker's directory has for this host. Raises HostError."""
    place = os.path.join(settings.certificates, origin.authority.strip("[]"))
    files = [settings.upstream_ca] if settings.upstream_ca else []
    files += sorted(glob.glob(os.path.join(glob.escape(place), "*.crt")))
    try:
        return _make_context(tuple((file, os.stat(file).st_mtime_ns) for file in files))
    except OSError as error:  # ssl.SSLError is one
        raise HostError(
            f"the certificates of {', '.join(files)} can't be read:"
            f" {error.strerror or 'they are damaged'}",
            hint="they stand there in PEM, and the daemon's user must be able to read them",
        ) from None


@functools.lru_cache(maxsize=8)
def _make_context(files: tuple[tuple[str, int], ...]) -> ssl.SSLContext:
    """Reading the system's certificates takes tens of milliseconds: kept until a file changes."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for file, _ in files:
        context.load_verify_locations(cafile=file)
    return context


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    while error is not None:
        if isinstance(error, ssl.SSLError) and not isinstance(error, _NO_ERRORS):
            return error
        error = error.__cause__ or error.__context__
    return None


def _words(error: BaseException) -> str:
    """What the operating system said, if it was asked."""
    shown = str(error) or type(error).__name__
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, TimeoutError | httpx2.TimeoutException):
            return "it did not answer in time"
        if isinstance(cause, socket.gaierror):
            return printable(str(cause.strerror))
        if isinstance(cause, OSError) and cause.errno and not isinstance(cause, _NO_ERRORS):
            return os.strerror(cause.errno)
        cause = cause.__cause__ or cause.__context__
    return printable(shown)
