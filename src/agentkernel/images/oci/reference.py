"""Names of images as people write them: `debian`, `ghcr.io/owner/app:1.2`, `app@sha256:…`.

A name without a registry is of Docker Hub, as everywhere; one without tag or digest is `latest`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from agentkernel.errors import InvalidInputError

DEFAULT_REGISTRY = "docker.io"
LOCAL = "localhost"
_MAX_NAME = 255
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_PART}(?:/{_PART})*\Z")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}\Z")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
_REGISTRY = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*"
    r"|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?\Z"
)


@dataclass(frozen=True)
class Reference:
    """`registry/repository[:tag][@digest]`, complete."""

    registry: str
    repository: str
    tag: str = ""
    digest: str = ""

    def __str__(self) -> str:
        return self.name + (f"@{self.digest}" if self.digest else "")

    @property
    def name(self) -> str:
        """Without the digest: what a stored image is found by."""
        return f"{self.registry}/{self.repository}" + (f":{self.tag}" if self.tag else "")

    @property
    def familiar(self) -> str:
        """As people write it: no `docker.io/library/`."""
        text = str(self)
        if self.registry == DEFAULT_REGISTRY:
            text = text.removeprefix(f"{DEFAULT_REGISTRY}/").removeprefix("library/")
        return text

    def pinned(self, digest: str) -> Reference:
        return replace(self, digest=digest)


def parse_reference(text: str) -> Reference:
    """Raises InvalidInputError."""
    rest, at, digest = text.partition("@")
    if at and not _DIGEST.match(digest):
        raise _invalid(text, "after @ comes sha256: and 64 of 0-9a-f")
    first, slash, remainder = rest.partition("/")
    if slash and ("." in first or ":" in first or first == LOCAL or first != first.lower()):
        registry, rest = first, remainder
        if not _REGISTRY.match(registry):
            raise _invalid(text, f"{registry!r} is no name of a registry")
    else:
        registry = DEFAULT_REGISTRY
    repository, colon, tag = rest.partition(":")
    if registry == DEFAULT_REGISTRY and "/" not in repository:
        repository = f"library/{repository}"
    if not _REPOSITORY.match(repository) or len(repository) > _MAX_NAME:
        raise _invalid(text, "a name has lower-case letters, figures and . _ - / between them")
    if colon and not _TAG.match(tag):
        raise _invalid(text, "a tag has letters, figures and . _ -, at most 128")
    return Reference(registry, repository, tag or ("" if digest else "latest"), digest)


def is_digest(text: str) -> bool:
    return bool(_DIGEST.match(text))


def _invalid(text: str, rule: str) -> InvalidInputError:
    return InvalidInputError(
        f"{text[:200]!r} is no name of an image: {rule}",
        hint="write NAME[:TAG], REGISTRY/NAME[:TAG] or NAME@sha256:DIGEST; a directory begins with"
        " / or ./",
    )
