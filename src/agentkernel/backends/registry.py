"""The engines there are, by name. One is imported and made when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from agentkernel.backends.base import Backend
from agentkernel.errors import InvalidInputError

DEFAULT_BACKEND = "native"


def _native(state_dir: Path) -> Backend:
    from agentkernel.backends.native.backend import NativeBackend

    return NativeBackend(state_dir)


def _runc(state_dir: Path) -> Backend:
    from agentkernel.backends.oci.backend import RuncBackend

    return RuncBackend(state_dir)


def _crun(state_dir: Path) -> Backend:
    from agentkernel.backends.oci.backend import CrunBackend

    return CrunBackend(state_dir)


def _gvisor(state_dir: Path) -> Backend:
    from agentkernel.backends.oci.gvisor import GvisorBackend

    return GvisorBackend(state_dir)


_ENGINES: dict[str, Callable[[Path], Backend]] = {
    "native": _native,
    "runc": _runc,
    "crun": _crun,
    "gvisor": _gvisor,
}


def backend_names() -> tuple[str, ...]:
    return tuple(_ENGINES)


class Backends:
    """The engines of one state directory. A sandbox stays with the one that made it."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._made: dict[str, Backend] = {}

    def __getitem__(self, name: str) -> Backend:
        """Raises InvalidInputError for a name that this version has no engine for."""
        if name not in self._made:
            if name not in _ENGINES:
                raise InvalidInputError(
                    f"there is no backend called {name!r}", hint=f"one of: {', '.join(_ENGINES)}"
                )
            self._made[name] = _ENGINES[name](self._state_dir)
        return self._made[name]

    def __iter__(self) -> Iterator[Backend]:
        """All of them: what a crash left may belong to any."""
        return (self[name] for name in _ENGINES)

    async def collect_garbage(self) -> int:
        return sum([await backend.collect_garbage() for backend in self])
