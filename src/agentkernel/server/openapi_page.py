"""The API's description as one page of HTML. It has no script and loads nothing, and says so to the
browser: whatever stood in the description could only be read."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any, Final

_STYLE: Final = """
:root{color-scheme:light dark;--line:#8884;--soft:#888}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h2{margin-top:2.5rem;border-bottom:1px solid var(--line)}
code{font:0.9em ui-monospace,monospace}
details{border:1px solid var(--line);border-radius:6px;margin:.4rem 0;padding:.3rem .8rem}
summary{cursor:pointer}
summary b{display:inline-block;min-width:4.5rem}
summary span,td.soft,p.soft{color:var(--soft)}
table{border-collapse:collapse;width:100%;margin:.5rem 0}
th,td{text-align:left;vertical-align:top;padding:.2rem .6rem .2rem 0}
th,td{border-top:1px solid var(--line)}
"""


def content_policy() -> str:
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


def page(document: Mapping[str, Any]) -> str:
    parts = [
        "<!doctype html><html lang=en><head><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width'>",
        f"<title>{escape(document['info']['title'])} API</title><style>{_STYLE}</style></head>",
        f"<body><h1>{escape(document['info']['title'])} API</h1>",
        f"<p>{escape(document['info']['description'])}</p>",
        "<p>The same for programs: <a href='/v1/openapi.json'>/v1/openapi.json</a>. ",
        "Below: <a href='#schemas'>types</a>, <a href='#errors'>errors</a>.</p>",
    ]
    for tag in document["tags"]:
        parts.append(f"<h2>{escape(tag['name'])}</h2><p>{escape(tag['description'])}</p>")
        for path, methods in document["paths"].items():
            parts += [
                _operation(method.upper(), path, operation)
                for method, operation in methods.items()
                if tag["name"] in operation["tags"]
            ]
    schemas = document["components"]["schemas"]
    parts.append("<h2 id=schemas>types</h2>")
    parts += [_schema(name, schema) for name, schema in schemas.items()]
    parts.append("<h2 id=errors>errors</h2><p>Every error is a ")
    parts.append(f"{_link('Problem')} (<code>application/problem+json</code>).</p>")
    codes = schemas["Problem"]["x-codes"].items()
    rows = [
        (
            f"<code>{escape(code)}</code>",
            str(facts["status"]),
            "may succeed later" if facts["retryable"] else "",
        )
        for code, facts in codes
    ]
    parts.append(_table(("code", "status", ""), rows))
    return "".join([*parts, "</body></html>\n"])


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    shown = "WS" if "x-websocket" in operation else method
    parts = [
        f"<details id={escape(operation['operationId'])}><summary><b>{shown}</b>",
        f"<code>{escape(path)}</code> <span>{escape(operation['summary'])}</span></summary>",
        f"<p class=soft><code>{escape(operation['operationId'])}</code>, needs the scope "
        f"<code>{escape(operation['x-scope'])}</code></p>",
    ]
    if rows := [
        (
            f"<code>{escape(parameter['name'])}</code>",
            escape(parameter["in"]) + ("" if parameter.get("required") else ", optional"),
            f"{_type(parameter['schema'])} {escape(parameter.get('description', ''))}",
        )
        for parameter in operation.get("parameters", ())
    ]:
        parts.append(_table(("parameter", "", ""), rows))
    if body := operation.get("requestBody"):
        parts += [f"<p>Body: {_content(body['content'])}</p>"]
    if stream := operation.get("x-websocket"):
        if first := stream.get("first-message"):
            parts.append(f"<p>First message: {_type(first)}</p>")
        parts.append(f"<p>Control frames: {_type(stream['client-control'])} from the client, ")
        parts.append(f"{_type(stream['server-control'])} from the daemon</p>")
    answers = [
        (f"<code>{escape(status)}</code>", _answer(answer))
        for status, answer in operation["responses"].items()
    ]
    return "".join([*parts, _table(("answer", ""), answers), "</details>"])


def _answer(answer: Mapping[str, Any]) -> str:
    if "$ref" in answer:
        return _link("Problem")
    return escape(answer["description"]) + " " + _content(answer.get("content", {}))


def _content(content: Mapping[str, Any]) -> str:
    parts = []
    for kind, value in content.items():
        if events := value.get("x-events"):
            names = (f"<code>{escape(name)}</code> {_type(of)}" for name, of in events.items())
            parts.append(f"<code>{escape(kind)}</code>: {', '.join(names)}")
        else:
            parts.append(f"<code>{escape(kind)}</code> {_type(value['schema'])}")
    return "; or ".join(parts)


def _schema(name: str, schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    rows = [
        (
            f"<code>{escape(field)}</code>" + ("" if field in required else " <i>optional</i>"),
            _type(of) + _default(of),
        )
        for field, of in schema.get("properties", {}).items()
    ]
    body = _table(("field", ""), rows) if rows else f"<p>{_type(schema)}</p>"
    words = f"<p>{escape(schema.get('description', ''))}</p>"
    return (
        f"<details id=schema-{escape(name)}><summary><code>{escape(name)}</code></summary>"
        f"{words}{body}</details>"
    )


def _default(schema: Mapping[str, Any]) -> str:
    value = schema.get("default")
    return f", <code>{escape(json.dumps(value))}</code> by default" if value else ""


def _type(schema: Mapping[str, Any]) -> str:
    """A schema in a few words."""
    if ref := schema.get("$ref"):
        return _link(str(ref).rpartition("/")[2])
    if (choices := schema.get("anyOf") or schema.get("oneOf")) is not None:
        return " or ".join(map(_type, choices))
    if "enum" in schema:
        return " ".join(f"<code>{escape(str(value))}</code>" for value in schema["enum"])
    if "const" in schema:
        return f"<code>{escape(str(schema['const']))}</code>"
    kind = str(schema.get("type", ""))
    if kind == "array":
        inner = schema.get("items") or {}
        return f"list of {_type(inner)}" if inner else "list"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    bounds = [
        f"{words} {schema[key]}"
        for key, words in (
            ("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"),
            ("minLength", "length ≥"), ("maxLength", "length ≤"), ("pattern", "like"),
        )
        if key in schema
    ]  # fmt: skip
    return escape(" ".join([kind, *bounds]))


def _link(name: str) -> str:
    return f"<a href='#schema-{escape(name)}'><code>{escape(name)}</code></a>"


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Cells are HTML."""
    head = "".join(f"<th>{escape(word)}</th>" for word in heads)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"
