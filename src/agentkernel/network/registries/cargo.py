"""cargo's configuration: what stands in for crates.io, registries by name, their tokens."""

from __future__ import annotations

import re
from typing import Any

from agentkernel.network.registries.addresses import UnusableAddress, parse
from agentkernel.network.registries.credentials import NetrcEntry, bearer, of_address
from agentkernel.network.registries.known import CARGO, defaults, with_company
from agentkernel.network.registries.model import Credential, Registry
from agentkernel.network.registries.places import Places

CRATES_IO = "crates-io"
MAX_CHAIN = 8
MAX_REGISTRIES = 32
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_VARIABLE = re.compile(r"CARGO_REGISTRIES_([A-Z0-9_]{1,64})_(INDEX|TOKEN)\Z")

Table = dict[str, Any]


def read_cargo(places: Places, entries: tuple[NetrcEntry, ...]) -> list[Registry]:
    home = places.variable("CARGO_HOME")
    home = home if home.startswith("/") else f"{places.home}/.cargo"
    sources: dict[str, tuple[Table, str]] = {}
    indexes: dict[str, tuple[str, str]] = {}
    tokens: dict[str, tuple[str, str]] = {}
    for directory in (home, "/.cargo"):  # the user's counts least
        path = places.first(f"{directory}/config", f"{directory}/config.toml")
        content = places.toml(path)
        sources |= {name: (item, path) for name, item in _tables(content, "source")}
        for name, item in _tables(content, "registries"):
            if isinstance(item.get("index"), str):
                indexes[name] = (item["index"], path)
    path = places.first(f"{home}/credentials", f"{home}/credentials.toml")
    for name, item in _tables(places.toml(path), "registries"):
        if isinstance(item.get("token"), str):
            tokens[name] = (item["token"], path)
    _add_variables(places, indexes, tokens)

    registries: list[Registry] = []
    replacement, replaced = _replacement(sources)
    for url, role, name, source in [
        *([(replacement[0], "index", replacement[1], replacement[2])] if replacement else []),
        *((url, "registry", name, source) for name, (url, source) in indexes.items()),
    ][:MAX_REGISTRIES]:
        try:
            address = parse(url)
        except UnusableAddress as error:
            places.note(f"An address in {source} (cargo) {error}: it is left out.")
            continue
        if address.prefix != "sparse+":
            places.note(
                f"The index in {source} (cargo) is a git repository, which takes more than GET:"
                " it works with a rule of its own only. Sparse indexes do."
            )
        credential: Credential | None = None
        if name in tokens:
            credential = bearer(places, "cargo", address, *tokens[name])
        registries.append(
            Registry(
                ecosystem="cargo",
                url=address.url,
                host=address.host,
                port=address.port,
                source=source,
                role=role,
                name=name,
                credential=credential or of_address(places, "cargo", address, source, entries),
            )
        )
    if not replaced:
        registries = defaults("cargo", CARGO) + registries
    return with_company("cargo", CARGO, registries)


def _tables(content: Table, key: str) -> list[tuple[str, Table]]:
    table = content.get(key)
    if not isinstance(table, dict):
        return []
    return [
        (name, item) for name, item in table.items() if isinstance(item, dict) and _NAME.match(name)
    ]


def _add_variables(
    places: Places, indexes: dict[str, tuple[str, str]], tokens: dict[str, tuple[str, str]]
) -> None:
    """Variables know names in capitals only: the name that a file has for it, if one has."""
    for variable, value in places.environment.items():
        match = _VARIABLE.match(variable)
        if match is None or not value:
            continue
        written = [name for name in indexes if name.upper().replace("-", "_") == match[1]]
        name = written[0] if written else match[1].lower().replace("_", "-")
        (indexes if match[2] == "INDEX" else tokens)[name] = (value, variable)


def _replacement(
    sources: dict[str, tuple[Table, str]],
) -> tuple[tuple[str, str, str] | None, bool]:
    """Address, name and file of what stands in for crates.io; and whether anything does: that may
    be a directory of this machine."""
    name = CRATES_IO
    for _ in range(MAX_CHAIN):
        table, path = sources.get(name, ({}, ""))
        after = table.get("replace-with")
        if isinstance(after, str):
            name = after
            continue
        if name == CRATES_IO:
            return None, False
        url = table.get("registry")
        return ((url, name, path) if isinstance(url, str) else None), True
    return None, True
