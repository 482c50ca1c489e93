"""Which paths are rewritten, in every place where the protocol has one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from acp import meta, schema
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from agentkernel.agents.acp.paths import PathMap
from agentkernel.agents.acp.rewriting import Rewriter

PATHS = PathMap("/home/u/proj", "/workspace", ["/data/proj"])


@pytest.mark.parametrize(
    ("host", "guest"),
    [
        ("/home/u/proj", "/workspace"),
        ("/home/u/proj/", "/workspace"),
        ("/home/u/proj/a/b.py", "/workspace/a/b.py"),
        ("/home/u/proj/a/../b.py", "/workspace/b.py"),
        ("/data/proj/x", "/workspace/x"),
        ("//home/u/proj/x", "/workspace/x"),
        ("/home/u/project", "/home/u/project"),
        ("/home/u/proj-2/x", "/home/u/proj-2/x"),
        ("/home/u/proj/../other", "/home/u/proj/../other"),
        ("/home/u", "/home/u"),
        ("home/u/proj", "home/u/proj"),
        ("proj", "proj"),
        ("", ""),
        ("/", "/"),
        ("/home/u/proj\0/x", "/home/u/proj\0/x"),
    ],
)
def test_by_components(host: str, guest: str) -> None:
    assert PATHS.to_guest(host) == guest


def test_back() -> None:
    assert PATHS.to_host("/workspace/a") == "/home/u/proj/a"
    assert PATHS.to_host("/workspace2/a") == "/workspace2/a"
    assert PATHS.to_host("/data/proj/a") == "/data/proj/a"
    assert PATHS.inside("/etc/passwd") is None and PATHS.inside("/data/proj") == "/workspace"


@pytest.mark.parametrize(
    ("host", "guest"),
    [
        ("file:///home/u/proj/a%20b.py#L3", "file:///workspace/a%20b.py#L3"),
        ("file://localhost/home/u/proj", "file://localhost/workspace"),
        ("FILE:///home/u/proj/x?y=1", "file:///workspace/x?y=1"),
        ("file://elsewhere/home/u/proj", "file://elsewhere/home/u/proj"),
        ("https://example.org/home/u/proj", "https://example.org/home/u/proj"),
        ("file:///home/u/project", "file:///home/u/project"),
        ("file:///home/u/proj/%2e%2e/x", "file:///home/u/proj/%2e%2e/x"),
        ("file:///home/u/proj/%ff", "file:///home/u/proj/%ff"),
        ("file://[bad/home", "file://[bad/home"),
    ],
)
def test_addresses(host: str, guest: str) -> None:
    assert PATHS.uri_to_guest(host) == guest


@given(st.lists(st.sampled_from(["a", "b c", "ü", "proj", "..", "."]), max_size=6))
def test_there_and_back(parts: list[str]) -> None:
    path = "/".join(["/home/u/proj", *parts])
    inside = PATHS.inside(path)
    if inside is not None:
        assert inside == "/workspace" or inside.startswith("/workspace/")
        assert ".." not in inside.split("/")
        assert PATHS.inside(PATHS.to_host(inside)) == inside
        assert PATHS.uri_to_host(PATHS.uri_to_guest(f"file://{PATHS.to_host(inside)}")).startswith(
            "file:///home/u/proj"
        )


def test_nothing_to_do_where_the_project_is_at_its_own_path() -> None:
    same = PathMap("/home/u/proj", "/home/u/proj")
    assert same.same and not PATHS.same
    assert same.to_guest("/home/u/proj/a/../b") in ("/home/u/proj/a/../b", "/home/u/proj/b")


# -- every place of the protocol -----------------------------------------------------------------

REWRITER = Rewriter(PATHS, lambda id: f"terminal {id}")
HOST, GUEST = "/home/u/proj/f", "/workspace/f"


def test_requests_of_the_editor() -> None:
    given: dict[str, Any] = {
        "cwd": HOST,
        "additionalDirectories": [HOST, "/etc"],
        "mcpServers": [
            {"name": "a", "command": HOST, "args": [HOST, f"--x={HOST}"],
             "env": [{"name": "A", "value": HOST}]},
        ],
        "_meta": {"path": HOST},
        "unknown": {"path": HOST},
    }  # fmt: skip
    for method in ("session/new", "session/load", "session/resume", "session/fork"):
        assert REWRITER.request_to_agent(method, given) == {
            "cwd": GUEST,
            "additionalDirectories": [GUEST, "/etc"],
            "mcpServers": [
                {"name": "a", "command": GUEST, "args": [GUEST, f"--x={HOST}"],
                 "env": [{"name": "A", "value": GUEST}]},
            ],
            "_meta": {"path": HOST},
            "unknown": {"path": HOST},
        }  # fmt: skip
    prompt = [
        {"type": "text", "text": f"look at {HOST}"},
        {"type": "resource_link", "name": "f", "uri": f"file://{HOST}"},
        {"type": "resource", "resource": {"uri": f"file://{HOST}", "text": HOST}},
        {"type": "image", "data": "", "mimeType": "image/png", "uri": f"file://{HOST}"},
    ]
    passed = REWRITER.request_to_agent("session/prompt", {"sessionId": "s", "prompt": prompt})
    found = [block.get("uri") or block.get("resource", {}).get("uri") for block in passed["prompt"]]
    assert found == [None, *[f"file://{GUEST}"] * 3]
    assert passed["prompt"][0] == prompt[0]
    places = {"uri": f"file://{HOST}", "a": [{"uri": f"file://{HOST}"}]}
    assert REWRITER.request_to_agent("nes/suggest", places) == {
        "uri": f"file://{GUEST}",
        "a": [{"uri": f"file://{GUEST}"}],
    }


def test_what_the_agent_shows() -> None:
    content = [
        {"type": "diff", "path": GUEST, "oldText": GUEST, "newText": GUEST},
        {"type": "terminal", "terminalId": "t1"},
        {"type": "content", "content": {"type": "resource_link", "name": "", "uri": f"file://{GUEST}"}},
        {"type": "other", "path": GUEST},
    ]  # fmt: skip
    call = {"toolCallId": "c", "content": content, "locations": [{"path": GUEST, "line": 3}],
            "rawInput": {"path": GUEST}}  # fmt: skip
    wanted = {
        "toolCallId": "c",
        "content": [
            {"type": "diff", "path": HOST, "oldText": GUEST, "newText": GUEST},
            {"type": "content", "content": {"type": "text", "text": "terminal t1"}},
            {"type": "content", "content": {"type": "resource_link", "name": "", "uri": f"file://{HOST}"}},
            {"type": "other", "path": GUEST},
        ],
        "locations": [{"path": HOST, "line": 3}],
        "rawInput": {"path": GUEST},
    }  # fmt: skip
    for kind in ("tool_call", "tool_call_update"):
        update = {"sessionId": "s", "update": {"sessionUpdate": kind, **call}}
        passed = REWRITER.request_to_editor("session/update", update)
        assert passed["update"] == {"sessionUpdate": kind, **wanted}
    asked = {"sessionId": "s", "toolCall": call, "options": []}
    assert REWRITER.request_to_editor("session/request_permission", asked)["toolCall"] == wanted
    listed = {"sessions": [{"sessionId": "s", "cwd": GUEST, "additionalDirectories": [GUEST]}]}
    assert REWRITER.answer_to_editor("session/list", listed)["sessions"][0]["cwd"] == HOST


@settings(max_examples=30)
@given(
    st.sampled_from(sorted({*meta.AGENT_METHODS.values(), *meta.CLIENT_METHODS.values()})),
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda inner: st.lists(inner)
        | st.dictionaries(
            st.sampled_from(["update", "content", "toolCall", "locations", "sessionUpdate", "type",
                             "prompt", "uri", "resource", "cwd", "mcpServers", "env", "sessions"]),
            inner | st.sampled_from(["tool_call", "diff", "terminal", "plan_update"]),
        ),
    ),
)  # fmt: skip
def test_no_form_raises(method: str, params: Any) -> None:
    REWRITER.request_to_agent(method, params)
    REWRITER.request_to_editor(method, params)
    REWRITER.answer_to_editor(method, params)


FROM_EDITOR: dict[str, type[BaseModel]] = {
    "session/new": schema.NewSessionRequest,
    "session/load": schema.LoadSessionRequest,
    "session/list": schema.ListSessionsRequest,
    "session/fork": schema.ForkSessionRequest,
    "session/resume": schema.ResumeSessionRequest,
    "session/prompt": schema.PromptRequest,
    "nes/start": schema.StartNesRequest,
    "nes/suggest": schema.SuggestNesRequest,
    "document/didOpen": schema.DidOpenDocumentNotification,
    "document/didChange": schema.DidChangeDocumentNotification,
    "document/didClose": schema.DidCloseDocumentNotification,
    "document/didSave": schema.DidSaveDocumentNotification,
    "document/didFocus": schema.DidFocusDocumentNotification,
}
FROM_AGENT: dict[str, type[BaseModel]] = {
    "session/update": schema.SessionNotification,
    "session/request_permission": schema.RequestPermissionRequest,
}
ANSWERS: dict[str, type[BaseModel]] = {
    "session/list": schema.ListSessionsResponse,
    "nes/suggest": schema.SuggestNesResponse,
}
# Messages with paths that are answered inside and never passed on.
INSIDE = {"ReadTextFileRequest", "WriteTextFileRequest", "CreateTerminalRequest"}
_IS_PATH = re.compile("path|cwd|.*[uU]ri|additionalDirectories", re.ASCII)


def test_every_path_of_the_schema_is_rewritten() -> None:
    """The official package's messages, filled with paths wherever a field says it is one: what is
    passed on has none left that is of the other side."""
    seen = 0
    for models, change, path, other in (
        (FROM_EDITOR, REWRITER.request_to_agent, HOST, GUEST),
        (FROM_AGENT, REWRITER.request_to_editor, GUEST, HOST),
        (ANSWERS, REWRITER.answer_to_editor, GUEST, HOST),
    ):
        for method, model in models.items():
            for body in filled(model, path):
                passed = str(change(method, body))
                assert path not in passed, (method, body)
                seen += passed.count(other)
    assert seen > 40


def test_no_other_message_of_the_schema_has_a_path() -> None:
    """A new version of the protocol that has one in another place fails here."""
    known = {*FROM_EDITOR.values(), *FROM_AGENT.values(), *ANSWERS.values()}
    names = {model.__name__ for model in known} | INSIDE
    ends = ("Request", "Response", "Notification")
    for name in dir(schema):
        model = getattr(schema, name)
        whole = isinstance(model, type) and issubclass(model, BaseModel) and name.endswith(ends)
        if whole and name not in names | {"ClientRequest", "AgentRequest", "ClientResponse",
            "AgentResponse", "ClientNotification", "AgentNotification"}:  # fmt: skip
            assert not any(HOST in str(body) for body in filled(model, HOST)), name


def filled(model: type[BaseModel], path: str) -> Iterator[Any]:
    """Bodies of a message in which every path is this one; every kind of every part once."""
    whole = model.model_json_schema(by_alias=True)
    yield from _values(whole, whole.get("$defs", {}), path, name="", depth=0)


def _values(part: Any, kinds: Any, path: str, name: str, depth: int) -> Iterator[Any]:
    if "$ref" in part:
        part = kinds[part["$ref"].rsplit("/", 1)[1]]
    if depth > 9 or name == "_meta":
        yield None
    elif "const" in part:
        yield part["const"]
    elif choices := part.get("anyOf") or part.get("oneOf"):
        for choice in choices:
            if choice.get("type") != "null":
                yield from _values(choice, kinds, path, name, depth + 1)
    elif "properties" in part:
        members = {
            key: list(_values(inner, kinds, path, key, depth + 1))
            for key, inner in part["properties"].items()
        }
        for number in range(max(len(found) for found in members.values())):
            yield {
                key: found[min(number, len(found) - 1)] for key, found in members.items() if found
            }
    elif part.get("type") == "array":
        yield [item for item in _values(part.get("items", {}), kinds, path, name, depth + 1)]
    elif part.get("type") == "string":
        uri = name.lower().endswith("uri")
        yield (f"file://{path}" if uri else path) if _IS_PATH.fullmatch(name) else "text"
    else:
        yield 1 if part.get("type") in ("integer", "number") else None
