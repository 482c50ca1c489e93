"""What a project's file asks for beyond what the same command would give without it.

A project's file comes with a cloned repository, so it may narrow as it likes, and widen only what
the user has trusted it to. docs/reference/config.md shows these rules as a table.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from agentkernel.config.finding import home_directory
from agentkernel.config.reading import ConfigFile
from agentkernel.config.resolving import Resolved, Setting, is_below, resolve
from agentkernel.config.schema import PROFILES, UNLIMITED, HostVariable
from agentkernel.quantities import duration_text, size_text


@dataclass(frozen=True, slots=True)
class Widening:
    """One line of a file that widens. `value` and `instead` are as people write them."""

    key: str
    line: int | None
    value: str
    instead: str
    why: str

    def words(self) -> str:
        place = "" if self.line is None else f"line {self.line}: "
        return f"{place}{self.key} = {self.value} ({self.why}; without it: {self.instead})"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def widenings(
    project: ConfigFile,
    user: ConfigFile | None,
    flags: Mapping[str, Any],
    *,
    flag_env: Mapping[str, str] | None = None,
    agent: str | None = None,
) -> list[Widening]:
    """What takes effect and is wider than it would be without the file. Flags are the user's own
    words: what they override has no effect, and what they narrow is narrow. `agent`: which one is
    to run; None: none, so that what is said of agents has no effect; "": any.
    """
    with_it = resolve(flags, project, user, flag_env=flag_env)
    without = resolve(flags, None, user, flag_env=flag_env)
    found = []
    if project.owner not in (0, os.getuid()):
        found.append(
            Widening("file", None, project.path, "no file", f"it belongs to uid {project.owner}")
        )
    for name, judge in _JUDGES.items():
        now, before = with_it.settings[name], without.settings[name]
        if now.origin != "project" or now.value == before.value:
            continue
        why = None
        if name == "sandbox.image":
            why = _image_widens(now, before, project)
        elif name == "sandbox.workspace":
            why = _workspace_widens(now, project)
        elif name == "network.phase":
            why = _phase_widens(with_it, without)
        if why or judge(now.value, before.value):
            found.append(
                Widening(name, now.line, show(name, now.value), show(name, before.value),
                         why or _WHY.get(name, "more"))
            )  # fmt: skip
    if agent is not None:
        found += _agents_widen(with_it, without, agent)
    return [*found, *_variables(with_it, without)]


def _agents_widen(with_it: Resolved, without: Resolved, agent: str) -> list[Widening]:
    """A server is code and a place to send things to; which of them an agent has is the user's to
    say, and what it reaches."""
    found = []
    for name, entries in with_it.agents.items():
        if agent not in ("", name):
            continue
        before = without.agents.get(name, {})
        for key in ("presets", "allow", "mcp", "setup"):
            now, old = entries.get(key), before.get(key)
            had = () if old is None else old.value
            if now is not None and now.origin == "project" and _presets_more(now.value, had):
                found.append(_agents_line(name, key, now, ", ".join(had) or "none"))
        asks, asked = entries.get("attended"), before.get("attended")
        if asks is not None and not asks.value and asked is not None and asked.value:
            found.append(_agents_line(name, "attended", asks, "true"))
    for name, setting in with_it.mcp.items():
        if setting.origin == "project":
            instead = "yours of that name" if name in without.mcp else "no such server"
            words = " ".join(setting.value.get("command", ())) or setting.value["url"]
            found.append(
                Widening(f"mcp.{name}", setting.line, words[:200], instead, "agents talk to it")
            )
    return found


def _agents_line(name: str, key: str, now: Setting, instead: str) -> Widening:
    value = show(key, now.value)
    return Widening(f"agents.{name}.{key}", now.line, value, instead, _AGENTS_WHY[key])


def _variables(with_it: Resolved, without: Resolved) -> list[Widening]:
    return [
        Widening(f"env.{name}", setting.line, f"the host's {setting.value.name}",
                 "as before" if name in without.env else "not set", "it reads your environment")
        for name, setting in with_it.env.items()
        if setting.origin == "project" and isinstance(setting.value, HostVariable)
    ]  # fmt: skip


def _image_widens(now: Setting, before: Setting, project: ConfigFile) -> str | None:
    """Only what came with the project itself shows nothing new."""
    if now.value == "host":
        return "it shows this machine's programs"
    if not now.value.startswith("/"):
        return "it comes from elsewhere"
    home, top = home_directory(), project.directory
    if top == home or is_below(home, top):
        return "the file stands in or above your home, so nothing in there is the project's"
    return None if is_below(now.value, top) else f"it is not below {top}"


def _workspace_widens(now: Setting, project: ConfigFile) -> str | None:
    """The project itself, of which the sandbox changes nothing, is what the command is about."""
    if now.value == "none":
        return None
    path, _, mode = now.value.rpartition(":")
    if mode == "rw":
        return "it changes files of this machine"
    home, top = home_directory(), project.directory
    if top == home or is_below(home, top):
        return "the file stands in or above your home, so nothing in there is the project's"
    return None if path == top or is_below(path, top) else f"it is not in {top}"


def _phase_widens(with_it: Resolved, without: Resolved) -> str | None:
    """Only the phases' own lists say which of them is the wider one."""
    if _lists_widen(_first_phase(with_it), _first_phase(without)):
        return "it begins with more"
    return None


def _first_phase(resolved: Resolved) -> Mapping[str, Any]:
    name = resolved.value("network.phase")
    phases = resolved.value("network.phases")
    if name is None or (name == "default" and name not in phases):
        return {key: resolved.value(f"network.{key}") for key in ("presets", "allow", "deny")}
    found: Mapping[str, Any] = phases.get(name, {})
    return found


def _lists_widen(now: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    return (
        _presets_more(now.get("presets", ()), before.get("presets", ()))
        or _names_more(now.get("allow", ()), before.get("allow", ()))
        or _names_more(before.get("deny", ()), now.get("deny", ()))
    )


def _names_more(now: Any, before: Any) -> bool:
    return bool(set(now) - set(before))


def _presets_more(now: Any, before: Any) -> bool:
    return _names_more(now, (*before, "none"))


def _phases_widen(now: Any, before: Any) -> bool:
    """A phase that is not there has no network."""
    return any(_lists_widen(phase, before.get(name, {})) for name, phase in now.items())


def _more(now: Any, before: Any) -> bool:
    """None: unbounded."""
    return before is not None and bool(now is None or now > before)


def _more_disk(now: Any, before: Any) -> bool:
    return before != UNLIMITED and bool(now == UNLIMITED or now > before)


def _never(now: Any, before: Any) -> bool:
    return False


_JUDGES: Mapping[str, Callable[[Any, Any], bool]] = {
    "sandbox.backend": lambda now, before: True,  # which is stronger is not for a file to say
    "sandbox.image": _never,  # see _image_widens
    "sandbox.profile": lambda now, before: PROFILES.index(now) > PROFILES.index(before),
    "sandbox.user": lambda now, before: now in ("root", "0") and before not in ("root", "0"),
    "sandbox.toolchains": lambda now, before: now == "host",
    "sandbox.nested_userns": lambda now, before: bool(now),
    "sandbox.workspace": _never,  # see _workspace_widens
    # What is in a volume comes from other sandboxes, and goes to them.
    "sandbox.volumes": _names_more,
    "sandbox.workspace_secrets": lambda now, before: bool(now),
    "sandbox.workspace_ignored": lambda now, before: now == "show",
    "sandbox.workspace_path": _never,  # of the sandbox's own paths
    "sandbox.name": _never,
    "sandbox.ttl": _more,
    "sandbox.idle_timeout": _more,
    "sandbox.on_ttl": lambda now, before: now == "stop",
    "sandbox.on_idle": lambda now, before: now == "stop",
    "limits.memory": _more,
    "limits.cpus": _more,
    "limits.pids": _more,
    "limits.disk": _more_disk,
    "limits.nofile": _more,
    "limits.timeout": _more,
    "limits.output": _more,
    "network.presets": _presets_more,
    "network.allow": _names_more,
    "network.deny": lambda now, before: _names_more(before, now),
    "network.phase": _never,  # see _phase_widens
    "network.phases": _phases_widen,
    "network.secrets": _names_more,
    "network.ports": _names_more,
    "network.max_connections": _more,
    "network.max_connections_per_second": _more,
    "network.max_names": _more,
    "network.max_upload": _more,
    "network.max_download": _more,
    "network.max_upload_rate": _more,
    "network.max_download_rate": _more,
}
_AGENTS_WHY = {
    "presets": "it reaches more",
    "allow": "it reaches more",
    "mcp": "it has more servers",
    "setup": "it is run with package registries in reach",
    "attended": "it does not ask",
}
_WHY = {
    "network.presets": "it reaches more",
    "network.allow": "it reaches more",
    "network.deny": "it denies less",
    "network.phases": "they reach more",
    "network.secrets": "it uses your secrets",
    "network.ports": "it opens ports of this machine",
    "sandbox.backend": "another isolation",
    "sandbox.profile": "weaker",
    "sandbox.user": "root has capabilities",
    "sandbox.toolchains": "it shows toolchains of your home",
    "sandbox.nested_userns": "weaker",
    "sandbox.volumes": "it shares files with other sandboxes",
    "sandbox.workspace_secrets": "it shows files that look like secrets",
    "sandbox.workspace_ignored": "it shows files that git ignores",
    "sandbox.on_ttl": "it stays on disk",
    "sandbox.on_idle": "it stays on disk",
    "sandbox.ttl": "longer",
    "sandbox.idle_timeout": "longer",
    "limits.timeout": "longer",
}
_SIZES = (
    "limits.memory", "limits.disk", "limits.output", "daemon.memory_floor", "daemon.disk_reserve",
    "network.max_upload", "network.max_download", "network.max_upload_rate",
    "network.max_download_rate",
)  # fmt: skip
_TIMES = ("sandbox.ttl", "sandbox.idle_timeout", "limits.timeout")


def show(name: str, value: Any) -> str:
    """A value as a file could hold it."""
    if value is None:
        return "-" if name in ("sandbox.name", "network.phase") else "unbounded"
    if isinstance(value, tuple | dict):
        return ", ".join(value) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    if name in _SIZES and isinstance(value, int):
        return size_text(value)
    if name in _TIMES:
        return duration_text(value)
    if isinstance(value, HostVariable):
        return f"the host's {value.name}"
    return f"{value:g}" if isinstance(value, float) else str(value)
