"""The network's words in files: whether they are well formed. What they mean, and whether a host or
a preset is one, is not known here. Each check raises ValueError.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any

from agentkernel.config.addresses import joined, split_address
from agentkernel.config.ports import parse_port

_MOST_TARGETS = 512
_MOST_PHASES = 16
_MOST_HOSTS = 256
_TARGET = re.compile(r"[^\s,\x00-\x1f\x7f]{1,300}\Z")
_PRESET = re.compile(r"[a-z0-9][a-z0-9:-]{0,63}\Z")
_PHASE = re.compile(r"[a-z0-9][a-z0-9-]{0,31}\Z")
_SECRET = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}@[^\s@]{1,1000}\Z")
_PROXY = re.compile(r"http://[^\s/]{1,300}/?\Z")


def _entries(value: Any, pattern: re.Pattern[str], most: int) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or len(value) > most:
        raise ValueError
    for entry in value:
        if not isinstance(entry, str) or not pattern.match(entry):
            raise ValueError
    return tuple(dict.fromkeys(value))


def _listed(value: Any) -> Any:
    """A list, or a text with commas between, as `config set` writes it."""
    if isinstance(value, str):
        return [entry.strip() for entry in value.split(",") if entry.strip()]
    return value


def check_targets(value: Any) -> tuple[str, ...]:
    return _entries(_listed(value), _TARGET, _MOST_TARGETS)


def check_presets(value: Any) -> tuple[str, ...]:
    return _entries(_listed(value), _PRESET, 32)


def check_phase(value: Any) -> str:
    if not isinstance(value, str) or not _PHASE.match(value):
        raise ValueError
    return value


def check_phases(value: Any) -> dict[str, dict[str, tuple[str, ...]]]:
    """`[network.phases.NAME]` with presets, allow and deny; what is not said is empty."""
    if not isinstance(value, dict) or len(value) > _MOST_PHASES:
        raise ValueError
    found = {}
    for name, phase in value.items():
        if not isinstance(phase, dict) or phase.keys() - {"presets", "allow", "deny"}:
            raise ValueError
        found[check_phase(name)] = {
            "presets": check_presets(phase.get("presets", [])),
            "allow": check_targets(phase.get("allow", [])),
            "deny": check_targets(phase.get("deny", [])),
        }
    return found


def check_secrets(value: Any) -> tuple[str, ...]:
    # One text is one entry: the hosts of a secret have commas between.
    return _entries([value] if isinstance(value, str) else value, _SECRET, 64)


def check_ports(value: Any) -> tuple[str, ...]:
    """As `config.ports` says, or a number."""
    entries = [value] if isinstance(value, int) else _listed(value)
    if not isinstance(entries, list | tuple) or len(entries) > 64:
        raise ValueError
    found = []
    for entry in entries:
        if isinstance(entry, bool) or not isinstance(entry, int | str):
            raise ValueError
        parse_port(str(entry))  # InvalidInputError is one
        found.append(str(entry))
    return tuple(found)


def check_hosts(value: Any) -> dict[str, str]:
    """`[network.hosts]`: name = "address"."""
    if not isinstance(value, dict) or len(value) > _MOST_HOSTS:
        raise ValueError
    for name, address in value.items():
        if not _TARGET.match(name) or not isinstance(address, str) or "%" in address:
            raise ValueError
        ipaddress.ip_address(address)
    return dict(value)


def check_resolver(value: Any) -> str:
    """ADDRESS or ADDRESS:PORT."""
    if not isinstance(value, str) or "%" in value:
        raise ValueError
    try:
        return joined(str(ipaddress.ip_address(value)), 53)
    except ValueError:
        host, port = split_address(value)
        if port == 0:
            raise
        return joined(str(ipaddress.ip_address(host)), port)


def check_proxy(value: Any) -> str:
    if not isinstance(value, str) or not (value in ("auto", "none") or _PROXY.match(value)):
        raise ValueError
    return value


def check_patterns(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list | tuple) or len(value) > 64:
        raise ValueError
    for text in value:
        if not isinstance(text, str) or not 1 <= len(text) <= 512:
            raise ValueError
        try:
            re.compile(text)
        except (re.error, OverflowError, RecursionError):
            raise ValueError from None
    return tuple(value)
