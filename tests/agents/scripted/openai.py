"""OpenAI's Responses and Chat Completions."""

from __future__ import annotations

import json
import re
import time
from typing import Any

from .conversation import Conversation, flat
from .replies import Reply, as_events, as_json, event, pieces
from .script import Script
from .tools import Call

# Tools that are declared in the text of another, for code that calls them.
_DECLARED = re.compile(r"declare const tools: \{ (\w+)\((.*?)\): Promise", re.DOTALL)
_FIELD = re.compile(r"^  (\w+)\??:", re.MULTILINE)


def read_responses(body: dict[str, Any]) -> Conversation:
    found = Conversation("responses", body.get("model", ""), bool(body.get("stream")))
    found.system = flat(body.get("instructions") or "")
    _offer(found, body.get("tools") or [])
    given = body.get("input", [])
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    for item in given:
        if item.get("type") == "additional_tools":
            _offer(found, item["tools"])
        elif item.get("type", "").endswith("_call_output"):
            found.results.append(flat(item.get("output", "")))
        elif item.get("role") == "assistant":
            found.said.append(flat(item.get("content", "")))
        elif item.get("role") == "user":
            found.prompts.append(flat(item.get("content", "")))
        elif item.get("role") in ("system", "developer"):
            found.system += "\n" + flat(item.get("content", ""))
    return found


def _offer(found: Conversation, tools: list[dict[str, Any]]) -> None:
    for tool in tools:
        if tool.get("type") == "namespace":
            _offer(found, tool["tools"])
        elif tool.get("type") == "function":
            found.tools[tool["name"]] = tool.get("parameters", {}).get("properties", {})
        elif tool.get("type") == "custom" and "declare const tools" in tool.get("description", ""):
            found.in_code = tool["name"]
            for name, parameters in _DECLARED.findall(tool["description"]):
                free = parameters.startswith("input:")
                found.tools[name] = None if free else dict.fromkeys(_FIELD.findall(parameters), {})
        elif tool.get("type") == "custom":
            found.tools[tool["name"]] = None


def _in_code(call: Call, tool: str) -> Call:
    """The same call as JavaScript. What it answers is what the code tells."""
    given = json.dumps(call.arguments if call.text is None else call.text)
    return Call(tool, {}, f"const got = await tools.{call.name}({given}); text(got);")


def write_responses(answer: str | Call, talk: Conversation, script: Script, id: str) -> Reply:
    if isinstance(answer, Call) and talk.in_code:
        answer = _in_code(answer, talk.in_code)
    item: dict[str, Any]
    deltas: list[dict[str, Any]]
    where = {"output_index": 0}
    if isinstance(answer, Call) and answer.text is not None:
        item = {"type": "custom_tool_call", "id": f"ctc_{id}", "call_id": f"call_{id}"}
        item |= {"name": answer.name, "input": answer.text}
        kind = "response.custom_tool_call_input"
        deltas = [{"type": f"{kind}.delta", "delta": piece} for piece in pieces(answer.text)]
        empty = {**item, "input": ""}
    elif isinstance(answer, Call):
        arguments = json.dumps(answer.arguments)
        item = {"type": "function_call", "id": f"fc_{id}", "call_id": f"call_{id}"}
        item |= {"name": answer.name, "arguments": arguments}
        kind = "response.function_call_arguments"
        deltas = [{"type": f"{kind}.delta", "delta": piece} for piece in pieces(arguments)]
        deltas.append({"type": f"{kind}.done", "arguments": arguments})
        empty = {**item, "arguments": ""}
    else:
        part = {"type": "output_text", "text": answer, "annotations": []}
        item = {"type": "message", "id": f"msg_{id}", "role": "assistant", "content": [part]}
        deltas = [
            {"type": "response.output_text.delta", "content_index": 0, "delta": piece}
            for piece in pieces(answer)
        ]
        empty = {**item, "content": []}
    response: dict[str, Any] = {
        "id": f"resp_{id}",
        "object": "response",
        "created_at": int(time.time()),
        "model": talk.model,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "output": [{**item, "status": "completed"}],
        "usage": {
            "input_tokens": script.input_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": script.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": script.input_tokens + script.output_tokens,
        },
    }
    if not talk.stream:
        return as_json(response)
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        {
            "type": "response.output_item.added",
            **where,
            "item": {**empty, "status": "in_progress"},
        },
        *({**delta, **where, "item_id": item["id"]} for delta in deltas),
        {"type": "response.output_item.done", **where, "item": response["output"][0]},
        {"type": "response.completed", "response": response},
    ]
    numbered = [{**each, "sequence_number": n} for n, each in enumerate(events)]
    return as_events(event(each, each["type"]) for each in numbered)


def read_chat(body: dict[str, Any]) -> Conversation:
    found = Conversation("chat", body.get("model", ""), bool(body.get("stream")))
    for tool in body.get("tools") or []:
        function = tool.get("function", {})
        found.tools[function["name"]] = function.get("parameters", {}).get("properties", {})
    for message in body.get("messages", []):
        text = flat(message.get("content") or "")
        match message["role"]:
            case "system" | "developer":
                found.system += text
            case "user":
                found.prompts.append(text)
            case "tool":
                found.results.append(text)
            case "assistant" if text:
                found.said.append(text)
    return found


def write_chat(answer: str | Call, talk: Conversation, script: Script, id: str) -> Reply:
    usage = {
        "prompt_tokens": script.input_tokens,
        "completion_tokens": script.output_tokens,
        "total_tokens": script.input_tokens + script.output_tokens,
    }
    base = {"id": f"chatcmpl-{id}", "created": int(time.time()), "model": talk.model}
    reason = "stop"
    message: dict[str, Any] = {"role": "assistant", "content": answer}
    if isinstance(answer, Call):
        function = {"name": answer.name, "arguments": json.dumps(answer.arguments)}
        call = {"id": f"call_{id}", "type": "function", "function": function}
        reason, message = "tool_calls", {"role": "assistant", "content": None, "tool_calls": [call]}
    if not talk.stream:
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return as_json({**base, "object": "chat.completion", "choices": [choice], "usage": usage})
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if isinstance(answer, Call):
        deltas.append({"tool_calls": [{"index": 0, **call}]})
    else:
        deltas += [{"content": piece} for piece in pieces(answer)]
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
    ]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    chunks.append({"choices": [], "usage": usage})
    events = [event({**base, "object": "chat.completion.chunk", **chunk}) for chunk in chunks]
    return as_events([*events, event("[DONE]")])


def refuse(status: int, words: str) -> Reply:
    code = "invalid_api_key" if status == 401 else None
    error = {"message": words, "type": "invalid_request_error", "param": None, "code": code}
    return as_json({"error": error}, status)
