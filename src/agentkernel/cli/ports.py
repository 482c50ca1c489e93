"""`agentkernel port …`: ports of sandboxes on this machine, and their previews."""

from __future__ import annotations

import argparse
import json
from typing import Any

from agentkernel.cli.notices import Connected
from agentkernel.cli.several import for_each
from agentkernel.cli.tables import show
from agentkernel.client._sync.sandbox import Sandbox
from agentkernel.client.results import PortInfo


def main(options: argparse.Namespace) -> int:
    verbs = {"publish": _publish, "unpublish": _unpublish, "list": _list}
    with Connected() as transport:
        sandbox = Sandbox.connect(options.name, transport=transport)
        return verbs[options.verb](options, sandbox)


def _publish(options: argparse.Namespace, sandbox: Sandbox) -> int:
    def act(port: str) -> dict[str, Any]:
        made = sandbox.ports.publish(port, public=options.public)
        if not options.json:
            print(_where(made) or made.preview_url or made.preview_path)
        return made.raw

    return for_each(options.ports, act, as_json=options.json, what="ports", told=True)


def _unpublish(options: argparse.Namespace, sandbox: Sandbox) -> int:
    def act(port: str) -> dict[str, Any]:
        sandbox.ports.unpublish(int(port))
        return {"port": int(port)}

    return for_each([str(port) for port in options.ports], act, as_json=options.json, what="ports")


def _list(options: argparse.Namespace, sandbox: Sandbox) -> int:
    found = sandbox.ports.list()
    if options.json:
        print(json.dumps({"ports": [port.raw for port in found]}))
        return 0
    rows = [
        (
            str(port.port),
            _where(port) or "-",
            port.error or "open",
            "everybody" if port.public else "token",
            port.preview_url or port.preview_path,
        )
        for port in found
    ]
    show(("PORT", "ON", "STATUS", "PREVIEW FOR", "PREVIEW"), rows)
    return 0


def _where(port: PortInfo) -> str | None:
    if port.address is None or port.host_port is None:
        return None
    address = f"[{port.address}]" if ":" in port.address else port.address
    return f"{address}:{port.host_port}"
