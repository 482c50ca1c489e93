"""`agentkernel secret …`: values that sandboxes use without knowing them.

A value is read from stdin, or from the terminal without being shown. Never from the command line:
every user of the machine can see that, and the shell keeps it.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from agentkernel.cli.notices import Connected
from agentkernel.cli.outcome import say
from agentkernel.cli.several import for_each
from agentkernel.cli.tables import ago, show
from agentkernel.client._sync.secrets import Secrets
from agentkernel.client.results import SecretInfo
from agentkernel.errors import InvalidInputError

_MOST_BYTES = 64 << 10


def main(options: argparse.Namespace) -> int:
    verbs = {"set": _set, "rotate": _rotate, "list": _list, "remove": _remove}
    with Connected() as transport:
        return verbs[options.verb](options, Secrets(transport))


def _set(options: argparse.Namespace, secrets: Secrets) -> int:
    return _told(options, secrets.set(options.name, _value(options.name)))


def _rotate(options: argparse.Namespace, secrets: Secrets) -> int:
    return _told(options, secrets.rotate(options.name, _value(options.name)))


def _value(name: str) -> str:
    """What was given, without the one line's end that programs add."""
    if sys.stdin.isatty():
        from getpass import getpass

        value = getpass(f"value of {name} (not shown): ")
    else:
        data = sys.stdin.buffer.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise InvalidInputError("that is too long for a secret")
        value = data.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")
    if not value:
        raise InvalidInputError(
            "no value was given",
            hint=f"type it when asked, or send it: `agentkernel secret set {name} < FILE`",
        )
    return value


def _told(options: argparse.Namespace, secret: SecretInfo) -> int:
    if options.json:
        print(json.dumps(secret.raw))
        return 0
    print(secret.name)
    if secret.rotated_at is not None and secret.sandboxes:
        say(f"used from now on by {', '.join(secret.sandboxes)}")
    return 0


def _list(options: argparse.Namespace, secrets: Secrets) -> int:
    found = secrets.list()
    if options.json:
        print(json.dumps({"secrets": [secret.raw for secret in found]}))
        return 0
    rows = [
        (
            secret.name,
            ago(secret.created_at),
            ago(secret.rotated_at),
            secret.kept,
            ",".join(secret.sandboxes),
        )
        for secret in found
    ]
    show(("NAME", "AGE", "ROTATED", "KEPT IN", "SANDBOXES"), rows)
    return 0


def _remove(options: argparse.Namespace, secrets: Secrets) -> int:
    def act(name: str) -> dict[str, Any]:
        gone = secrets.remove(name)
        if gone.sandboxes:
            say(f"{name} was bound to {', '.join(gone.sandboxes)}, which can't use it any more")
        return gone.raw

    return for_each(options.secrets, act, as_json=options.json, what="secrets")
