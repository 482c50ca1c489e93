"""What the user's config.toml says of registries. A project's file never does."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentkernel.config.finding import user_file
from agentkernel.config.reading import read_file

CERTIFICATES = "/etc/docker/certs.d"


@dataclass(frozen=True)
class Pace:
    """How long somebody waits for something, in seconds."""

    connect: float = 15.0
    # Without SLOWEST bytes in this time a connection counts as lost.
    stall: float = 60.0
    # Doubled at each try in a row that brought nothing.
    pause: float = 0.5
    longest_pause: float = 30.0
    tries: int = 5


@dataclass(frozen=True)
class RegistrySettings:
    """`mirrors`: addresses that are tried before a registry itself. `insecure`: hosts (with a port
    if it is not 80) that are spoken to in plain HTTP. `public_only`: no other registry that is not
    public is asked, see `reach`. The rest is as for sandboxes' traffic."""

    mirrors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    insecure: frozenset[str] = frozenset()
    public_only: bool = False
    upstream_ca: str | None = None
    upstream_proxy: str = "auto"
    certificates: str = CERTIFICATES
    parallel: int = 3
    pace: Pace = Pace()


def user_settings() -> RegistrySettings:
    """As the user's file has them now. Raises InvalidInputError, HostError for one that is
    wrong."""
    path = user_file()
    if not os.path.lexists(path):
        return RegistrySettings()
    return registry_settings(read_file(path, "user").values)


def registry_settings(values: Mapping[str, Any]) -> RegistrySettings:
    """`values` by dotted key, as `config.reading` gives them; other keys are not looked at."""
    return RegistrySettings(
        mirrors=values.get("images.mirrors", {}),
        insecure=frozenset(values.get("images.insecure", ())),
        upstream_ca=values.get("network.upstream_ca"),
        upstream_proxy=values.get("network.upstream_proxy", "auto"),
    )
