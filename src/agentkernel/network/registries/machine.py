"""All that a machine's package clients use, as rules and credentials; read again on a change."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

from agentkernel.network.policy.model import Rule
from agentkernel.network.registries.apt import read_apt
from agentkernel.network.registries.cargo import read_cargo
from agentkernel.network.registries.credentials import netrc
from agentkernel.network.registries.gems import read_gems
from agentkernel.network.registries.go import read_go
from agentkernel.network.registries.maven import read_maven
from agentkernel.network.registries.model import Credential, Machine, Registry
from agentkernel.network.registries.npm import read_npm
from agentkernel.network.registries.pip import read_pip
from agentkernel.network.registries.places import Places, relevant, signature

METHODS = ("GET", "HEAD")
_OS_RELEASE = re.compile(r"^(ID|VERSION_CODENAME)=\"?([a-z0-9._-]{1,64})\"?\s*$", re.MULTILINE)


def read_machine(environment: Mapping[str, str], home: Path, root: Path = Path("/")) -> Machine:
    """What this machine's package clients are configured to use. Never raises for what files or
    variables hold: what can't be used is left out, with a note. `home` is a path below `root`."""
    return _read(Places(environment, home, root))


class MachineReader:
    """The same, asked often: files are read again only when one of them, or a variable that
    counts, is another one than before. May be called by several threads."""

    def __init__(self, home: Path, root: Path = Path("/")) -> None:
        self._home = home
        self._root = root
        self._lock = threading.Lock()
        self._before: tuple[Places, Machine] | None = None

    def read(self, environment: Mapping[str, str]) -> Machine:
        with self._lock:
            if self._before is not None and _is_current(self._before[0], environment):
                return self._before[1]
            places = Places(environment, self._home, self._root)
            machine = _read(places)
            self._before = (places, machine)
            return machine


def distribution_of(os_release: str) -> str:
    """ "debian bookworm", from the text of an os-release file; "" if it does not say."""
    found = dict(_OS_RELEASE.findall(os_release))
    both = found.get("ID", ""), found.get("VERSION_CODENAME", "")
    return " ".join(both) if all(both) else ""


def _is_current(places: Places, environment: Mapping[str, str]) -> bool:
    return (
        relevant(places.environment) == relevant(environment)
        and all(environment.get(name, "") == value for name, value in places.mentions.items())
        and all(signature(path) == before for path, before in places.seen.items())
    )


def _read(places: Places) -> Machine:
    entries = netrc(places)
    pip, pip_settings = read_pip(places, entries)
    apt, apt_files = read_apt(places)
    go, go_settings = read_go(places, entries)
    maven, mirrors = read_maven(places)
    registries = (
        *pip,
        *read_npm(places),
        *apt,
        *read_cargo(places, entries),
        *go,
        *maven,
        *read_gems(places),
    )
    release = places.text("/etc/os-release") or places.text("/usr/lib/os-release")
    return Machine(
        registries=registries,
        rules=_rules(registries),
        credentials=_credentials(registries),
        settings={"pip": pip_settings, "apt": apt_files, "go": go_settings, "maven": mirrors},
        distribution=distribution_of(release),
        notes=tuple(places.notes),
    )


def _rules(registries: Iterable[Registry]) -> tuple[Rule, ...]:
    """One rule a host and port, whose source tells of all clients that use it. An address that is
    not public is allowed where the machine's configuration names the host and the port, and where
    TLS tells who is there."""
    users: dict[tuple[str, int], list[Registry]] = {}
    for item in sorted(registries, key=lambda item: not item.named):
        users.setdefault((item.host, item.port), []).append(item)
    return tuple(
        Rule(
            host=host,
            ports=(port,),
            methods=METHODS,
            # Over TLS the far side proves that it is the registry before a byte goes there, so it
            # does not matter where this machine's names lead: companies have mirrors under them.
            private=any(item.named or item.url.startswith("https:") for item in items),
            source=f"registries: {', '.join(_clients(items))}",
        )
        for (host, port), items in users.items()
    )


def _clients(registries: Iterable[Registry]) -> Iterable[str]:
    """Each once, with the first place that says so."""
    places: dict[str, str] = {}
    for item in registries:
        places.setdefault(item.ecosystem, item.source)
    return (f"{ecosystem} ({source})" for ecosystem, source in places.items())


def _credentials(registries: Iterable[Registry]) -> tuple[Credential, ...]:
    found = {item.credential.reference: item.credential for item in registries if item.credential}
    return tuple(found.values())
