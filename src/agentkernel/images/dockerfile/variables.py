"""What a name stands for in a stage: ARG, ENV, what the caller gave, what is known beforehand.

ENV beats ARG, whichever comes later. An ARG before the first FROM counts there, and in a stage only
once the stage names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agentkernel.errors import InvalidInputError
from agentkernel.images.dockerfile.model import Arg
from agentkernel.images.dockerfile.words import expand
from agentkernel.images.oci.model import Platform

MAX_TEXT = 32 << 20
MAX_VARIABLES = 4096
# May be given without an ARG, and leave no trace: neither in the history nor in the cache's keys.
PROXIES = frozenset(
    name
    for word in ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY")
    for name in (word, word.lower())
)


def platform_arguments(platform: Platform) -> dict[str, str]:
    return {
        f"{kind}{name}": value
        for kind in ("BUILD", "TARGET")
        for name, value in (
            ("PLATFORM", platform.words),
            ("OS", platform.os),
            ("ARCH", platform.architecture),
            ("VARIANT", platform.variant),
        )
    }


def check_count(count: int) -> None:
    """Each is looked at for each other. Raises InvalidInputError."""
    if count > MAX_VARIABLES:
        raise InvalidInputError(f"the build has more than {MAX_VARIABLES} variables or labels")


class Arguments:
    """Those before the first FROM, and the values that the caller gave. `unused` are names that the
    caller gave and no ARG has asked for so far."""

    def __init__(self, given: Mapping[str, str], platform: Platform, escape: str = "\\") -> None:
        self.given = dict(given)
        self.escape = escape
        self.unused = set(given) - PROXIES
        self._known = platform_arguments(platform)
        self._global: dict[str, str] = {}
        self._left = MAX_TEXT

    def declare(self, arguments: Iterable[Arg]) -> None:
        for argument in arguments:
            for name, default in argument.names:
                if name in self.given:
                    self.unused.discard(name)
                    self._global[name] = self.given[name]
                elif default is not None:
                    self._global[name] = self.expand(default)
                check_count(len(self._global))

    def expand(self, text: str) -> str:
        """In a FROM, or in an ARG before it."""
        return self.counted(expand(text, {**self._known, **self._global}, escape=self.escape))

    def counted(self, text: str) -> str:
        """Few lines may stand for many large values: all that a build works out is bounded."""
        self._left -= len(text)
        if self._left < 0:
            raise InvalidInputError(
                f"the values of the build are more than {MAX_TEXT >> 20} MiB together"
            )
        return text

    def value(self, name: str) -> str | None:
        """Of an ARG that a stage names without a default. None: it is declared and has none."""
        if name in self.given:
            self.unused.discard(name)
            return self.given[name]
        return {**self._known, **self._global}.get(name)


class StageVariables:
    """Of one stage, as far as it has come. `declared` are its ARGs that have a value."""

    def __init__(self, arguments: Arguments, environment: Mapping[str, str]) -> None:
        self._arguments = arguments
        self.environment = dict(environment)
        self.declared: dict[str, str] = {}
        self._proxies = {name: value for name, value in arguments.given.items() if name in PROXIES}

    def declare(self, argument: Arg) -> None:
        for name, default in argument.names:
            value = self._arguments.value(name)
            if default is not None and name not in self._arguments.given:
                value = self.expand(default)
            if value is not None:
                self.declared[name] = value
            check_count(len(self.declared))

    def expand(self, text: str) -> str:
        arguments = self._arguments
        return arguments.counted(expand(text, self.all, escape=arguments.escape))

    @property
    def escape(self) -> str:
        return self._arguments.escape

    @property
    def all(self) -> dict[str, str]:
        return {**self._proxies, **self.declared, **self.environment}

    @property
    def recorded(self) -> dict[str, str]:
        """The ARGs that a command sees: part of its key in the cache and of the history."""
        return {
            name: value
            for name, value in self.declared.items()
            if name not in self.environment and name not in PROXIES
        }

    @property
    def of_a_command(self) -> dict[str, str]:
        return self.all
