"""Who we are to one registry: nobody, a login, or a token that somebody else gave for a login.

What must hold: a login goes to the registry it is for, and to the realm that this registry has
named over a connection that was verified; nowhere else. It asks for `pull` of one repository,
whatever the registry says it should ask for.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from urllib.parse import urlencode

import msgspec

from agentkernel.images.oci.registry.challenges import Challenge, parse_challenges
from agentkernel.images.oci.registry.credentials import Credentials, Login, find_login
from agentkernel.images.oci.registry.dialling import Connections, Nearness, read_bounded
from agentkernel.images.oci.registry.failures import forbidden_way, misbehaved, of_status
from agentkernel.images.oci.registry.hosts import Endpoint, Origin, Place, is_loopback, parse_place

_CLIENT = "agentkernel"
_MOST_BYTES = 64 << 10
_SECONDS = 60.0
# A token that says nothing of its life lives a minute; a little of every life is for the way.
_LIFE = 60.0
_LONGEST_LIFE = 3600.0
_MARGIN = 0.1
_TOKEN = re.compile(r"[\x21-\x7e]{1,32768}\Z")
_SERVICE = re.compile(r"[\x20-\x7e]{0,512}\Z")


class _Answer(msgspec.Struct):
    token: str | None = None
    access_token: str | None = None
    expires_in: float | None = None


class Identity:
    """What is sent as Authorization to one endpoint."""

    def __init__(self, endpoint: Endpoint, connections: Connections, nearness: Nearness) -> None:
        self._endpoint = endpoint
        self._connections = connections
        self._nearness = nearness
        self._login: Login | None = None
        self._header: str | None = None
        self._expires = float("inf")
        self._challenge: Challenge | None = None
        self._token = ""
        # Several blobs are refused at once: one of them gets the new token for all.
        self._renewing = asyncio.Lock()

    @property
    def shown(self) -> bool:
        """Whether a login of the user's was sent."""
        return self._login is not None and self._login.credentials is not None

    @property
    def note(self) -> str:
        return self._login.note if self._login is not None else ""

    @property
    def secrets(self) -> frozenset[str]:
        """What may stand in no message."""
        known = {self._token} - {""}
        if self._login is not None and self._login.credentials is not None:
            known |= self._login.credentials.secrets
        return frozenset(known)

    async def header(self, origin: Origin) -> str | None:
        """For a request over `origin`, which is the endpoint's."""
        if self._challenge is not None and time.monotonic() > self._expires:
            used = self._header
            async with self._renewing:
                if self._header == used:
                    await self._fetch_token(self._challenge, origin)
        return self._header

    async def answer(self, headers: Sequence[str], used: str | None, origin: Origin) -> bool:
        """After a 401 to a request that had `used`: whether there is something else to try.
        Raises RegistryError, InvalidInputError, Lost."""
        async with self._renewing:
            if self._header != used:
                return True  # another request was first
            challenges = parse_challenges(headers)
            bearer = next((each for each in challenges if each.scheme == "bearer"), None)
            if bearer is not None:
                credentials = await self._credentials()
                if credentials is not None and credentials.token:
                    return self._take(f"Bearer {credentials.token}", used)
                await self._fetch_token(bearer, origin)
                return True
            if any(each.scheme == "basic" for each in challenges):
                credentials = await self._credentials()
                if credentials is not None and credentials.password:
                    return self._take(f"Basic {credentials.basic}", used)
            return False

    def _take(self, header: str, used: str | None) -> bool:
        self._header, self._expires = header, float("inf")
        return header != used

    async def _credentials(self) -> Credentials | None:
        if self._login is None:
            self._login = await asyncio.to_thread(
                find_login, self._endpoint.logins, self._endpoint.repository
            )
        return self._login.credentials

    async def _fetch_token(self, challenge: Challenge, origin: Origin) -> None:
        realm, trusted = await self._realm(challenge, origin)
        credentials = await self._credentials() if trusted else None
        asked = {"scope": f"repository:{self._endpoint.repository}:pull"}
        if service := challenge.parameters.get("service", ""):
            if not _SERVICE.match(service):
                raise misbehaved(self._endpoint.registry, "names a service that is none")
            asked["service"] = service
        began = time.monotonic()
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if credentials is not None and credentials.identity:
            asked |= {
                "grant_type": "refresh_token",
                "refresh_token": credentials.identity,
                "client_id": _CLIENT,
            }
            headers["Content-Type"] = "application/x-www-form-urlencoded"
            content = urlencode(asked).encode()
            answer = await self._ask(realm, headers, "POST", content)
        else:
            if credentials is not None and credentials.password:
                headers["Authorization"] = f"Basic {credentials.basic}"
            mark = "&" if "?" in realm.target else "?"
            place = Place(realm.origin, f"{realm.target}{mark}{urlencode(asked)}")
            answer = await self._ask(place, headers, "GET", None)
        token = answer.token or answer.access_token or ""
        if not _TOKEN.match(token):
            raise misbehaved(self._endpoint.registry, "gives a token that is none")
        life = answer.expires_in if answer.expires_in else _LIFE
        self._challenge = challenge
        self._token = token
        self._header = f"Bearer {token}"
        self._expires = began + min(max(life, _LIFE), _LONGEST_LIFE) * (1 - _MARGIN)

    async def _realm(self, challenge: Challenge, origin: Origin) -> tuple[Place, bool]:
        """Where tokens are given, and whether a login may be shown there."""
        registry = self._endpoint.registry
        try:
            realm = parse_place(challenge.parameters.get("realm", ""))
        except ValueError as error:
            raise misbehaved(registry, f"names a realm that is none: {error}") from None
        here = realm.origin == origin
        near = is_loopback(realm.origin.host) and self._nearness is Nearness.LOCAL
        if realm.origin.scheme != "https" and not here and not near:
            raise forbidden_way(registry, "its realm for tokens is plain HTTP")
        if not here:
            await self._connections.judge(realm.origin, self._nearness)
        verified = origin.scheme == "https" or is_loopback(origin.host)
        return realm, here or verified

    async def _ask(
        self, place: Place, headers: dict[str, str], method: str, content: bytes | None
    ) -> _Answer:
        registry = self._endpoint.registry
        async with self._connections.ask(
            place, headers, method=method, content=content
        ) as response:
            body = await read_bounded(response, _MOST_BYTES, _SECONDS)
            status = response.status_code
        if body is None:
            raise misbehaved(registry, "gives a token of more than 64 KiB")
        if status != 200:
            what = f"a token for {self._endpoint.repository}"
            raise of_status(
                registry, what, status, body,
                sent=self.shown, note=self.note, secrets=self.secrets,
            )  # fmt: skip
        try:
            # Not strict: some write their numbers as text.
            return msgspec.json.decode(body, type=_Answer, strict=False)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise misbehaved(registry, "gives a token that can't be read") from None
