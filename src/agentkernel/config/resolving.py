"""One value a key: flags over the project's file, over the user's, over the profile."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from agentkernel.config.reading import ConfigFile
from agentkernel.config.schema import KEYS, UNLIMITED, HostVariable, is_operators
from agentkernel.errors import InvalidInputError, PolicyDeniedError
from agentkernel.security.profiles import DEFAULT_PROFILE, Limits, security_profile

Origin = Literal["flag", "project", "user", "profile", "default"]
WORKSPACE_MODES = ("cow", "ro", "rw")

_DEFAULTS: Mapping[str, Any] = {
    "sandbox.backend": "native",
    "sandbox.image": "host",
    "sandbox.profile": DEFAULT_PROFILE,
    "sandbox.user": "root",
    "sandbox.toolchains": "host",
    "sandbox.nested_userns": False,
    "sandbox.workspace": "none",
    "sandbox.volumes": (),
    "sandbox.workspace_secrets": False,
    "sandbox.workspace_ignored": "show",
    "sandbox.workspace_path": "/workspace",
    "sandbox.on_ttl": "stop",
    "sandbox.on_idle": "stop",
    "network.allow": (),
    "network.deny": (),
    "network.phases": {},
    "network.secrets": (),
    "network.ports": (),
    # As `network.policy.model.Caps` has them.
    "network.max_connections": 256,
    "network.max_connections_per_second": 200,
    "network.max_names": 8192,
}
_CAPS: Mapping[str, str] = {
    "network.max_connections": "connections",
    "network.max_connections_per_second": "connections_per_second",
    "network.max_names": "names",
    "network.max_upload": "upload_bytes",
    "network.max_download": "download_bytes",
    "network.max_upload_rate": "upload_rate",
    "network.max_download_rate": "download_rate",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """A value and where it comes from. None: nobody set it, and it is unbounded or absent."""

    value: Any
    origin: Origin
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Resolved:
    """Every key of a sandbox, and its variables and labels; `agents` and `mcp`: of agents, which
    only commands about these look at."""

    settings: dict[str, Setting]
    env: dict[str, Setting]
    labels: dict[str, Setting]
    agents: dict[str, dict[str, Setting]]
    mcp: dict[str, Setting]

    def value(self, name: str) -> Any:
        return self.settings[name].value

    def written(self) -> dict[str, Any]:
        """What one of the files says, and no flag overrode."""
        return {
            name: setting.value
            for name, setting in self.settings.items()
            if setting.origin in ("project", "user")
        }


def resolve(
    flags: Mapping[str, Any],
    project: ConfigFile | None,
    user: ConfigFile | None,
    *,
    flag_env: Mapping[str, str] | None = None,
    flag_labels: Mapping[str, str] | None = None,
) -> Resolved:
    """`flags` by dotted key. Variables of the host are not looked up here: see `expand_env`."""
    settings: dict[str, Setting] = {}
    files = [file for file in (project, user) if file is not None]
    for name in KEYS:
        if is_operators(name):
            continue
        if name in flags:
            settings[name] = Setting(flags[name], "flag")
            continue
        for file in files:
            if name in file.values:
                value = file.values[name]
                if name == "sandbox.image":
                    value = image_of(file)
                elif name == "sandbox.workspace":
                    value = workspace_of(file)
                settings[name] = Setting(value, file.kind, file.lines.get(name))
                break
    for name, default in _DEFAULTS.items():
        settings.setdefault(name, Setting(default, "default"))
    profile = security_profile(settings["sandbox.profile"].value)
    settings.setdefault("network.presets", Setting(profile.network, "profile"))
    for name in KEYS:
        if not is_operators(name):
            settings.setdefault(name, _of_profile(name, profile.limits, settings))
    return Resolved(
        settings={name: settings[name] for name in KEYS if name in settings},
        env=_merged("env", files, flag_env or {}),
        labels=_merged("labels", files, flag_labels or {}),
        agents=_agents(files),
        mcp=_merged("mcp", files, {}),
    )


def _of_profile(name: str, limits: Limits, settings: Mapping[str, Setting]) -> Setting:
    values: dict[str, Any] = {
        "limits.memory": limits.memory_bytes,
        "limits.cpus": limits.cpus,
        "limits.pids": limits.pids,
        "limits.nofile": limits.nofile,
        "limits.timeout": limits.exec_timeout,
        "limits.output": limits.output_bytes,
    }
    if name == "limits.disk":
        # Files with a bound are in memory, so a default one leaves half of that for processes.
        memory = settings["limits.memory"].value
        disk = limits.disk_bytes
        if disk is not None and memory is not None:
            disk = min(disk, memory // 2)
        return Setting(UNLIMITED if disk is None else disk, "profile")
    return Setting(values[name], "profile") if name in values else Setting(None, "default")


def _merged(section: str, files: list[ConfigFile], flags: Mapping[str, str]) -> dict[str, Setting]:
    found: dict[str, Setting] = {name: Setting(value, "flag") for name, value in flags.items()}
    for file in files:
        for name, value in file.tables.get(section, {}).items():
            line = file.lines.get(f"{section}.{name}")
            found.setdefault(name, Setting(value, file.kind, line))
    return found


def _agents(files: list[ConfigFile]) -> dict[str, dict[str, Setting]]:
    """Key by key, as everywhere: a project's list stands in place of the user's."""
    found: dict[str, dict[str, Setting]] = {}
    for file in files:
        for name, entries in file.tables.get("agents", {}).items():
            line = file.lines.get(f"agents.{name}")
            for key, value in entries.items():
                found.setdefault(name, {}).setdefault(key, Setting(value, file.kind, line))
    return found


def network_body(resolved: Resolved) -> dict[str, Any] | None:
    """What is asked for of the network, as the API takes it; None: nobody says anything."""
    given = {
        name: setting.value
        for name, setting in resolved.settings.items()
        if name.startswith("network.") and setting.origin in ("flag", "project", "user")
    }
    body: dict[str, Any] = {
        key: list(given[f"network.{key}"])
        for key in ("presets", "allow", "deny")
        if f"network.{key}" in given
    }
    if "network.phase" in given:
        body["phase"] = given["network.phase"]
    if "network.phases" in given:
        body["phases"] = {
            name: {key: list(entries) for key, entries in phase.items()}
            for name, phase in given["network.phases"].items()
        }
    if caps := {field: given[name] for name, field in _CAPS.items() if name in given}:
        body["caps"] = caps
    return body or None


def image_of(file: ConfigFile) -> str:
    """The image a file names. A path is meant from the file's own directory.

    One that looks as if it were inside, and leads out through a link, is refused whoever trusts
    the file: the link can change while the file, and so its hash, stays.
    """
    text: str = file.values["sandbox.image"]
    if not text.startswith(("/", ".", "~")):
        return text
    path = os.path.normpath(os.path.join(file.directory, os.path.expanduser(text)))
    real = os.path.realpath(path)
    if is_below(path, file.directory) and not is_below(real, file.directory):
        raise PolicyDeniedError(
            f"{place_of(file, 'sandbox.image')}: the image {text!r} leads out of "
            f"{file.directory} through a link, to {real}",
            hint="write the directory itself, or make it a real one",
            file=file.path,
        )
    return real


def workspace_of(file: ConfigFile) -> str:
    """The workspace a file names, from the file's own directory, with its mode.

    Through a link it may not lead out, as an image may not.
    """
    text: str = file.values["sandbox.workspace"]
    if text == "none":
        return text
    path, colon, mode = text.rpartition(":")
    if not colon or mode not in WORKSPACE_MODES:
        path, mode = text, "cow"
    path = os.path.normpath(os.path.join(file.directory, os.path.expanduser(path)))
    real = os.path.realpath(path)
    inside = path == file.directory or is_below(path, file.directory)
    if inside and real != file.directory and not is_below(real, file.directory):
        raise PolicyDeniedError(
            f"{place_of(file, 'sandbox.workspace')}: the workspace {text!r} leads out of "
            f"{file.directory} through a link, to {real}",
            hint="write the directory itself, or make it a real one",
            file=file.path,
        )
    return f"{real}:{mode}"


def is_below(path: str, directory: str) -> bool:
    return path.startswith(directory.rstrip("/") + "/")


def place_of(file: ConfigFile, name: str) -> str:
    line = file.lines.get(name)
    return file.path if line is None else f"{file.path}:{line}"


def expand_env(resolved: Resolved, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables with those of the host filled in.

    Preconditions: the project's file is trusted, or `widening` found nothing in it: a variable
    of the host is a widening.
    """
    found: dict[str, str] = {}
    for name, setting in resolved.env.items():
        value = setting.value
        if isinstance(value, HostVariable):
            text = environment.get(value.name, value.default)
            if text is None:
                raise InvalidInputError(
                    f"env.{name} is taken from {value.name}, which is not set here",
                    hint=f'set it, or write {name} = {{ from = "{value.name}", default = "…" }}',
                )
            value = text
        found[name] = value
    return found
