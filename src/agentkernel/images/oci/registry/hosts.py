"""Where an image can be fetched, and addresses as registries write them.

Plain HTTP is for this machine's loopback and for hosts that the user's config names, for nobody
else: whoever sits on the way could take a login, or give another image for a tag.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urljoin, urlsplit

from agentkernel.errors import InvalidInputError, NotFoundError
from agentkernel.images.oci.reference import DEFAULT_REGISTRY, LOCAL, Reference
from agentkernel.images.oci.registry.settings import RegistrySettings
from agentkernel.network.policy.names import canonical_host

DOCKER_HUB = "registry-1.docker.io"
_DOCKER_NAMES = (DEFAULT_REGISTRY, "index.docker.io", DOCKER_HUB)
# Under which docker and others keep the login for Docker Hub; the first is what helpers know.
_DOCKER_LOGINS = ("https://index.docker.io/v1/", *_DOCKER_NAMES)
_PORTS = {"http": 80, "https": 443}
_PRINTABLE = re.compile(r"[\x21-\x7e]{1,16384}\Z")


class Origin(NamedTuple):
    """Who is asked. Credentials are of one origin and go to no other."""

    scheme: str
    host: str
    port: int

    @property
    def authority(self) -> str:
        """As a Host header has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}"


class Place(NamedTuple):
    """An address: who is asked, for what. `target` may hold a signature, so no message has it."""

    origin: Origin
    target: str


@dataclass(frozen=True)
class Endpoint:
    """One place of an image. `registry` is what people call it; `logins` are the keys of its
    credentials; `maybe_plain`: it is on the loopback, where TLS is tried first and not missed;
    `configured`: the user's config names it."""

    registry: str
    origin: Origin
    repository: str
    logins: tuple[str, ...]
    maybe_plain: bool = False
    configured: bool = False


def endpoints(reference: Reference, settings: RegistrySettings) -> list[Endpoint]:
    """In the order in which they are to be tried. Raises InvalidInputError, NotFoundError."""
    registry = reference.registry.lower()
    if registry == LOCAL:
        raise NotFoundError(
            f"there is no image {reference.familiar}: names that begin with {LOCAL}/ are those of"
            " images that were built or loaded here",
            hint="build or load it; a registry of this machine is written with its port",
        )
    found = [
        _mirror(address, reference, settings)
        for address in settings.mirrors.get(registry, ())
    ]  # fmt: skip
    if registry in _DOCKER_NAMES:
        origin = Origin("https", DOCKER_HUB, 443)
        found.append(Endpoint(DEFAULT_REGISTRY, origin, reference.repository, _DOCKER_LOGINS))
        return found
    plain = _is_insecure(registry, settings)
    try:
        origin = parse_place(f"{'http' if plain else 'https'}://{registry}/").origin
    except ValueError as error:
        raise InvalidInputError(
            f"{registry[:200]!r} is no registry: {error}", hint="write HOST or HOST:PORT"
        ) from None
    loopback = is_loopback(origin.host) and not plain
    if loopback and ":" not in registry.rpartition("]")[2]:
        origin = Origin("http", origin.host, 80)
        loopback = False
    found.append(
        Endpoint(registry, origin, reference.repository, (registry,), loopback, configured=plain)
    )
    return found


def _mirror(address: str, reference: Reference, settings: RegistrySettings) -> Endpoint:
    """What its address has behind the host stands before the name of the image."""
    try:
        place = parse_place(address)
    except ValueError as error:
        raise InvalidInputError(
            f"the mirror {address} of images.mirrors is none: {error}", hint="write https://HOST"
        ) from None
    origin = place.origin
    allowed = is_loopback(origin.host) or _is_insecure(origin.authority, settings)
    if origin.scheme != "https" and not allowed:
        raise InvalidInputError(
            f"the mirror {address} is plain HTTP beyond this machine",
            hint=f'give it TLS, or add "{origin.authority}" to images.insecure in config.toml',
        )
    prefix = place.target.strip("/")
    repository = f"{prefix}/{reference.repository}" if prefix else reference.repository
    return Endpoint(origin.authority, origin, repository, (origin.authority,), configured=True)


def _is_insecure(authority: str, settings: RegistrySettings) -> bool:
    return authority in settings.insecure or authority.removesuffix(":80") in settings.insecure


def is_loopback(host: str) -> bool:
    """By its name alone: nobody is asked what it means."""
    if host == LOCAL or host.endswith(f".{LOCAL}"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_place(text: str) -> Place:
    """An address of a registry, a mirror, a realm. Raises ValueError with words that say why it is
    none; they hold nothing of it, since it may hold a signature."""
    if not _PRINTABLE.match(text):
        raise ValueError("the address has characters that none may have, or too many")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError("the address can't be read") from None
    if parts.scheme not in _PORTS:
        raise ValueError("the address is neither http nor https")
    if "@" in parts.netloc:
        raise ValueError("the address has a login in it")
    if "\\" in text or not parts.hostname or port == 0:
        raise ValueError("the address has no proper host and port")
    try:
        host = canonical_host(parts.hostname)
    except InvalidInputError:
        raise ValueError("the address has a host that is no name") from None
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Place(Origin(parts.scheme, host, port or _PORTS[parts.scheme]), target)


def follow(base: Place, location: str) -> Place:
    """Where a redirect leads. Raises ValueError."""
    if not _PRINTABLE.match(location):
        raise ValueError("the address has characters that none may have, or too many")
    try:
        joined = urljoin(f"{base.origin}{base.target}", location)
    except ValueError:
        raise ValueError("the address can't be read") from None
    return parse_place(joined)
