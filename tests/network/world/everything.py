"""All servers of the world on this machine's loopback, and the configuration that leads to them.

Names that are taken from `network.hosts`, each an address of 127/8:

    good.test, twin.test, other.test, *.many.test    one address, certificates of the test authority
    expired.test, selfsigned.test, wrong.test        TLS that must not be trusted
    evil.test and its like                           what no rule allows
    metadata.test                                    what stands for a cloud's metadata service

Every other name is asked of the world's own name server.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .authority import Authority
from .forwarder import Forwarder
from .listening import Listener, Recorder
from .names import NameServer
from .packages import GitServer, PackageIndex
from .web import Answer, Web

GOOD = ("good.test", "twin.test", "other.test", "secret.test", "git.test", "index.test")
BAD = ("expired.test", "selfsigned.test", "wrong.test")
EVIL = ("evil.test", "notgood.test", "good.test.evil.test", "xn--gd-fkaa.test")
METADATA = b"role-credentials-of-the-machine"


class World:
    """Up from the moment it is made until `close`."""

    def __init__(self, place: Path) -> None:
        self.authority = Authority(place)
        good = self.authority.context(
            *GOOD, "*.many.test", "rebind.test", "flip.test", "mixed.test"
        )
        contexts = {
            "": good,
            "expired.test": self.authority.context("expired.test", kind="expired"),
            "selfsigned.test": self.authority.context("selfsigned.test", kind="self-signed"),
            "wrong.test": self.authority.context("somebody-else.test"),
        }
        self.plain = Web()
        self.tls = Web(contexts)
        self.metadata = Web()
        self.metadata.handlers["/"] = lambda request: Answer(body=METADATA)
        self.recorder = Recorder()
        self.forwarder = Forwarder()
        self.names = NameServer()
        self.git = GitServer(place)
        self.index = PackageIndex()
        for web in (self.plain, self.tls):
            web.handlers["/git/"] = self.git
            web.handlers["/simple/"] = self.index
        self._place = place

    @property
    def listeners(self) -> list[Listener]:
        return [self.plain, self.tls, self.metadata, self.recorder, self.forwarder]

    @property
    def hosts(self) -> dict[str, str]:
        names = (*GOOD, *BAD, *EVIL, "metadata.test", "a.many.test")
        return dict.fromkeys(names, "127.0.0.1")

    def configure(self, config_home: Path, **more: Any) -> None:
        """Writes the user's config.toml. `more`: other keys of `network`; None takes one away."""
        settings: dict[str, Any] = {
            "resolver": f"127.0.0.1:{self.names.port}",
            "upstream_ca": str(self.authority.ca_path),
            "upstream_proxy": "none",
            **more,
            "hosts": self.hosts,
        }
        settings = {key: value for key, value in settings.items() if value is not None}
        file = config_home / "agentkernel" / "config.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(_table("network", settings)) + "\n")

    def received(self) -> bytes:
        """Every byte that any of the servers was sent, names that were asked for included."""
        asked = "\n".join(question.name for question in list(self.names.questions))
        return b"\n".join([*(each.received() for each in self.listeners), asked.encode()])

    def close(self) -> None:
        self.names.close()
        for listener in self.listeners:
            listener.close()


def _table(name: str, values: Mapping[str, Any]) -> list[str]:
    """TOML of strings, numbers, lists and tables of those."""
    plain = {key: value for key, value in values.items() if not isinstance(value, Mapping)}
    lines = [f"[{name}]", *(f'"{key}" = {json.dumps(value)}' for key, value in plain.items())]
    for key, value in values.items():
        if isinstance(value, Mapping):
            lines += _table(f"{name}.{key}", value)
    return lines
