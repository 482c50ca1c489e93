"""Manifests and blobs of one repository, from one of the places that have it."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import email.utils
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import TracebackType
from typing import TypeVar

import httpx2

import agentkernel
from agentkernel.errors import ImageInvalidError
from agentkernel.images.oci.model import (
    DOCKER_LIST,
    DOCKER_MANIFEST,
    MAX_DOCUMENT,
    OCI_INDEX,
    OCI_MANIFEST,
    Descriptor,
)
from agentkernel.images.oci.registry.dialling import Connections, Nearness, read_bounded
from agentkernel.images.oci.registry.failures import (
    Lost,
    denied,
    forbidden_way,
    misbehaved,
    of_status,
)
from agentkernel.images.oci.registry.hosts import Endpoint, Origin, Place, follow, is_loopback
from agentkernel.images.oci.registry.settings import RegistrySettings
from agentkernel.images.oci.registry.tokens import Identity
from agentkernel.images.oci.store import digest_of

_ACCEPT = ", ".join((OCI_INDEX, OCI_MANIFEST, DOCKER_LIST, DOCKER_MANIFEST))
_MOST_REDIRECTS = 5
_TRIES_UNREACHED = 2
_MOST_WORDS = 16 << 10
_REDIRECTS = frozenset({301, 302, 303, 307, 308})

T = TypeVar("T")


class RegistryClient:
    """Errors of all calls: typed ones that are final, and Lost."""

    def __init__(self, endpoint: Endpoint, settings: RegistrySettings) -> None:
        self.endpoint = endpoint
        self._settings = settings
        self._origin = endpoint.origin
        self._connections = Connections(endpoint.registry, settings)
        self._nearness: Nearness | None = None
        self._identity: Identity | None = None

    async def __aenter__(self) -> RegistryClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._connections.close()

    async def document(self, name: str, *, what: str, blob: bool = False) -> tuple[bytes, str]:
        """A manifest or index by tag or digest, or a config (`blob`) by digest: its bytes, which
        nobody has verified yet, and the media type that the registry says it has."""
        kind = "blobs" if blob else "manifests"

        async def once() -> tuple[bytes, str]:
            headers = {} if blob else {"Accept": _ACCEPT}
            async with self._get(f"{kind}/{name}", headers, what) as response:
                body = await read_bounded(response, MAX_DOCUMENT, self._settings.pace.stall)
                if body is None:
                    raise ImageInvalidError(f"{what} has more than {MAX_DOCUMENT >> 20} MiB")
                return body, response.headers.get("content-type", "").partition(";")[0].strip()

        return await self.patiently(once)

    async def verified_document(
        self, descriptor: Descriptor, *, what: str, blob: bool = False
    ) -> tuple[bytes, str]:
        """One that somebody has told of."""
        if descriptor.size > MAX_DOCUMENT:
            raise ImageInvalidError(f"{what} has more than {MAX_DOCUMENT >> 20} MiB")
        body, kind = await self.document(descriptor.digest, what=what, blob=blob)
        require_digest(body, descriptor.digest, what)
        if len(body) != descriptor.size:
            raise ImageInvalidError(f"{what} has {len(body)} bytes, not {descriptor.size}")
        return body, kind

    @contextlib.asynccontextmanager
    async def blob(self, digest: str, start: int) -> AsyncIterator[httpx2.Response]:
        """A 200 with all of it or, if `start` is more than 0, perhaps a 206 or a 416."""
        headers = {"Range": f"bytes={start}-"} if start else {}
        good = (200, 206, 416) if start else (200,)
        async with self._get(f"blobs/{digest}", headers, f"blob {digest}", good) as response:
            yield response

    async def patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        """Again and again after a pause, as often as the settings say. Raises typed errors only."""
        pace = self._settings.pace
        tries = 0
        while True:
            try:
                return await call()
            except Lost as lost:
                tries += 1
                # Whoever was never there is not waited for: there may be a next to ask.
                most = pace.tries if lost.reached else min(pace.tries, _TRIES_UNREACHED)
                if tries >= most or (lost.wait or 0) > pace.longest_pause:
                    raise lost.error from None
                await asyncio.sleep(pause(self._settings, tries, lost))

    @contextlib.asynccontextmanager
    async def _get(
        self, name: str, headers: Mapping[str, str], what: str, good: tuple[int, ...] = (200,)
    ) -> AsyncIterator[httpx2.Response]:
        identity = await self._know()
        common = {
            "User-Agent": f"agentkernel/{agentkernel.__version__}",
            "Accept-Encoding": "identity",
            **headers,
        }
        path = f"/v2/{self.endpoint.repository}/{name}"
        for last in (False, True):
            used = await identity.header(self._origin)
            own = {**common, "Authorization": used} if used else common
            async with self._followed(Place(self._origin, path), own, common) as (place, response):
                # What others ask for, to whom it led, is no business of its login.
                if response.status_code == 401 and not last and place.origin == self._origin:
                    asked = response.headers.get_list("www-authenticate")
                else:
                    await self._require(response, what, good, identity)
                    yield response
                    return
            if not await identity.answer(asked, used, self._origin):
                sent, note = identity.shown, identity.note
                raise denied(self.endpoint.registry, what, 401, sent=sent, note=note)

    async def _know(self) -> Identity:
        """The first time: how near the registry is, and whether it has TLS."""
        if self._identity is not None:
            return self._identity
        if self._settings.public_only and not self.endpoint.configured:
            await self._connections.require_public(self._origin)
        nearness = await self._connections.nearness(self._origin)
        if self.endpoint.maybe_plain and not await self._connections.speaks_tls(self._origin):
            self._origin = self._origin._replace(scheme="http")
        self._identity = Identity(self.endpoint, self._connections, nearness)
        self._nearness = nearness
        return self._identity

    @contextlib.asynccontextmanager
    async def _followed(
        self, place: Place, own: Mapping[str, str], others: Mapping[str, str]
    ) -> AsyncIterator[tuple[Place, httpx2.Response]]:
        """Where redirects lead to. Only the registry itself gets `own`, which has the login, and
        not from somebody who leads back to it."""
        headers = own
        for _ in range(_MOST_REDIRECTS + 1):
            async with self._connections.ask(place, headers) as response:
                if response.status_code not in _REDIRECTS:
                    yield place, response
                    return
                location = response.headers.get("location", "")
            place = await self._next(place, location)
            if place.origin != self._origin:
                headers = others
        raise misbehaved(self.endpoint.registry, f"redirects more than {_MOST_REDIRECTS} times")

    async def _next(self, place: Place, location: str) -> Place:
        registry = self.endpoint.registry
        assert self._nearness is not None
        try:
            found = follow(place, location)
        except ValueError as error:
            raise misbehaved(registry, f"redirects to nowhere: {error}") from None
        if found.origin == self._origin:
            return found
        if found.origin.scheme != "https" and not self._plain_is_fine(place.origin, found.origin):
            raise forbidden_way(registry, f"{found.origin.host} without TLS")
        await self._connections.judge(found.origin, self._nearness)
        return found

    def _plain_is_fine(self, now: Origin, then: Origin) -> bool:
        return now.scheme == "http" or (is_loopback(then.host) and self._nearness is Nearness.LOCAL)

    async def _require(
        self, response: httpx2.Response, what: str, good: tuple[int, ...], identity: Identity
    ) -> None:
        if response.status_code in good:
            encoding = response.headers.get("content-encoding", "identity")
            if encoding not in ("", "identity"):
                raise misbehaved(self.endpoint.registry, f"encodes {what}, which nobody asked for")
            return
        body = await read_bounded(response, _MOST_WORDS, self._settings.pace.stall)
        raise of_status(
            self.endpoint.registry,
            what,
            response.status_code,
            body or b"",
            sent=identity.shown,
            note=identity.note,
            retry_after=_retry_after(response.headers.get("retry-after", "")),
            secrets=identity.secrets,
        )


def require_digest(content: bytes, digest: str, what: str) -> None:
    actual = digest_of(content)
    if actual != digest:
        raise ImageInvalidError(
            f"{what} has the digest {actual}, not {digest}",
            hint="the registry, a mirror or something on the way changed it: do not trust it",
        )


def pause(settings: RegistrySettings, tries: int, lost: Lost) -> float:
    pace = settings.pace
    doubled: float = pace.pause * 2 ** (tries - 1)
    return max(lost.wait or 0, min(doubled, pace.longest_pause))


def _retry_after(text: str) -> float | None:
    """Seconds, or a date (RFC 9110, section 10.2.3)."""
    if text.isascii() and text.isdigit() and len(text) < 8:
        return float(text)
    try:
        date = email.utils.parsedate_to_datetime(text)
        return max(0.0, (date - datetime.datetime.now(datetime.UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None
