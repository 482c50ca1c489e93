"""The section [template] of a project's file: checked, and in the form of the HTTP API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KEYS = ("name", "base", "start", "ready", "steps", "description")
_STEPS = ("run", "copy", "env", "workdir", "user")
_READY = ("command", "port", "log", "seconds")
_MOST_STEPS = 512


def check_template(entries: Mapping[str, Any]) -> dict[str, Any]:
    """With `name` as it was written, if it was. ValueError: the text says what is wrong."""
    for key in entries:
        if key not in _KEYS:
            raise ValueError(f"template.{key} is not a key that is known; {_list(_KEYS)} are")
    found: dict[str, Any] = {}
    for key in ("name", "base", "start", "description"):
        if key in entries:
            found[key] = _text(entries[key], f"template.{key}")
    if "base" not in found:
        raise ValueError('the template has no base, such as base = "debian:12"')
    steps = entries.get("steps", [])
    if not isinstance(steps, list) or len(steps) > _MOST_STEPS:
        raise ValueError(f"template.steps must be a list of at most {_MOST_STEPS} steps")
    found["steps"] = [_step(step, number) for number, step in enumerate(steps, 1)]
    if "ready" in entries:
        found["ready"] = _ready(entries["ready"])
    return found


def _step(step: Any, number: int) -> dict[str, Any]:
    name = f"step {number} of the template"
    if not isinstance(step, dict) or len(step) != 1 or next(iter(step)) not in _STEPS:
        raise ValueError(f'{name} must be one of {_list(_STEPS)}, such as {{ run = "make" }}')
    kind, value = next(iter(step.items()))
    if kind == "copy":
        if not isinstance(value, list) or len(value) not in (2, 3):
            raise ValueError(f'{name}: copy must be ["SOURCE", "TARGET"] or with an owner')
        words = [_text(word, f"{name}: copy") for word in value]
        return {"copy": dict(zip(("source", "target", "owner"), words, strict=False))}
    if kind == "env":
        if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
            raise ValueError(f'{name}: env must be such as {{ MODE = "test" }}')
        return {"env": dict(value)}
    return {kind: _text(value, f"{name}: {kind}")}


def _ready(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or not value.keys() <= set(_READY):
        raise ValueError("template.ready must be such as { port = 8000, seconds = 30 }")
    kinds = [key for key in ("command", "port", "log") if key in value]
    if len(kinds) != 1:
        raise ValueError("template.ready must have one of command, port and log")
    found: dict[str, Any] = {}
    if kinds == ["port"]:
        port = value["port"]
        if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
            raise ValueError("template.ready.port must be a number from 1 to 65535")
        found["port"] = port
    else:
        found[kinds[0]] = _text(value[kinds[0]], f"template.ready.{kinds[0]}")
    seconds = value.get("seconds", 60)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= 3600:
        raise ValueError("template.ready.seconds must be a number up to 3600")
    return {**found, "seconds": float(seconds)}


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ValueError(f"{name} must be text")
    return value


def _list(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"
