"""Anthropic's Messages."""

from __future__ import annotations

import json
from typing import Any

from .conversation import Conversation, flat
from .replies import Reply, as_events, as_json, event, pieces
from .script import Script
from .tools import Call


def read(body: dict[str, Any]) -> Conversation:
    found = Conversation("anthropic", body.get("model", ""), bool(body.get("stream")))
    found.system = flat(body.get("system", ""))
    for tool in body.get("tools") or []:
        found.tools[tool["name"]] = tool.get("input_schema", {}).get("properties", {})
    for message in body.get("messages", []):
        content = message.get("content", "")
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        texts = [part["text"] for part in parts if part.get("type") == "text"]
        if message["role"] == "assistant":
            found.said += ["".join(texts)] if texts else []
        else:
            found.prompts += texts
            found.results += [
                flat(part.get("content", "")) for part in parts if part.get("type") == "tool_result"
            ]
    return found


def write(answer: str | Call, talk: Conversation, script: Script, id: str) -> Reply:
    usage = {"input_tokens": script.input_tokens, "output_tokens": script.output_tokens}
    usage |= {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    block: dict[str, Any]
    if isinstance(answer, Call):
        block = {"type": "tool_use", "id": f"toolu_{id}", "name": answer.name}
        block["input"] = answer.arguments
        reason = "tool_use"
        deltas = [
            {"type": "input_json_delta", "partial_json": piece}
            for piece in pieces(json.dumps(answer.arguments))
        ]
        empty = {**block, "input": {}}
    else:
        block = {"type": "text", "text": answer}
        reason = "end_turn"
        deltas = [{"type": "text_delta", "text": piece} for piece in pieces(answer)]
        empty = {**block, "text": ""}
    message: dict[str, Any] = {
        "id": f"msg_{id}",
        "type": "message",
        "role": "assistant",
        "model": talk.model,
        "content": [block],
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": usage,
    }
    if not talk.stream:
        return as_json(message)
    begun = {**message, "content": [], "stop_reason": None}
    ended = {"stop_reason": reason, "stop_sequence": None}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": begun},
        {"type": "content_block_start", "index": 0, "content_block": empty},
        {"type": "ping"},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ended, "usage": usage},
        {"type": "message_stop"},
    ]
    return as_events(event(each, each["type"]) for each in events)


def refuse(status: int, words: str) -> Reply:
    kind = "authentication_error" if status == 401 else "invalid_request_error"
    return as_json({"type": "error", "error": {"type": kind, "message": words}}, status)
