"""`agentkernel token …`: who may use the daemon over a network."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from agentkernel.cli.notices import Connected
from agentkernel.cli.outcome import say
from agentkernel.cli.several import for_each
from agentkernel.cli.tables import ago, show, until
from agentkernel.client._sync.tokens import Tokens
from agentkernel.client.results import TokenInfo

_LOCAL = "local"


def main(options: argparse.Namespace) -> int:
    verbs = {"create": _create, "list": _list, "revoke": _revoke}
    with Connected() as transport:
        return verbs[options.verb](options, Tokens(transport))


def _create(options: argparse.Namespace, tokens: Tokens) -> int:
    made = tokens.create(
        options.name,
        owner=options.owner,
        scopes=options.scope,
        expires_seconds=options.expires,
    )
    if options.json:
        print(json.dumps(made.raw))
        return 0
    print(made.token)
    say("this is the only time it is shown; whoever has it may do what it may")
    if made.owner == _LOCAL:
        say("it acts as you: your own sandboxes are its own")
    for scope, what in (
        ("host-paths", "any directory of this machine that you can read"),
        ("admin", "every sandbox, all tokens and the daemon"),
    ):
        if scope in made.scopes:
            say(f"{scope}: it reaches {what}")
    return 0


def _list(options: argparse.Namespace, tokens: Tokens) -> int:
    found = tokens.list()
    if not options.all:
        found = [token for token in found if _state(token) == "valid"]
    if options.json:
        print(json.dumps({"tokens": [token.raw for token in found]}))
        return 0
    rows = [
        (
            token.name,
            token.id,
            token.owner,
            ",".join(token.scopes),
            _state(token),
            ago(token.created_at),
            until(token.expires_at),
            ago(token.last_used_at),
        )
        for token in found
    ]
    show(("NAME", "ID", "OWNER", "SCOPES", "STATUS", "AGE", "ENDS IN", "LAST USE"), rows)
    return 0


def _state(token: TokenInfo) -> str:
    if token.revoked_at is not None:
        return "revoked"
    ended = token.expires_at is not None and token.expires_at <= time.time()
    return "expired" if ended else "valid"


def _revoke(options: argparse.Namespace, tokens: Tokens) -> int:
    def act(name: str) -> dict[str, Any]:
        return tokens.revoke(name).raw

    return for_each(options.tokens, act, as_json=options.json, what="tokens")
