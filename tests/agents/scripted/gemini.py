"""Gemini's generateContent, as an API key has it and as a login (Code Assist) has it."""

from __future__ import annotations

from typing import Any

from .conversation import Conversation
from .replies import Reply, as_events, as_json, event, pieces
from .script import Script
from .tools import Call


def read(body: dict[str, Any], model: str, *, stream: bool) -> Conversation:
    body = body.get("request", body)
    found = Conversation("gemini", model, stream)
    found.system = _text(body.get("systemInstruction") or {})
    found.schema = body.get("generationConfig", {}).get("responseJsonSchema")
    for group in body.get("tools") or []:
        for tool in group.get("functionDeclarations") or []:
            schema = tool.get("parametersJsonSchema") or tool.get("parameters") or {}
            found.tools[tool["name"]] = schema.get("properties", {})
    for content in body.get("contents", []):
        text = _text(content)
        if content.get("role") == "model":
            found.said += [text] if text else []
            continue
        found.prompts += [text] if text else []
        found.results += [
            str(part["functionResponse"].get("response"))
            for part in content.get("parts", [])
            if "functionResponse" in part
        ]
    return found


def write(
    answer: str | Call, talk: Conversation, script: Script, id: str, *, wrapped: bool
) -> Reply:
    """`wrapped`: as Code Assist does."""
    if isinstance(answer, Call):
        call = {"name": answer.name, "args": answer.arguments, "id": f"call_{id}"}
        parts: list[dict[str, Any]] = [{"functionCall": call}]
    else:
        parts = [{"text": piece} for piece in pieces(answer)] if talk.stream else [{"text": answer}]
    chunks: list[dict[str, Any]] = []
    for part in parts:
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": [part]}, "index": 0}
        chunks.append({"candidates": [candidate], "modelVersion": talk.model, "responseId": id})
    chunks[-1]["candidates"][0]["finishReason"] = "STOP"
    chunks[-1]["usageMetadata"] = {
        "promptTokenCount": script.input_tokens,
        "candidatesTokenCount": script.output_tokens,
        "totalTokenCount": script.input_tokens + script.output_tokens,
    }
    if wrapped:
        chunks = [{"response": chunk} for chunk in chunks]
    return as_events(map(event, chunks)) if talk.stream else as_json(chunks[0])


def refuse(status: int, words: str) -> Reply:
    name = "UNAUTHENTICATED" if status == 401 else "INVALID_ARGUMENT"
    return as_json({"error": {"code": status, "message": words, "status": name}}, status)


def _text(content: dict[str, Any]) -> str:
    return "\n".join(part["text"] for part in content.get("parts", []) if part.get("text"))
