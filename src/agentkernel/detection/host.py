"""What this machine has of a runtime, as the `host` image would show it.

A version is read where a tool manager keeps it, or asked of the program itself: in `/`, with an
environment of our own, and never of a program that lies in the project. What a project's files say
must not be obeyed by anything that runs outside a sandbox, and rustup, Go and Maven would.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from agentkernel.detection.detecting import THE_COMMAND, Detection
from agentkernel.detection.quick import located
from agentkernel.detection.tables import RUNTIMES
from agentkernel.detection.versions import Version, Wish, parse_version

ASK_SECONDS = 4.0
_MOST_KEPT = 64
_MOST_BYTES = 64 << 10
# Managers whose shims choose by a variable: which one, where the versions lie.
_SHIMS = {"python": "PYENV_VERSION", "ruby": "RBENV_VERSION", "node": "NODENV_VERSION"}
_QUESTIONS = {
    "go": ["version"], "java": ["-version"], "lua": ["-v"], "terraform": ["version"],
    "tofu": ["version"], "php": ["-v"],
}  # fmt: skip
_PASSED = ("HOME", "PATH", "RUSTUP_HOME", "CARGO_HOME", "JAVA_HOME", "DOTNET_ROOT", "MISE_DATA_DIR",
           "ASDF_DATA_DIR", "VOLTA_HOME")  # fmt: skip
_OURS = {"LANG": "C", "GOTOOLCHAIN": "local", "RUSTUP_AUTO_INSTALL": "0", "DOTNET_NOLOGO": "1",
         "DOTNET_CLI_TELEMETRY_OPTOUT": "1", "CHECKPOINT_DISABLE": "1"}  # fmt: skip
_IN_PATH = re.compile(r"/v?(\d{1,4}\.\d{1,4}\.\d{1,4})(?:[-+][\w.]{1,30})?/")


@dataclass(frozen=True, slots=True)
class Found:
    """What this machine has of what is needed. `version` None: nobody asked, or nobody knows.
    `environment`: what makes the tools choose the version that is wanted."""

    missing: tuple[str, ...] = ()
    version: Version | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


class Machine:
    """This machine, for one command. `visible`: whether the `host` image shows a program outside
    the system's directories. `projects`: where nothing is run. `memory`: a file for versions."""

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        visible: Callable[[str], bool] = lambda path: True,
        projects: Sequence[str] = (),
        memory: str | None = None,
    ) -> None:
        self._environment = environment
        self._visible = visible
        self._projects = [os.path.realpath(place) for place in projects]
        self._memory = memory

    def look(self, wanted: Detection) -> Found:
        missing = [group[0] for group in wanted.needs if self._first(group) is None]
        if missing or wanted.wish is None or wanted.source == THE_COMMAND:
            return Found(tuple(missing))
        programs = RUNTIMES[wanted.versions].programs
        if wanted.program in programs:
            programs = (wanted.program, *programs)
        place = self._first(programs)
        if place is None:
            return Found((programs[0],))
        version, variables = self._version(wanted.versions, place, wanted.wish)
        return Found((), version, variables)

    def _first(self, programs: Sequence[str]) -> str | None:
        path = self._environment.get("PATH", "")
        for program in programs:
            place = located(program, path)
            if place is not None and (_is_system(place) or self._visible(place)):
                return place
        return None

    def _version(
        self, family: str, place: str, wish: Wish
    ) -> tuple[Version | None, dict[str, str]]:
        directory = os.path.dirname(place)
        if family in _SHIMS and os.path.basename(directory) == "shims":
            return self._of_shims(family, os.path.dirname(directory), wish)
        if family == "rust" and (chosen := self._of_rustup(place, wish)):
            return chosen
        real = os.path.realpath(place)
        if found := _IN_PATH.search(real):
            return parse_version(found[1]), {}
        if family == "go" and (text := _small(os.path.join(os.path.dirname(real), "../VERSION"))):
            return parse_version(text), {}
        return self._asked(family, place, real), {}

    def _of_shims(
        self, family: str, root: str, wish: Wish
    ) -> tuple[Version | None, dict[str, str]]:
        """The version that is on, if it will do; else the newest installed one that will. Either
        way the variable says which: shims refuse to work where a file asks for another one."""
        variable = _SHIMS[family]
        installed = {
            version: name
            for name in _listed(os.path.join(root, "versions"))
            if name[:1].isdigit() and (version := parse_version(name)) is not None
        }
        on = (
            self._environment.get(variable) or (_small(os.path.join(root, "version")) or "").strip()
        )
        # Several may be on, the first of them is what the name of the program means.
        on = on.replace(":", " ").split()[0] if on.split() else ""
        current = parse_version(on) if on[:1].isdigit() else None
        if current is not None and wish.allows(current) and current in installed:
            return current, {variable: installed[current]}
        fitting = [version for version in installed if wish.allows(version)]
        if fitting:
            return max(fitting), {variable: installed[max(fitting)]}
        return current, {variable: installed[current]} if current in installed else {}

    def _of_rustup(self, place: str, wish: Wish) -> tuple[Version | None, dict[str, str]] | None:
        """A toolchain that is installed under its number; the default one is asked."""
        if not os.path.lexists(os.path.join(os.path.dirname(place), "rustup")):
            return None
        home = self._environment.get("RUSTUP_HOME") or os.path.join(
            self._environment.get("HOME", "/"), ".rustup"
        )
        default = self._asked("rust", place, os.path.realpath(place))
        if default is not None and wish.allows(default):
            return default, {}
        for name in sorted(_listed(os.path.join(home, "toolchains")), reverse=True):
            version = parse_version(name.partition("-")[0]) if name[:1].isdigit() else None
            if version is not None and wish.allows(version):
                return version, {"RUSTUP_TOOLCHAIN": name.partition("-")[0]}
        return default, {}

    def _asked(self, family: str, place: str, real: str) -> Version | None:
        """The program's own words. None if it lies in the project: then nothing is run."""
        if any(_below(real, project) or _below(place, project) for project in self._projects):
            return None
        try:
            info = os.stat(real)
        except OSError:
            return None
        mark = [info.st_mtime_ns, info.st_size, info.st_ino]
        kept = self._kept()
        known = kept.get(place)
        if isinstance(known, list) and known[:-1] == mark and isinstance(known[-1], str):
            return parse_version(known[-1])
        words = self._words(family, place)
        version = parse_version(words)
        if version is not None:
            self._keep(kept, place, [*mark, ".".join(map(str, version))])
        return version

    def _words(self, family: str, place: str) -> str:
        passed = {name: self._environment[name] for name in _PASSED if name in self._environment}
        try:
            done = subprocess.run(
                [place, *_QUESTIONS.get(family, ["--version"])],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd="/",
                env=passed | _OURS,
                timeout=ASK_SECONDS,
                check=False,
            )
        except (OSError, subprocess.SubprocessError, ValueError):
            return ""
        return done.stdout[:2000].decode("utf-8", "replace") if done.returncode == 0 else ""

    def _kept(self) -> dict[str, object]:
        try:
            found = json.loads(_small(self._memory or "") or "{}")
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def _keep(self, kept: dict[str, object], place: str, entry: list[object]) -> None:
        """A moment's file is put in the place of the other: readers see one or the other."""
        if self._memory is None:
            return
        kept.pop(place, None)
        entries = [*kept.items(), (place, entry)][-_MOST_KEPT:]
        moment = f"{self._memory}.{os.getpid()}"
        with contextlib.suppress(OSError, ValueError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with open(os.open(moment, flags, 0o600), "w", encoding="utf-8") as file:
                json.dump(dict(entries), file)
            os.replace(moment, self._memory)


def _is_system(path: str) -> bool:
    return path.startswith(("/usr/", "/bin/", "/sbin/"))


def _below(path: str, directory: str) -> bool:
    return path.startswith(directory.rstrip("/") + "/")


def _listed(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))[:512]
    except OSError:
        return []


def _small(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(_MOST_BYTES)
    except (OSError, ValueError):
        return None
