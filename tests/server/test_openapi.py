"""The API describes itself: truly, completely, and in a page that can do nothing."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.routing import Route, WebSocketRoute

from agentkernel.errors import GuestFileNotFoundError, NotFoundError, all_error_types
from agentkernel.server import answers, openapi, openapi_page
from agentkernel.server.app import all_routes
from agentkernel.server.operations import operation_of
from agentkernel.server.problems import RequestError, problem

from .daemon_process import Daemon

CHECKED_IN = Path(__file__).resolve().parents[2] / "docs" / "reference" / "openapi.json"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return openapi.document()


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


def test_the_checked_in_one_is_what_the_routes_say() -> None:
    same = CHECKED_IN.read_text() == openapi.document_text()
    assert same, "write it anew: python tools/generate_openapi.py"


def test_every_route_is_declared() -> None:
    routes = [route for route in all_routes() if isinstance(route, Route | WebSocketRoute)]
    assert len(routes) == len(openapi.operations()) > 30
    for route in routes:
        operation = operation_of(route)
        assert operation is not None and operation.path == route.path
        assert operation.answers, operation.id


def test_names_are_stable_and_unique(document: dict[str, Any]) -> None:
    ids = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch("[a-z]+([A-Z][a-z]+)*", id) for id in ids)
    # Two types of one name would get their modules' names.
    assert all(re.fullmatch("[A-Z][A-Za-z]+", name) for name in document["components"]["schemas"])


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    text = json.dumps(document)
    found = set(re.findall(r'"#/components/(\w+)/([^"]+)"', text))
    assert len(found) > 20
    for kind, name in found:
        assert name in document["components"][kind]
    named = {name for kind, name in found if kind == "schemas"}
    assert named == document["components"]["schemas"].keys(), "some are used by nothing"


def test_every_code_is_in_the_list(document: dict[str, Any]) -> None:
    schema = document["components"]["schemas"]["Problem"]
    codes = {kind.code for kind in all_error_types()}
    assert set(schema["properties"]["code"]["enum"]) == schema["x-codes"].keys() == codes
    assert schema["x-codes"]["not_found"] == {"status": 404, "retryable": False}


@pytest.mark.parametrize(
    "error",
    [
        NotFoundError("a", hint="b"),
        GuestFileNotFoundError("c", errno_name="ENOENT", path="/d"),
        RequestError(413, "e"),
        RuntimeError("f"),
    ],
)
def test_a_problem_is_what_is_said_of_it(error: Exception) -> None:
    body = problem(error)
    assert body.keys() <= set(answers.Problem.__struct_fields__)
    assert msgspec.to_builtins(msgspec.convert(body, answers.Problem)) == body


def test_requests_forbid_what_they_do_not_know(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    bodies = [
        content["schema"]["$ref"].rpartition("/")[2]
        for _, _, operation in operations(document)
        for kind, content in operation.get("requestBody", {}).get("content", {}).items()
        if kind == "application/json" and "$ref" in content["schema"]
    ]
    assert "NewSandbox" in bodies and "Exec" in bodies
    assert all(schemas[name]["additionalProperties"] is False for name in bodies)


def test_streams_say_what_they_hold(document: dict[str, Any]) -> None:
    stream = document["paths"]["/v1/run/stream"]["get"]
    assert stream["x-websocket"]["first-message"] == {"$ref": "#/components/schemas/RunStream"}
    assert "101" in stream["responses"]
    said = stream["x-websocket"]["server-control"]
    assert said["discriminator"]["mapping"]["exit"] == "#/components/schemas/Exit"
    events = document["paths"]["/v1/events"]["get"]["responses"]["200"]["content"]
    assert events["text/event-stream"]["x-events"]["gap"] == {"$ref": "#/components/schemas/Gap"}


def test_a_query_has_its_bounds(document: dict[str, Any]) -> None:
    parameters = {
        parameter["name"]: parameter
        for parameter in document["paths"]["/v1/sandboxes"]["get"]["parameters"]
    }
    limit = parameters["limit"]["schema"]
    assert (limit["minimum"], limit["maximum"], limit["default"]) == (1, 1000, 100)
    assert parameters["label"]["explode"] is True
    assert "default" not in parameters["after"]["schema"]


def test_the_daemon_serves_it(daemon: Daemon, document: dict[str, Any]) -> None:
    status, served = daemon.request("GET", "/v1/openapi.json")
    assert (status, served) == (200, document)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_shows_everything_and_can_do_nothing(
    daemon: Daemon, document: dict[str, Any]
) -> None:
    connection = daemon.connection()
    connection.request("GET", "/docs")
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    assert answer.status == 200
    policy = answer.getheader("Content-Security-Policy")
    assert policy == openapi_page.content_policy() and policy.startswith("default-src 'none'")
    reader = _Reader()
    reader.feed(text)
    assert reader.open == []
    assert not {"script", "img", "link", "iframe", "form"} & {tag for tag, _ in reader.tags}
    anchors = {attributes.get("id") for _, attributes in reader.tags}
    links = {attributes["href"] for tag, attributes in reader.tags if tag == "a"}
    assert all(link == "/v1/openapi.json" or link and link[1:] in anchors for link in links)
    assert {operation["operationId"] for _, _, operation in operations(document)} <= anchors
    assert all(code in text for code in document["components"]["schemas"]["Problem"]["x-codes"])


def test_words_of_the_description_are_text(document: dict[str, Any]) -> None:
    changed = json.loads(json.dumps(document))
    changed["paths"]["/v1/version"]["get"]["summary"] = "<script>alert(1)</script>"
    shown = openapi_page.page(changed)
    assert "<script" not in shown and "&lt;script&gt;" in shown


@pytest.mark.parametrize(
    "query", ["sandboxes?after=null", "jobs?after=NULL", "events?follow=0&after=null"]
)
def test_a_query_can_not_say_null(daemon: Daemon, query: str) -> None:
    status, problem = daemon.request("GET", f"/v1/{query}")
    assert (status, problem["details"]) == (400, {"path": "$.after"})
    assert daemon.request("GET", f"/v1/{query.lower().replace('null', '0')}")[0] == 200
