"""What steps make of an image's config, as docker does it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from agentkernel.errors import InvalidInputError
from agentkernel.images.dockerfile.model import (
    Cmd,
    Command,
    Entrypoint,
    Env,
    Expose,
    Healthcheck,
    Label,
    Maintainer,
    Shell,
    Step,
    StopSignal,
    User,
    Volume,
    Workdir,
)
from agentkernel.images.dockerfile.variables import StageVariables, check_count
from agentkernel.images.dockerfile.words import expand_words
from agentkernel.images.oci.model import ContainerConfig, ImageConfig
from agentkernel.images.oci.model import Healthcheck as RecordedCheck

DEFAULT_SHELL = ("/bin/sh", "-c")
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_EMPTY = msgspec.Raw(b"{}")
_PORT = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?(?:/(tcp|udp|sctp))?\Z")
_MAX_PORTS = 4096
replace = msgspec.structs.replace


def started_from(config: ContainerConfig) -> ContainerConfig:
    """A stage's config at its beginning."""
    if any(entry.startswith("PATH=") for entry in config.env or ()):
        return config
    return replace(config, env=[f"PATH={DEFAULT_PATH}", *(config.env or ())])


class Changing:
    """The config of a stage, as far as it has come."""

    def __init__(self, image: ImageConfig, variables: StageVariables) -> None:
        self.author = image.author
        self.config = started_from(image.process)
        self._variables = variables
        # A CMD of the image below says nothing about an ENTRYPOINT that is set on top of it.
        self._has_cmd = False

    @property
    def shell(self) -> tuple[str, ...]:
        return tuple(self.config.shell or DEFAULT_SHELL)

    def words_of(self, command: Command) -> list[str]:
        return [*self.shell, *command.words] if command.is_shell else list(command.words)

    def apply(self, step: Step) -> bool:
        """False: it is no step that changes nothing but the config. Raises InvalidInputError."""
        change = _CHANGES.get(type(step))
        if change is None:
            return False
        self.config = change(self, step)
        return True

    def set_environment(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Later ones of one step do not see the earlier: all are worked out before."""
        check_count(len(pairs))
        expand = self._variables.expand
        entries = list(self.config.env or ())
        places: dict[str, int] = {}
        for number, entry in enumerate(entries):
            places.setdefault(entry.partition("=")[0], number)
        for name, value in [(expand(name), expand(value)) for name, value in pairs]:
            if not name or "=" in name or "\0" in name + value:
                raise InvalidInputError(f"{name[:100]!r} can't be the name of a variable")
            self._variables.environment[name] = value
            place = places.setdefault(name, len(entries))
            entries[place : place + 1] = [f"{name}={value}"]
        check_count(len(entries))
        self.config = replace(self.config, env=entries)

    # -- one step each ---------------------------------------------------------------------------

    def env(self, step: Env) -> ContainerConfig:
        self.set_environment(step.pairs)
        return self.config

    def label(self, step: Label) -> ContainerConfig:
        expand = self._variables.expand
        check_count(len(step.pairs) + len(self.config.labels or ()))
        new = {expand(name): expand(value) for name, value in step.pairs}
        return replace(self.config, labels={**(self.config.labels or {}), **new})

    def workdir(self, step: Workdir) -> ContainerConfig:
        path = self._variables.expand(step.path)
        if not path or "\0" in path:
            raise InvalidInputError("WORKDIR names no path")
        return replace(self.config, working_dir=joined(self.config.working_dir, path))

    def user(self, step: User) -> ContainerConfig:
        user = self._variables.expand(step.user)
        if not user or "\0" in user:
            raise InvalidInputError("USER names nobody")
        return replace(self.config, user=user)

    def entrypoint(self, step: Entrypoint) -> ContainerConfig:
        words = self.words_of(step.command)
        cmd = self.config.cmd if self._has_cmd else None
        return replace(self.config, entrypoint=words or None, cmd=cmd)

    def cmd(self, step: Cmd) -> ContainerConfig:
        self._has_cmd = True
        return replace(self.config, cmd=self.words_of(step.command) or None)

    def expose(self, step: Expose) -> ContainerConfig:
        ports = dict(self.config.exposed_ports or {})
        variables = self._variables
        for text in step.ports:
            for word in expand_words(text, variables.all, escape=variables.escape):
                ports |= dict.fromkeys(_ports(word), _EMPTY)
        return replace(self.config, exposed_ports=dict(sorted(ports.items())) or None)

    def set_shell(self, step: Shell) -> ContainerConfig:
        return replace(self.config, shell=list(step.words))

    def volume(self, step: Volume) -> ContainerConfig:
        paths = [self._variables.expand(path) for path in step.paths]
        if not all(paths):
            raise InvalidInputError("VOLUME names no path")
        volumes = {**(self.config.volumes or {}), **dict.fromkeys(paths, _EMPTY)}
        return replace(self.config, volumes=dict(sorted(volumes.items())))

    def stop_signal(self, step: StopSignal) -> ContainerConfig:
        return replace(self.config, stop_signal=self._variables.expand(step.signal))

    def maintainer(self, step: Maintainer) -> ContainerConfig:
        self.author = step.author
        return self.config

    def healthcheck(self, step: Healthcheck) -> ContainerConfig:
        if step.command is None:
            check = RecordedCheck(test=["NONE"])
        else:
            kind = "CMD-SHELL" if step.command.is_shell else "CMD"
            check = RecordedCheck(
                test=[kind, *step.command.words],
                interval=step.interval,
                timeout=step.timeout,
                start_period=step.start_period,
                start_interval=step.start_interval,
                retries=step.retries,
            )
        return replace(self.config, healthcheck=check)


_CHANGES: Mapping[type[Step], Callable[[Changing, Any], ContainerConfig]] = {
    Env: Changing.env,
    Label: Changing.label,
    Workdir: Changing.workdir,
    User: Changing.user,
    Entrypoint: Changing.entrypoint,
    Cmd: Changing.cmd,
    Expose: Changing.expose,
    Shell: Changing.set_shell,
    Volume: Changing.volume,
    StopSignal: Changing.stop_signal,
    Maintainer: Changing.maintainer,
    Healthcheck: Changing.healthcheck,
}


def joined(directory: str, path: str) -> str:
    """A path that may be from `directory`, clean."""
    whole = posixpath.normpath(posixpath.join("/", directory, path))
    return "/" + whole.lstrip("/")


def _ports(text: str) -> list[str]:
    match = _PORT.match(text)
    if match is None:
        raise InvalidInputError(
            f"{text[:100]!r} is no port", hint="write PORT, PORT/udp or FIRST-LAST"
        )
    first, last, protocol = match.groups()
    low, high = int(first), int(last or first)
    if not 0 < low <= high < 65536 or high - low >= _MAX_PORTS:
        raise InvalidInputError(f"{text[:100]!r} is no port")
    return [f"{port}/{protocol or 'tcp'}" for port in range(low, high + 1)]
