"""An editor: the official client, and what it was told and asked."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import acp
from acp import schema


@dataclass
class Editor:
    """Has what the official client's `Client` has, as far as an editor is ever asked for it.
    `choose`: the option for each permission question; `choose_of` is told which there are.
    `meanwhile`: what is done before it is answered."""

    choose: Callable[[dict[str, Any]], str | None] = lambda call: None
    choose_of: Callable[[dict[str, Any], list[dict[str, Any]]], str | None] | None = None
    meanwhile: Callable[[], Awaitable[None]] | None = None
    updates: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    questions: list[dict[str, Any]] = field(default_factory=list)
    host_calls: list[str] = field(default_factory=list)

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        self.updates.append((session_id, update.model_dump(by_alias=True, exclude_none=True)))

    async def request_permission(
        self, options: Any, session_id: str, tool_call: Any, **kwargs: Any
    ) -> schema.RequestPermissionResponse:
        call = tool_call.model_dump(by_alias=True, exclude_none=True)
        self.questions.append(call)
        if self.meanwhile is not None:
            await self.meanwhile()
        if self.choose_of is not None:
            known = [option.model_dump(by_alias=True) for option in options]
            chosen = self.choose_of(call, known)
        else:
            chosen = self.choose(call)
        outcome: Any = schema.DeniedOutcome(outcome="cancelled")
        if chosen is not None:
            outcome = schema.AllowedOutcome(outcome="selected", option_id=chosen)
        return schema.RequestPermissionResponse(outcome=outcome)

    async def read_text_file(self, *arguments: Any, **kwargs: Any) -> Any:
        self.host_calls.append("read_text_file")
        raise acp.RequestError.internal_error()

    async def write_text_file(self, *arguments: Any, **kwargs: Any) -> Any:
        self.host_calls.append("write_text_file")
        raise acp.RequestError.internal_error()

    async def create_terminal(self, *arguments: Any, **kwargs: Any) -> Any:
        self.host_calls.append("create_terminal")
        raise acp.RequestError.internal_error()

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.host_calls.append(method)
        return {}

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        self.host_calls.append(method)

    def said(self, session: str) -> list[str]:
        return [
            update["content"]["text"]
            for known, update in self.updates
            if known == session and update["sessionUpdate"] == "agent_message_chunk"
        ]

    def calls(self, id: str) -> list[dict[str, Any]]:
        return [update for _, update in self.updates if update.get("toolCallId") == id]


async def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 40
    while not condition():
        assert time.monotonic() < end, "it never came to that"
        await asyncio.sleep(0.02)


@dataclass
class Connection:
    agent: Any
    process: Any
    hello: Any


@contextlib.asynccontextmanager
async def bridge(
    editor: Editor,
    state: Path,
    *words: str,
    cwd: Path,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Connection]:
    """`agentkernel acp` as an editor starts it, introduced."""
    given = {**(environment or os.environ), "AGENTKERNEL_STATE_DIR": str(state)}
    async with acp.spawn_agent_process(
        cast(Any, editor),
        sys.executable,
        "-m",
        "agentkernel",
        "acp",
        *words,
        env=given,
        cwd=str(cwd),
        transport_kwargs={"limit": 1 << 25},
    ) as (agent, process):
        hello = await agent.initialize(
            protocol_version=acp.PROTOCOL_VERSION,
            client_capabilities=schema.ClientCapabilities(
                fs=schema.FileSystemCapabilities(read_text_file=True, write_text_file=True),
                terminal=True,
            ),
        )
        yield Connection(agent, process, hello)
