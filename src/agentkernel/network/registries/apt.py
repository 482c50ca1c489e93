"""apt's sources: one-line and deb822 files, and auth.conf.

What is given to a sandbox is written anew from the parts that are understood; sources on discs, in
directories and switched-off ones are left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from agentkernel.network.registries.addresses import Address, UnusableAddress, parse
from agentkernel.network.registries.credentials import NetrcEntry, netrc_entries, of_address
from agentkernel.network.registries.known import APT, default
from agentkernel.network.registries.model import Registry
from agentkernel.network.registries.places import Places

DIRECTORY = "/etc/apt"
FIELDS = (
    *("Types", "URIs", "Suites", "Components", "Architectures", "Languages", "Targets"),
    *("Signed-By", "Trusted", "Check-Valid-Until", "Valid-Until-Max", "By-Hash", "PDiffs"),
)
LOCAL = ("cdrom:", "file:", "copy:", "rsh:", "ssh:")
MAX_SOURCES = 128
_FILE = re.compile(r"[A-Za-z0-9_.-]+\Z")
_LINE = re.compile(r"(deb|deb-src)\s+(\[[^\]\n]{0,1000}\]\s+)?(\S+)\s+(\S[^#\n]{0,1000})")
_NO_DATES = re.compile(
    r'^\s*Acquire::Check-Valid-Until\s+"?(false|no|0)"?\s*;', re.MULTILINE | re.I
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True)
class _Source:
    """One address of a file, and the text of the whole entry, complete with clean addresses."""

    addresses: tuple[Address, ...]
    text: str


def read_apt(places: Places) -> tuple[list[Registry], dict[str, str]]:
    """The registries, and the files to give: by path, for a system of the same distribution."""
    entries = tuple(
        entry
        for path in (
            f"{DIRECTORY}/auth.conf",
            *places.listing(f"{DIRECTORY}/auth.conf.d", (".conf",)),
        )
        for entry in netrc_entries(places, path)
    )
    registries: list[Registry] = []
    files: dict[str, str] = {}
    for path in _files(places):
        text = _CONTROL.sub("", places.text(path))
        read = _stanzas if path.endswith(".sources") else _lines
        sources = read(places, path, text)[:MAX_SOURCES]
        for source in sources:
            registries += [
                _registry(places, entries, address, path) for address in source.addresses
            ]
        if sources:
            gap = "\n" if path.endswith(".sources") else ""
            files[path] = gap.join(source.text for source in sources)
    if any(_NO_DATES.search(places.text(path)) for path in _configuration(places)):
        files["Check-Valid-Until"] = "false"
    public = {item.host for item in registries} <= set(APT)
    if public:  # no mirror: images of other systems than the machine's find theirs too
        there = {(item.host, item.port) for item in registries}
        registries += [
            default("apt", host, scheme=scheme)
            for host in APT
            for scheme, port in (("http", 80), ("https", 443))
            if (host, port) not in there
        ]
    return registries, files


def _files(places: Places) -> list[str]:
    listed = places.listing(f"{DIRECTORY}/sources.list.d", (".list", ".sources"))
    # apt passes over other names: editors and package managers leave copies there.
    named = [path for path in listed if _FILE.match(path.rpartition("/")[2])]
    return [f"{DIRECTORY}/sources.list", *named]


def _configuration(places: Places) -> list[str]:
    return [f"{DIRECTORY}/apt.conf", *places.listing(f"{DIRECTORY}/apt.conf.d", ("",))]


def _registry(
    places: Places, entries: tuple[NetrcEntry, ...], address: Address, path: str
) -> Registry:
    return Registry(
        ecosystem="apt",
        url=address.url,
        host=address.host,
        port=address.port,
        source=path,
        credential=of_address(places, "apt", address, path, entries),
    )


def _lines(places: Places, path: str, text: str) -> list[_Source]:
    found = []
    for line in text.splitlines():
        match = _LINE.match(line.strip()[:4096])
        if match is None:
            continue
        address = _address(places, path, match[3])
        if address is not None:
            options = (match[2] or "").strip()
            words = [match[1], *([options] if options else []), address.url, match[4].strip()]
            found.append(_Source((address,), " ".join(words) + "\n"))
    return found


def _stanzas(places: Places, path: str, text: str) -> list[_Source]:
    found = []
    for stanza in _split(text):
        fields = _fields(stanza)
        if fields.get("enabled", "yes").strip().lower() in ("no", "false", "0", "off", "disable"):
            continue
        addresses = [_address(places, path, uri) for uri in fields.get("uris", "").split()[:16]]
        usable = tuple(item for item in addresses if item is not None)
        if not usable or not fields.get("types", "").split():
            continue
        fields["uris"] = " ".join(item.url for item in usable)
        lines = [f"{name}: {fields[name.lower()]}\n" for name in FIELDS if fields.get(name.lower())]
        found.append(_Source(usable, "".join(lines)))
    return found


def _split(text: str) -> list[list[str]]:
    stanzas: list[list[str]] = [[]]
    for line in text.splitlines():
        if not line.strip():
            stanzas.append([])
        elif not line.startswith("#"):
            stanzas[-1].append(line)
    return [stanza for stanza in stanzas if stanza]


def _fields(stanza: list[str]) -> dict[str, str]:
    """By lower-case name; a continued value keeps its lines, as a key within Signed-By needs."""
    fields: dict[str, str] = {}
    name = ""
    for line in stanza:
        if line[0] in " \t":
            if name:
                fields[name] += f"\n {line.strip()}"
            continue
        key, colon, value = line.partition(":")
        name = key.strip().lower() if colon else ""
        if name:
            fields[name] = value.strip()
    return fields


def _address(places: Places, path: str, uri: str) -> Address | None:
    if uri.lower().startswith(LOCAL):
        return None
    try:
        address = parse(uri)
    except UnusableAddress as error:
        places.note(f"An address in {path} (apt) {error}: it is left out.")
        return None
    if address.prefix:
        places.note(
            f"A {address.prefix} address in {path} (apt) is left out: only http and https are"
        )
        return None
    return address
