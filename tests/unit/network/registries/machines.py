"""Made-up machines: a root directory with files, a home, variables."""

from __future__ import annotations

from pathlib import Path

from agentkernel.network.registries.machine import read_machine
from agentkernel.network.registries.model import Ecosystem, Machine, Registry

HOME = "/home/me"


class FakeMachine:
    """`~` in a path is the user's home. What is written stands below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environment: dict[str, str] = {}
        (root / HOME.strip("/")).mkdir(parents=True)

    def path(self, name: str) -> Path:
        return self.root / name.replace("~", HOME).strip("/")

    def write(self, name: str, text: str | bytes, mode: int = 0o644) -> Path:
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        path.chmod(mode)
        return path

    def read(self, **environment: str) -> Machine:
        return read_machine(self.environment | environment, Path(HOME), self.root)


def of(machine: Machine, ecosystem: Ecosystem) -> list[Registry]:
    return [item for item in machine.registries if item.ecosystem == ecosystem]


def urls(machine: Machine, ecosystem: Ecosystem) -> list[str]:
    return [item.url for item in of(machine, ecosystem) if item.named]


def public(machine: Machine, ecosystem: Ecosystem) -> list[str]:
    return [item.host for item in of(machine, ecosystem) if not item.named]


SECRET = "correct-horse-battery-staple"


def with_login(url: str, name: str = "me", password: str = SECRET) -> str:
    return url.replace("://", f"://{name}:{password}@", 1)
