"""Logins for registries, as docker and podman keep them. Read when a registry asks for one.

In this order, and the first file that has a login for the registry decides:
$REGISTRY_AUTH_FILE, docker's config.json ($DOCKER_CONFIG, else ~/.docker), then podman's auth.json
($XDG_RUNTIME_DIR/containers, else ~/.config/containers).
"""

from __future__ import annotations

import base64
import binascii
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from agentkernel.errors import InvalidInputError
from agentkernel.images.oci.registry.helpers import IDENTITY, HelperFailed, ask_helper

_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Credentials:
    """A name with a password, a token for getting tokens (`identity`), or a token itself."""

    username: str = ""
    password: str = field(default="", repr=False)
    identity: str = field(default="", repr=False)
    token: str = field(default="", repr=False)

    @property
    def basic(self) -> str:
        pair = f"{self.username}:{self.password}".encode()
        return base64.b64encode(pair).decode()

    @property
    def secrets(self) -> frozenset[str]:
        """What may stand in no message."""
        known = {self.password, self.identity, self.token}
        if self.password:
            known.add(self.basic)
        return frozenset(known - {""})


@dataclass(frozen=True)
class Login:
    """What was found; `note` says why a login that should be there is not."""

    credentials: Credentials | None = None
    note: str = ""


class _Entry(msgspec.Struct):
    auth: str | None = None
    username: str | None = None
    password: str | None = None
    identitytoken: str | None = None
    registrytoken: str | None = None


class _File(msgspec.Struct, rename="camel"):
    auths: dict[str, _Entry | None] | None = None
    cred_helpers: dict[str, str] | None = None
    creds_store: str | None = None


def find_login(
    names: Sequence[str], repository: str, environment: Mapping[str, str] | None = None
) -> Login:
    """For a registry that is known by `names`. Blocks: files are read, programs asked.

    Raises InvalidInputError for a file that can't be read: without what stands in it the wrong
    thing might be pulled, or nothing.
    """
    environment = os.environ if environment is None else environment
    note = ""
    for path in files(environment):
        file = _read(path)
        if file is None:
            continue
        if found := _stored(file, names, repository):
            return Login(found)
        named = file.cred_helpers or {}
        helper = next((named[name] for name in names if name in named), file.creds_store)
        if not helper:
            continue
        try:
            kept = ask_helper(helper, names[0])
        except HelperFailed as error:
            note = note or f"the credential helper of {path} failed: {error}"
            continue
        if kept is None or not kept.secret:
            continue
        if kept.username == IDENTITY:
            return Login(Credentials(identity=kept.secret))
        return Login(Credentials(kept.username, kept.secret))
    return Login(note=note)


def files(environment: Mapping[str, str]) -> Iterator[str]:
    """Those that may be there."""
    home = environment.get("HOME") or os.path.expanduser("~")
    if named := environment.get("REGISTRY_AUTH_FILE"):
        yield named
    docker = environment.get("DOCKER_CONFIG") or os.path.join(home, ".docker")
    yield os.path.join(docker, "config.json")
    if runtime := environment.get("XDG_RUNTIME_DIR"):
        yield os.path.join(runtime, "containers", "auth.json")
    config = environment.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    yield os.path.join(config, "containers", "auth.json")


def _read(path: str) -> _File | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(path, str(error.strerror)) from None
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise _unreadable(path, "it is no file")
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise _unreadable(path, f"it has more than {_MOST_BYTES >> 20} MiB")
    try:
        return msgspec.json.decode(content, type=_File)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # Not its own words: they may quote the file.
        raise _unreadable(path, "it is not the JSON that docker and podman write") from None


def _unreadable(path: str, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"logins can't be read from {path}: {why}",
        hint="mend or remove the file; docker login and podman login write it",
        file=path,
    )


def _stored(file: _File, names: Sequence[str], repository: str) -> Credentials | None:
    """The most specific: podman also keeps logins for a part of a registry."""
    entries = {_plain_name(key): entry for key, entry in (file.auths or {}).items() if entry}
    parts = repository.split("/")
    for name in names:
        for count in range(len(parts), -1, -1):
            entry = entries.get("/".join([_plain_name(name), *parts[:count]]))
            if entry and (found := _credentials(entry)):
                return found
    return None


def _plain_name(key: str) -> str:
    """`https://HOST/v1/` is HOST: docker has written it in all these ways."""
    name = key.removeprefix("https://").removeprefix("http://").rstrip("/")
    for version in ("/v1", "/v2"):
        name = name.removesuffix(version)
    return name.lower()


def _credentials(entry: _Entry) -> Credentials | None:
    """None: an empty entry, which says that a helper has the login."""
    username, password = entry.username or "", entry.password or ""
    if entry.auth:
        try:
            pair = base64.b64decode(entry.auth, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            return None
        username, _, password = pair.partition(":")
        password = password.rstrip("\0")
    if entry.identitytoken:
        return Credentials(username, identity=entry.identitytoken)
    if entry.registrytoken:
        return Credentials(token=entry.registrytoken)
    return Credentials(username, password) if username and password else None
