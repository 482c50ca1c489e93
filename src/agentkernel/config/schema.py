"""The closed list of keys. A check gives the value as the rest of the program wants it, or raises
ValueError with words that follow "KEY must be …".
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from agentkernel.config import agents, images, networks
from agentkernel.config.addresses import check_address, check_domain, check_host, check_origin
from agentkernel.config.volumes import parse_volume
from agentkernel.errors import InvalidInputError
from agentkernel.ids import check_name
from agentkernel.quantities import parse_duration, parse_size

FileKind = Literal["project", "user"]
Check = Callable[[Any], Any]
UNLIMITED = "unlimited"
PROFILES = ("restrictive", "moderate", "permissive")
"""Strongest first: one that stands later gives the sandbox more."""

# What the sandbox asks of the kernel at least; `kernel.spec` refuses less by itself.
LEAST_MEMORY = 16 << 20
LEAST_DISK = 1 << 20
_MOST_SECONDS = 1e9
_MOST_OUTPUT = 64 << 20
_MOST_ENTRIES = 128
_VARIABLE = re.compile(r"[^=\x00-\x1f\x7f]{1,256}\Z")


@dataclass(frozen=True, slots=True)
class HostVariable:
    """A value that is taken from the environment of whoever runs the command."""

    name: str
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Key:
    """One key. `files`: where it may stand."""

    name: str
    check: Check
    wants: str
    about: str
    files: frozenset[FileKind] = frozenset({"project", "user"})


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ValueError
    return value


def _one_of(*choices: str) -> Check:
    def check(value: Any) -> str:
        if value not in choices:
            raise ValueError
        return str(value)

    return check


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _whole(least: int, most: int = 2**31 - 1) -> Check:
    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError
        return value

    return check


def _cpus(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.01 <= value <= 4096:
        raise ValueError
    return float(value)


def _size(least: int, most: int = 1 << 62) -> Check:
    def check(value: Any) -> int:
        size = parse_size(value) if isinstance(value, str) else value
        return int(_whole(least, most)(size))

    return check


def _disk(value: Any) -> int | str:
    return UNLIMITED if value == UNLIMITED else int(_size(LEAST_DISK)(value))


def _duration(value: Any) -> float:
    seconds = parse_duration(value) if isinstance(value, str) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise ValueError
    if not 0 < seconds <= _MOST_SECONDS:
        raise ValueError
    return float(seconds)


def _name(value: Any) -> str:
    try:
        return check_name(_text(value))
    except InvalidInputError:
        raise ValueError from None


def _user(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return str(value)
    return _text(value)


def _texts(check: Check) -> Check:
    """A list, or a text with commas between."""

    def check_all(value: Any) -> tuple[str, ...]:
        entries = value.split(",") if isinstance(value, str) else value
        if not isinstance(entries, list | tuple) or len(entries) > _MOST_ENTRIES:
            raise ValueError
        return tuple(check(e.strip() if isinstance(e, str) else e) for e in entries)

    return check_all


def _path(value: Any) -> str:
    """Absolute: the daemon has no directory of yours to begin at."""
    path = os.path.expanduser(_text(value))
    if not os.path.isabs(path):
        raise ValueError
    return path


def _workspace(value: Any) -> str:
    """Where it is depends on the file: see `resolving.workspace_of`."""
    text = _text(value)
    if text.startswith(":"):
        raise ValueError
    return text


def _workspace_path(value: Any) -> str:
    """Which paths it can't be at is for the daemon to say: see `workspaces.targets`."""
    text = _text(value)
    if text != "same" and not text.startswith("/"):
        raise ValueError
    return text


def _volume(value: Any) -> str:
    try:
        parse_volume(_text(value))
    except InvalidInputError as exc:
        raise ValueError(exc.message) from None
    return str(value)


def check_label(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 4096:
        raise ValueError
    return value


def check_variable(value: Any) -> str | HostVariable:
    """A text, or `{ from = "NAME", default = "…" }`."""
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError
        return value
    if not isinstance(value, dict) or not {"from"} <= value.keys() <= {"from", "default"}:
        raise ValueError
    name, default = value["from"], value.get("default")
    if not isinstance(name, str) or not _VARIABLE.match(name):
        raise ValueError
    if default is not None and (not isinstance(default, str) or "\0" in default):
        raise ValueError
    return HostVariable(name, default)


_TIME = 'a time such as "90s" or "5m"'
_SIZE = 'a size such as "100M"'
_COUNT = "a whole number from 1 to 65536"
_PHASE = "a name of lower-case letters, digits and -"
_AT_END = '"stop" or "remove"'
_PROJECT: frozenset[FileKind] = frozenset({"project"})
_USER: frozenset[FileKind] = frozenset({"user"})

KEYS: Mapping[str, Key] = {
    key.name: key
    for key in (
        Key("sandbox.backend", _text, "the name of an engine", "the engine that holds it"),
        Key("sandbox.image", _text, 'text: "host", a directory or the name of an image',
            "what its root is made of"),
        Key("sandbox.profile", _one_of(*PROFILES), '"permissive", "moderate" or "restrictive"',
            "defaults for capabilities, system calls and limits"),
        Key("sandbox.user", _user, 'a name or number, with ":group" or without',
            "who commands run as (default: the image's own user, or root)"),
        Key("sandbox.toolchains", _one_of("host", "none"), '"host" or "none"',
            "whether toolchains outside /usr are seen"),
        Key("sandbox.nested_userns", _flag, "true or false", "may make user namespaces (weaker)"),
        Key("sandbox.workspace", _workspace, 'text: "DIR", "DIR:ro", "DIR:rw" or "none"',
            "a directory of this machine at /workspace"),
        Key("sandbox.volumes", _texts(_volume), 'such as ["cache:/root/.cache", "models:/m:ro"]',
            "volumes that it has, and where"),
        Key("sandbox.workspace_secrets", _flag, "true or false",
            "whether files in it that look like secrets are shown"),
        Key("sandbox.workspace_ignored", _one_of("show", "hide"), '"show" or "hide"',
            "whether files in it that git ignores are shown"),
        Key("sandbox.workspace_path", _workspace_path, '"same" or an absolute path',
            "where it is inside (default: /workspace); same: where it is on this machine"),
        Key("sandbox.name", _name, "a name of lower-case letters, digits and -",
            "what `sandbox create` calls it", _PROJECT),
        Key("sandbox.ttl", _duration, _TIME, "how long it lives at most"),
        Key("sandbox.idle_timeout", _duration, _TIME, "how long it may have nothing to do"),
        Key("sandbox.on_ttl", _one_of("stop", "remove"), _AT_END, "what then becomes of it"),
        Key("sandbox.on_idle", _one_of("stop", "remove"), _AT_END, "what then becomes of it"),
        Key("limits.memory", _size(LEAST_MEMORY), 'a size of 16M or more, such as "2G"',
            "most memory"),
        Key("limits.cpus", _cpus, "a number from 0.01 to 4096", "most processor time"),
        Key("limits.pids", _whole(4), "a whole number, 4 or more", "most processes and threads"),
        Key("limits.disk", _disk, 'a size of 1M or more, or "unlimited"', "most bytes of files"),
        Key("limits.nofile", _whole(16), "a whole number, 16 or more", "most open files"),
        Key("limits.timeout", _duration, _TIME, "how long a command may run, unless it says"),
        Key("limits.output", _size(0, _MOST_OUTPUT), "a size up to 64M",
            "kept of each of a command's streams, where a result holds them"),
        Key("network.presets", networks.check_presets, 'names such as ["registries", "claude"]',
            "lists of hosts it may reach"),
        Key("network.allow", networks.check_targets, 'such as ["api.example.org", "*.a.org:443"]',
            "hosts it may reach besides"),
        Key("network.deny", networks.check_targets, 'such as ["gist.github.com"]',
            "hosts it may not reach, whatever else is said"),
        Key("network.phase", networks.check_phase, _PHASE, "the phase it begins with"),
        Key("network.phases", networks.check_phases,
            "sections [network.phases.NAME] with presets, allow and deny", "what phases may reach"),
        Key("network.secrets", networks.check_secrets, 'such as ["TOKEN@api.example.org"]',
            "secrets it may use and not know"),
        Key("network.ports", networks.check_ports, 'such as [8000, "127.0.0.1:8080:80"]',
            "its ports that this machine has, too"),
        Key("network.max_connections", _whole(1, 65536), _COUNT, "most connections at once"),
        Key("network.max_connections_per_second", _whole(1, 65536), _COUNT,
            "most new connections a second"),
        Key("network.max_names", _whole(1, 65536), _COUNT, "most names it may ever ask for"),
        Key("network.max_upload", _size(0), _SIZE, "most bytes out, over its life"),
        Key("network.max_download", _size(0), _SIZE, "most bytes in, over its life"),
        Key("network.max_upload_rate", _size(1), _SIZE, "most bytes out a second"),
        Key("network.max_download_rate", _size(1), _SIZE, "most bytes in a second"),
        Key("network.floor", networks.check_targets, 'such as ["registries", "*.example.org"]',
            "what no sandbox gets beyond", _USER),
        Key("network.hosts", networks.check_hosts, 'a section of NAME = "ADDRESS"',
            "addresses of names, taken as they are", _USER),
        Key("network.resolver", networks.check_resolver, 'such as "192.0.2.53" or "192.0.2.53:53"',
            "the name server to ask, instead of the system's", _USER),
        Key("network.upstream_ca", _path, "an absolute path",
            "certificates to trust besides the system's, PEM", _USER),
        Key("network.upstream_proxy", networks.check_proxy, '"auto", "none" or "http://HOST:PORT"',
            "the proxy that leads out of this machine", _USER),
        Key("network.patterns", networks.check_patterns, "regular expressions",
            "what no request may hold", _USER),
        Key("images.mirrors", images.check_mirrors,
            'a section of REGISTRY = ["https://HOST"]', "who is asked before a registry", _USER),
        Key("images.insecure", images.check_insecure, 'hosts such as ["registry.lan:5000"]',
            "registries that are spoken to in plain HTTP", _USER),
        Key("daemon.max_sandboxes", _whole(1), "a whole number, 1 or more",
            "most sandboxes at once", _USER),
        Key("daemon.memory_floor", _size(0), 'a size such as "256M"',
            "memory that must stay free for a new one", _USER),
        Key("daemon.disk_reserve", _size(0), 'a size such as "2G"',
            "bytes of the disk that must stay free (default: 1G, or 5 % of it if that is less)",
            _USER),
        Key("daemon.listen", check_address, 'an address such as "127.0.0.1:8700"',
            "where the API is served over TCP, besides the socket", _USER),
        Key("daemon.tls_cert", _path, "an absolute path", "the certificate for it, PEM", _USER),
        Key("daemon.tls_key", _path, "an absolute path", "the certificate's key, PEM", _USER),
        Key("daemon.allow_hosts", _texts(check_host), 'names such as ["ak.example.org"]',
            "what else it may be called", _USER),
        Key("daemon.allow_origins", _texts(check_origin), 'such as ["https://app.example.org"]',
            "web pages that may ask", _USER),
        Key("daemon.insecure_http", _flag, "true or false",
            "listen beyond this machine without TLS", _USER),
        Key("daemon.preview_domain", check_domain, 'a name such as "preview.example.org"',
            "below which previews have their names (default: localhost)", _USER),
    )
}  # fmt: skip

# Sections whose keys the user names: what each value may hold.
TABLES: Mapping[str, tuple[Check, str]] = {
    "env": (check_variable, 'text or { from = "NAME", default = "…" }'),
    "labels": (check_label, "text"),
    "agents": (agents.check_agent, agents.AGENT_WANTS),
    "mcp": (agents.check_server, agents.MCP_WANTS),
}
SECTIONS = (*dict.fromkeys(name.partition(".")[0] for name in KEYS), *TABLES)
# Not accepted before they do something: a file that relies on them must not seem to work.
LATER = ("workspace",)


def is_operators(name: str) -> bool:
    """Whether a key is about all sandboxes: it stands in the user's file alone, and no sandbox has
    a value of its own."""
    return KEYS[name].files == _USER


def check_table_key(section: str, name: str) -> None:
    if section == "env" and not _VARIABLE.match(name):
        raise ValueError("a variable's name has no = and no control character")
    if section == "labels" and not 1 <= len(name) <= 256:
        raise ValueError("a label's name has 1 to 256 characters")
    if section == "agents" and not agents.AGENT_NAME.match(name):
        raise ValueError("an agent's name has lower-case letters, digits and -")
    if section == "mcp" and not agents.MCP_NAME.match(name):
        raise ValueError("a server's name has up to 32 letters, digits, _ and -")


def check_table_size(section: str, count: int) -> None:
    if count > _MOST_ENTRIES:
        raise ValueError(f"[{section}] has {count} entries; {_MOST_ENTRIES} are the most")
