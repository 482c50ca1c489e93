"""Go's module proxies and checksum database: `go env -w`'s file, then variables."""

from __future__ import annotations

from agentkernel.network.registries.addresses import UnusableAddress, parse
from agentkernel.network.registries.credentials import NetrcEntry, of_address
from agentkernel.network.registries.known import GO_PROXY, GO_SUMS, default
from agentkernel.network.registries.model import Registry
from agentkernel.network.registries.places import Places

NAMES = ("GOPROXY", "GOSUMDB", "GONOSUMDB", "GONOPROXY", "GOPRIVATE", "GOINSECURE")
WORDS = ("direct", "off")
MAX_PROXIES = 16


def read_go(
    places: Places, entries: tuple[NetrcEntry, ...]
) -> tuple[list[Registry], dict[str, str]]:
    """The registries, and the variables that the machine sets, GOPROXY without credentials."""
    said = _said(places)
    settings = {name: value for name, (value, _) in said.items()}
    proxies, source = said.get("GOPROXY", ("", ""))
    registries: list[Registry] = []
    kept = ""
    for text, separator in split_proxies(proxies):
        if text in WORDS:
            kept += text + separator
            continue
        registry = _registry(places, entries, text, "index", source)
        if registry is not None:
            registries.append(registry)
            kept += registry.url + separator
    if proxies:
        settings["GOPROXY"] = kept.rstrip(",|") or "off"
    else:
        registries.append(default("go", GO_PROXY))
    return registries + _checksums(places, said, settings), settings


def _said(places: Places) -> dict[str, tuple[str, str]]:
    said: dict[str, tuple[str, str]] = {}
    path = places.variable("GOENV") or f"{places.config}/go/env"
    if path != "off":
        for line in places.text(path).splitlines():
            name, equals, value = line.strip().partition("=")
            if equals and name in NAMES and value.strip():
                said[name] = (value.strip(), path)
    for name in NAMES:
        if places.variable(name):
            said[name] = (places.variable(name), name)
    return {
        name: (value, source)
        for name, (value, source) in said.items()
        if value.isprintable() and len(value) <= 4096
    }


def split_proxies(proxies: str) -> list[tuple[str, str]]:
    """Addresses, each with the separator behind it: after a comma only "not found" goes on."""
    found: list[tuple[str, str]] = []
    rest = proxies
    while rest and len(found) < MAX_PROXIES:
        ends = [place for place in (rest.find(","), rest.find("|")) if place >= 0]
        end = min(ends) if ends else len(rest)
        if rest[:end].strip():
            found.append((rest[:end].strip(), rest[end : end + 1]))
        rest = rest[end + 1 :]
    return found


def _registry(
    places: Places, entries: tuple[NetrcEntry, ...], text: str, role: str, source: str
) -> Registry | None:
    if text.startswith("file:"):
        return None
    try:
        address = parse(text)
    except UnusableAddress as error:
        places.note(f"An address in {source} (go) {error}: it is left out.")
        return None
    return Registry(
        ecosystem="go",
        url=address.url,
        host=address.host,
        port=address.port,
        source=source,
        role=role,
        credential=of_address(places, "go", address, source, entries),
    )


def _checksums(
    places: Places, said: dict[str, tuple[str, str]], settings: dict[str, str]
) -> list[Registry]:
    """GOSUMDB is "off", a name, or a name (with its key) and an address."""
    value, source = said.get("GOSUMDB", ("", ""))
    words = value.split()
    if value == "off":
        return []
    if not words or len(words) == 1:
        host = words[0].partition("+")[0] if words else GO_SUMS
        if host in (GO_SUMS, "sum.golang.google.cn"):
            # The second name is the first's database, asked at another host.
            return [default("go", host)]
        words = [value, f"https://{host}"]
    found = _registry(places, (), words[1], "checksums", source)
    if found is None:
        return []
    if len(value.split()) > 1:
        settings["GOSUMDB"] = f"{words[0]} {found.url}"
    return [found]
