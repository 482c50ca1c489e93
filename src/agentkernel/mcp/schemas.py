"""JSON Schemas of arguments and answers, from the same types that check them.

Written out in place, without references, and without null: a field that may be missing is one that
may be missing. Clients understand little more of JSON Schema than that, and so do models.
"""

from __future__ import annotations

from typing import Any

import msgspec


def schema_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    (_,), parts = msgspec.json.schema_components((kind,), ref_template="{name}")
    schema = _plain(parts[kind.__name__], parts)
    schema.pop("title", None)
    schema.pop("description", None)  # the tool's own says it
    schema.setdefault("properties", {})
    assert isinstance(schema, dict)
    return schema


def _plain(value: Any, parts: dict[str, Any]) -> Any:
    if isinstance(value, list):
        return [_plain(entry, parts) for entry in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        inner = _plain(parts[value["$ref"]], parts)
        inner.pop("title", None)
        return inner | {key: entry for key, entry in value.items() if key == "description"}
    if "anyOf" in value:
        kinds = [entry for entry in value["anyOf"] if entry != {"type": "null"}]
        if len(kinds) == 1:
            value = {**{k: v for k, v in value.items() if k != "anyOf"}, **kinds[0]}
            return _plain(value, parts)
    return {
        key: _plain(entry, parts)
        for key, entry in value.items()
        if not (key == "default" and entry in (None, [], {}))
    }
