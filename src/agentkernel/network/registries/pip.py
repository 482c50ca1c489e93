"""pip's configuration, and uv's: indexes and places of wheels.

pip: the machine's, the user's and the environment's files, each overriding those before it, then
variables. uv does not read them: it has files and variables of its own, whose roles here begin with
"uv-". Where only one of the two is configured, its answer is both's.
"""

from __future__ import annotations

import os
from typing import Any

from agentkernel.network.registries.addresses import UnusableAddress, canonical_host, parse
from agentkernel.network.registries.credentials import NetrcEntry, of_address
from agentkernel.network.registries.known import PIP, defaults, with_company
from agentkernel.network.registries.model import Registry
from agentkernel.network.registries.places import Places

KEYS = {
    "index-url": "index",
    "pypi-url": "index",
    "extra-index-url": "extra",
    "find-links": "links",
    "trusted-host": "trusted",
}
SECTIONS = ("global", "download", "wheel", "install")
MAX_VALUES = 32

Said = dict[str, tuple[list[str], str]]
"""By role: values, and the file or variable they come from."""


def read_pip(
    places: Places, entries: tuple[NetrcEntry, ...]
) -> tuple[list[Registry], dict[str, str]]:
    """The registries, and `trusted-host`: hosts whose certificates pip does not verify."""
    said = _pip_says(places)
    said |= {f"uv-{role}": values for role, values in _uv_says(places).items()}
    registries = []
    for role, (texts, source) in said.items():
        for text in texts[:MAX_VALUES] if role != "trusted" else ():
            if "://" not in text or text.startswith("file:"):
                continue  # a directory of this machine
            try:
                address = parse(text)
            except UnusableAddress as error:
                places.note(f"An address in {source} (pip) {error}: it is left out.")
                continue
            credential = of_address(places, "pip", address, source, entries)
            registries.append(
                Registry(
                    ecosystem="pip",
                    url=address.url,
                    host=address.host,
                    port=address.port,
                    source=source,
                    role=role,
                    credential=credential,
                )
            )
    if "index" not in said and "uv-index" not in said:
        registries = defaults("pip", PIP) + registries
    return with_company("pip", PIP, registries), _settings(said)


def _settings(said: Said) -> dict[str, str]:
    hosts = []
    for text in said.get("trusted", ([], ""))[0][:MAX_VALUES]:
        name, colon, port = text.rpartition(":")
        if not (colon and port.isascii() and port.isdigit()):
            name, colon, port = text, "", ""
        try:
            hosts.append(canonical_host(name) + colon + port)
        except UnusableAddress:
            continue
    return {"trusted-host": " ".join(hosts)} if hosts else {}


def _pip_says(places: Places) -> Said:
    said: Said = {}
    for path in _files(places):
        sections = ini_sections(places.text(path))
        for section in SECTIONS:
            for key, value in sections.get(section, {}).items():
                role = KEYS.get(key.removeprefix("--").replace("_", "-").lower())
                if role is not None and value.split():
                    said[role] = (value.split(), path)
    for key, role in KEYS.items():
        name = "PIP_" + key.replace("-", "_").upper()
        if places.variable(name):
            said[role] = (places.variable(name).split(), name)
    return said


def _files(places: Places) -> list[str]:
    named = places.variable("PIP_CONFIG_FILE")
    if named == os.devnull:
        return []
    shared = places.variable("XDG_CONFIG_DIRS") or "/etc/xdg"
    files = [f"{item}/pip/pip.conf" for item in shared.split(":")[:8] if item.startswith("/")]
    files += [
        "/etc/pip.conf",
        f"{places.home}/.pip/pip.conf",
        f"{places.config}/pip/pip.conf",
    ]
    environment = places.variable("VIRTUAL_ENV")
    if environment.startswith("/"):
        files.append(f"{environment}/pip.conf")
    return [*files, named] if named.startswith("/") else files


def ini_sections(text: str) -> dict[str, dict[str, str]]:
    """As Python's configparser reads it, without its patterns: some lines cost those very much."""
    sections: dict[str, dict[str, str]] = {}
    current: dict[str, str] | None = None
    key = ""
    for line in text.splitlines():
        bare = line.strip()
        if not bare or bare.startswith(("#", ";")):
            continue
        if line[0].isspace() and current is not None and key:
            current[key] += "\n" + bare
        elif bare.startswith("[") and bare.endswith("]"):
            current = sections.setdefault(bare[1:-1].strip().lower(), {})
            key = ""
        elif current is not None:
            places = [place for place in (bare.find("="), bare.find(":")) if place > 0]
            if not places:
                key = ""
                continue
            key = bare[: min(places)].strip().lower()
            current[key] = bare[min(places) + 1 :].strip()
    return sections


def _uv_says(places: Places) -> Said:
    said: Said = {}
    named = places.variable("UV_CONFIG_FILE")
    files = [named] if named.startswith("/") else ["/etc/uv/uv.toml", f"{places.config}/uv/uv.toml"]
    if places.variable("UV_NO_CONFIG") not in ("", "0", "false"):
        files = []
    for path in files:
        said |= _uv_file(places.toml(path), path)
    for role, names in {
        "index": ("UV_INDEX_URL", "UV_DEFAULT_INDEX"),
        "extra": ("UV_EXTRA_INDEX_URL", "UV_INDEX"),
        "links": ("UV_FIND_LINKS",),
    }.items():
        for name in names:
            words = places.variable(name).replace(",", " ").split()
            if words:
                said[role] = ([_unnamed(word) for word in words], name)
    return said


def _uv_file(content: dict[str, Any], path: str) -> Said:
    said: Said = {}
    tables = [item for item in (content.get("pip"), content) if isinstance(item, dict)]
    for table in tables:
        for key, role in (("index-url", "index"), ("extra-index-url", "extra")):
            values = [table.get(key)] if isinstance(table.get(key), str) else table.get(key)
            if isinstance(values, list) and values:
                said[role] = ([_unnamed(str(value)) for value in values], path)
    listed = content.get("index")
    for item in listed if isinstance(listed, list) else []:
        if isinstance(item, dict) and isinstance(item.get("url"), str):
            role = "index" if item.get("default") is True else "extra"
            before = said.get(role, ([], path))[0] if role == "extra" else []
            said[role] = ([*before, item["url"]], path)
    return said


def _unnamed(word: str) -> str:
    """uv's `name=address`, without the name."""
    name, equals, address = word.partition("=")
    return address if equals and "://" in address and "://" not in name else word
