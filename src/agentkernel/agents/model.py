"""Words that an agent's sessions and what is made for them share."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class McpServer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An MCP server that an agent is to have: a `command`, which runs inside, or the `url` of one
    that runs elsewhere. One on this machine's loopback is reached through the gateway by name.
    ${NAME} in `env` and `headers` is a secret, of which a placeholder enters. `allow`: hosts that
    it needs besides, as in NetworkRequest; `secrets`: secrets that it uses, as in SandboxSpec."""

    name: Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_-]{1,32}\Z")]
    command: Annotated[list[str], Meta(max_length=64)] = []
    env: dict[str, str] = {}
    url: Annotated[str, Meta(max_length=2048)] = ""
    headers: dict[str, str] = {}
    allow: Annotated[list[str], Meta(max_length=64)] = []
    secrets: Annotated[list[str], Meta(max_length=32)] = []


class AgentUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent says it has used; None: it does not say."""

    cost_usd: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    turns: int | None = None
