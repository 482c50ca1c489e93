"""What clients prove themselves with: which part is the secret, and what netrc files say.

A secret is sent over TLS only, so an index that is asked in plain text gets none.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

from agentkernel.network.registries.addresses import Address, UnusableAddress, canonical_host, parse
from agentkernel.network.registries.model import Credential, Ecosystem
from agentkernel.network.registries.places import Places

# Constants that stand where a password would, when the user's name is a token.
CONSTANTS = ("", "x", "x-oauth-basic", "x-token-auth", "none", "unused")
MAX_ENTRIES = 1000


@dataclass(frozen=True)
class NetrcEntry:
    """`machine` is a host, or an address as apt's files may have it; "" is the default entry."""

    machine: str
    login: str = field(repr=False)
    password: str = field(repr=False)
    source: str


def basic(
    places: Places, ecosystem: Ecosystem, address: Address, name: str, password: str, source: str
) -> Credential | None:
    """A user's name and password. Either may be the secret: a token often comes as a name."""
    if not name and not password:
        return None
    if address.scheme != "https":
        places.note(
            f"The password in {source} is not used: {address.host} is asked in plain text, and"
            " secrets are sent over TLS only."
        )
        return None
    token = password in CONSTANTS
    return Credential(
        reference=_reference(ecosystem, address, "" if token else name),
        host=address.host,
        port=address.port,
        kind="basic",
        source=source,
        value=name if token else password,
        username="" if token else name,
        password=password if token else "",
    )


def bearer(
    places: Places, ecosystem: Ecosystem, address: Address, token: str, source: str
) -> Credential | None:
    if not token:
        return None
    if address.scheme != "https":
        places.note(
            f"The token in {source} is not used: {address.host} is asked in plain text, and"
            " secrets are sent over TLS only."
        )
        return None
    return Credential(
        reference=_reference(ecosystem, address, ""),
        host=address.host,
        port=address.port,
        kind="bearer",
        source=source,
        value=token,
    )


def of_address(
    places: Places,
    ecosystem: Ecosystem,
    address: Address,
    source: str,
    entries: tuple[NetrcEntry, ...] = (),
) -> Credential | None:
    """What stands in the address itself, else in one of the machine's netrc files."""
    own = basic(places, ecosystem, address, address.username, address.password, source)
    if own is not None or address.username or address.password or address.scheme != "https":
        return own
    for entry in entries:
        if _is_for(entry, address):
            return basic(places, ecosystem, address, entry.login, entry.password, entry.source)
    return None


def netrc(places: Places) -> tuple[NetrcEntry, ...]:
    """The user's netrc file."""
    path = places.variable("NETRC") or places.first(
        f"{places.home}/.netrc", f"{places.home}/_netrc"
    )
    return netrc_entries(places, path) if path else ()


def netrc_entries(places: Places, path: str) -> tuple[NetrcEntry, ...]:
    found = []
    try:
        for words in _machines(places.text(path)):
            values = dict(zip(words[1::2], words[2::2], strict=False))
            login = values.get("login", values.get("user", ""))
            found.append(NetrcEntry(words[0], login, values.get("password", ""), path))
            if len(found) >= MAX_ENTRIES:
                break
    except ValueError:
        places.note(f"{path} cannot be understood, so it counts as empty.")
        return ()
    return tuple(found)


def _machines(text: str) -> Iterator[list[str]]:
    """One list an entry: the machine's name, then words in pairs."""
    entry: list[str] = []
    macro = False
    for line in text.splitlines():
        if macro and line.strip():
            continue
        macro = False
        words = shlex.split(line, comments=False) if '"' in line else line.split()
        for place, word in enumerate(words):
            if word.startswith("#") and place == 0:
                break
            expected = not entry or len(entry) % 2 == 1  # a keyword, not the value of one
            if expected and word in ("machine", "default", "macdef"):
                if entry and entry[0] != "machine":
                    yield entry
                macro = word == "macdef"
                entry = [""] if word == "default" else ["machine"] if word == "machine" else []
                if macro:
                    break
            elif entry == ["machine"]:
                entry = [word]
            elif entry:
                entry.append(word)
    if entry and entry[0] != "machine":
        yield entry


def _is_for(entry: NetrcEntry, address: Address) -> bool:
    """apt's files may say a scheme, a port and a path; others a host."""
    if not entry.machine:
        return False  # for any host: not what this machine says of this one
    text = entry.machine
    try:
        if "://" not in text and "/" not in text and ":" not in text:
            return canonical_host(text) == address.host
        wanted = parse(text if "://" in text else f"https://{text}")
    except UnusableAddress:
        return False
    path = wanted.path.rstrip("/")
    return (wanted.scheme, wanted.host, wanted.port) == (
        address.scheme,
        address.host,
        address.port,
    ) and (address.path + "/").startswith(path + "/")


def _reference(ecosystem: str, address: Address, username: str) -> str:
    """The same for the same use on this machine, whatever the value is now."""
    place = f"{address.host}:{address.port}{address.path}\n{username}"
    return f"registry-{ecosystem}-{hashlib.sha256(place.encode()).hexdigest()[:12]}"
