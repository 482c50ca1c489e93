"""Maven's settings: mirrors, repositories of active profiles, servers' passwords.

Gradle has no such file: what it asks is its build's affair, and its defaults are Maven's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentkernel.network.registries.addresses import UnusableAddress, parse
from agentkernel.network.registries.credentials import basic
from agentkernel.network.registries.known import GRADLE, MAVEN, defaults, with_company
from agentkernel.network.registries.model import Registry
from agentkernel.network.registries.places import Places

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

MAX_ITEMS = 64
_VARIABLE = re.compile(r"\$\{env\.([A-Za-z0-9_]{1,128})\}")
_ID = re.compile(r"[\w.:/-]{1,128}\Z", re.ASCII)
_MIRROR_OF = re.compile(r"[\w.:/*!,\- ]{1,512}\Z", re.ASCII)


@dataclass
class _Settings:
    """By id: addresses of mirrors with what they stand in for, of repositories; servers."""

    mirrors: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    repositories: dict[str, tuple[str, str]] = field(default_factory=dict)
    servers: dict[str, tuple[str, str, str]] = field(default_factory=dict)


def read_maven(places: Places) -> tuple[list[Registry], dict[str, str]]:
    """The registries, and by a mirror's id what it stands in for."""
    said = _Settings()
    for path in _files(places):
        _read(places, path, said)
    registries = []
    settings = {}
    items = [
        *((url, "mirror", name, source) for name, (url, _, source) in said.mirrors.items()),
        *((url, "repository", name, source) for name, (url, source) in said.repositories.items()),
    ]
    for url, role, name, source in items[:MAX_ITEMS]:
        try:
            address = parse(url)
        except UnusableAddress as error:
            places.note(f"An address in {source} (maven) {error}: it is left out.")
            continue
        login, password, where = said.servers.get(name, ("", "", source))
        if re.fullmatch(r".*\{.+\}.*", password):
            places.note(f"The password of {name} in {where} is encrypted: it is not used.")
            login = password = ""
        credential = basic(places, "maven", address, login, password, where)
        if role == "mirror":
            settings[name] = said.mirrors[name][1]
        registries.append(
            Registry(
                ecosystem="maven",
                url=address.url,
                host=address.host,
                port=address.port,
                source=source,
                role=role,
                name=name,
                credential=credential
                or basic(places, "maven", address, address.username, address.password, source),
            )
        )
    stands_in = [word for _, of, _ in said.mirrors.values() for word in re.split(r"[,\s]+", of)]
    everything = "*" in stands_in or "external:*" in stands_in
    if everything and "!central" not in stands_in:
        return registries, settings
    public = GRADLE if "central" in stands_in else MAVEN + GRADLE
    return with_company("maven", MAVEN, defaults("maven", public) + registries), settings


def _files(places: Places) -> list[str]:
    """What counts most comes first: the first of two mirrors with one id is the one."""
    files = [f"{places.home}/.m2/settings.xml"]
    homes = [places.variable(name) for name in ("MAVEN_HOME", "M2_HOME")]
    files += [f"{home}/conf/settings.xml" for home in homes if home.startswith("/")]
    return [*files, "/etc/maven/settings.xml"]


def _read(places: Places, path: str, said: _Settings) -> None:
    text = places.text(path)
    if not text:
        return
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        places.note(f"{path} has a document type, so it counts as empty.")
        return
    # Not for machines without such a file: it takes longer to load than all else takes.
    from xml.etree import ElementTree

    try:
        top = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError):
        places.note(f"{path} is not XML, so it counts as empty.")
        return
    for item in _all(top, "mirrors", "mirror"):
        name, of, url = (_text(places, item, key) for key in ("id", "mirrorOf", "url"))
        if _text(places, item, "blocked") == "true":
            continue  # it is there to lead nowhere
        if _ID.match(name) and _MIRROR_OF.match(of) and url:
            said.mirrors.setdefault(name, (url, of, path))
    active = {
        _expand(places, item.text or "") for item in _all(top, "activeProfiles", "activeProfile")
    }
    for profile in _all(top, "profiles", "profile"):
        activation = _first(profile, "activation")
        by_default = activation is not None and (
            _text(places, activation, "activeByDefault") == "true"
        )
        if not by_default and _text(places, profile, "id") not in active:
            continue
        for group, kind in (
            ("repositories", "repository"),
            ("pluginRepositories", "pluginRepository"),
        ):
            for item in _all(profile, group, kind):
                name, url = _text(places, item, "id"), _text(places, item, "url")
                if _ID.match(name) and url:
                    said.repositories.setdefault(name, (url, path))
    for item in _all(top, "servers", "server"):
        name = _text(places, item, "id")
        login, password = _text(places, item, "username"), _text(places, item, "password")
        if _ID.match(name) and (login or password):
            said.servers.setdefault(name, (login, password, path))


def _bare(tag: object) -> str:
    """A tag without its namespace; settings files have one or none."""
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def _first(parent: Element, name: str) -> Element | None:
    return next((item for item in parent if _bare(item.tag) == name), None)


def _all(top: Element, group: str, name: str) -> list[Element]:
    holder = _first(top, group)
    return (
        [] if holder is None else [item for item in holder if _bare(item.tag) == name][:MAX_ITEMS]
    )


def _text(places: Places, parent: Element, name: str) -> str:
    item = _first(parent, name)
    return "" if item is None else _expand(places, item.text or "")


def _expand(places: Places, text: str) -> str:
    return _VARIABLE.sub(lambda match: places.mentioned(match[1]), text.strip())
