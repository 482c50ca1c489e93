"""RubyGems' sources, and the mirrors that Bundler was told of."""

from __future__ import annotations

import re

from agentkernel.network.registries.addresses import UnusableAddress, parse
from agentkernel.network.registries.credentials import of_address
from agentkernel.network.registries.known import GEMS, defaults, with_company
from agentkernel.network.registries.model import Registry
from agentkernel.network.registries.places import Places

MAX_SOURCES = 32
MIRRORS = ("BUNDLE_MIRROR__ALL", "BUNDLE_MIRROR__HTTPS://RUBYGEMS__ORG")
_ADDRESS = re.compile(r"https?://[^\s\"',\]]{1,2000}")


def read_gems(places: Places) -> list[Registry]:
    said: list[tuple[str, str, str]] = []
    for path in ("/etc/gemrc", f"{places.home}/.gemrc", f"{places.config}/gem/gemrc"):
        sources = _gemrc(places.text(path))
        if sources:
            said = [(address, "index", path) for address in sources]
    path = f"{places.home}/.bundle/config"
    for line in places.text(path).splitlines():
        key, _, value = line.strip().rpartition(": ")
        if key.upper().startswith(MIRRORS):
            said += [(address, "mirror", path) for address in _ADDRESS.findall(value)]
    for name, value in places.environment.items():
        if name.startswith(MIRRORS):
            said += [(address, "mirror", name) for address in _ADDRESS.findall(value)]
    registries = []
    for text, role, source in said[:MAX_SOURCES]:
        try:
            address = parse(text)
        except UnusableAddress as error:
            places.note(f"An address in {source} (gems) {error}: it is left out.")
            continue
        registries.append(
            Registry(
                ecosystem="gems",
                url=address.url,
                host=address.host,
                port=address.port,
                source=source,
                role=role,
                credential=of_address(places, "gems", address, source),
            )
        )
    if not said:
        registries = defaults("gems", GEMS)
    return with_company("gems", GEMS, registries)


def _gemrc(text: str) -> list[str]:
    """The list below `:sources:`, in either of YAML's forms."""
    found: list[str] = []
    inside = False
    for line in text.splitlines():
        bare = line.strip()
        if bare.startswith((":sources:", "sources:")):
            inside = True
        elif inside and bare and not bare.startswith(("-", "#", "]", "http", '"', "'")):
            inside = False
        if inside and not bare.startswith("#"):
            found += _ADDRESS.findall(bare)
    return found
