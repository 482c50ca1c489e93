"""The scripted models themselves: what they answer, to whom, and what they remember."""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .scripted import Edit, Read, Run, Say, Script, ScriptedModels, Turn, Use, Write
from .scripted.script import parse

TURNS: list[Turn] = [Read("a.py"), Edit("a.py", "1", "2"), Run("make"), Say("Done.")]


@pytest.fixture
def models(tmp_path: Path) -> Iterator[ScriptedModels]:
    models = ScriptedModels(tmp_path, Script(TURNS))
    yield models
    models.close()


def ask(
    models: ScriptedModels, path: str, body: Any, host: str = "", **headers: str
) -> tuple[int, bytes]:
    """Directly and plain, or for a `host`, with TLS, through it as a proxy."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {
        "content-type": "application/json",
        **{k.replace("_", "-"): headers[k] for k in headers},
    }
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if host:
        trusting = ssl.create_default_context(cafile=str(models.authority.ca_path))
        handlers = [
            urllib.request.ProxyHandler({"https": models.url}),
            urllib.request.HTTPSHandler(context=trusting),
        ]
    address = f"https://{host}{path}" if host else f"{models.url}{path}"
    request = urllib.request.Request(address, data, sent)
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, exc.read()


def claude(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    tools = [
        {"name": "Read", "input_schema": {"properties": {"file_path": {}}}},
        {
            "name": "Edit",
            "input_schema": {
                "properties": dict.fromkeys(("file_path", "old_string", "new_string"))
            },
        },
        {"name": "Bash", "input_schema": {"properties": {"command": {}, "description": {}}}},
    ]
    first = {"role": "user", "content": "Working directory: /p\nDo it"}
    return {"model": "m", "tools": tools, "messages": [first, *messages], **more}


def result(text: str) -> dict[str, Any]:
    part = {"type": "tool_result", "tool_use_id": "x", "content": text}
    return {"role": "user", "content": [part]}


def test_the_turn_is_found_by_what_the_conversation_holds(models: ScriptedModels) -> None:
    seen = []
    for count in range(5):
        talk = [result(str(n)) for n in range(min(count, 3))]
        if count == 4:
            talk.append({"role": "assistant", "content": "Done."})
        status, body = ask(models, "/v1/messages", claude(*talk), x_api_key="k")
        assert status == 200
        seen.append(json.loads(body)["content"][0])
    assert seen[0]["input"] == {"file_path": "/p/a.py"}
    assert seen[1]["input"] == {"file_path": "/p/a.py", "old_string": "1", "new_string": "2"}
    assert seen[2]["name"] == "Bash" and seen[2]["input"]["command"] == "make"
    assert seen[3] == {"type": "text", "text": "Done."}
    assert seen[4] == {"type": "text", "text": "All done."}
    last = models.work(key="k")[-1].conversation
    assert last is not None and last.results == ["0", "1", "2"]


def test_streams_add_up(models: ScriptedModels) -> None:
    _, body = ask(models, "/v1/messages", claude(result("1"), stream=True))
    events = [json.loads(line[6:]) for line in body.decode().splitlines() if line[:6] == "data: "]
    deltas = [each["delta"] for each in events if each["type"] == "content_block_delta"]
    joined = json.loads("".join(delta["partial_json"] for delta in deltas))
    assert joined["new_string"] == "2" and events[-1]["type"] == "message_stop"

    tools = [{"type": "function", "name": "exec_command", "parameters": {"properties": {"cmd": 1}}}]
    tools.append({"type": "custom", "name": "apply_patch"})
    given: dict[str, Any] = {"model": "m", "stream": True, "tools": tools}
    given["input"] = [{"type": "function_call_output", "output": "…"}]
    _, body = ask(models, "/v1/responses", given)
    assert b"*** Update File: a.py" in body and b"response.completed" in body

    function = {"name": "bash", "parameters": {"properties": {"command": {}}}}
    talk = [{"role": "tool", "content": "x"}] * 2
    chat = {"model": "m", "stream": True, "messages": talk, "tools": [{"function": function}]}
    _, body = ask(models, "/v1/chat/completions", chat)
    assert b"make" in body and body.endswith(b"data: [DONE]\n\n")

    offered = {"functionDeclarations": [{"name": "read_file", "parametersJsonSchema": {}}]}
    path = "/v1beta/models/g:streamGenerateContent?alt=sse"
    _, body = ask(models, path, {"contents": [], "tools": [offered]})
    assert b'"functionCall": {"name": "read_file", "args": {"file_path": "a.py"}' in body


def test_an_agent_without_tools_gets_blocks_of_text(models: ScriptedModels) -> None:
    models.play(Script([Edit("a.py", "1", "2"), Write("b.py", "3"), Say("Done.")]))
    talk = [{"role": "system", "content": "Use SEARCH/REPLACE blocks."}]
    for expected in ("a.py\n```\n<<<<<<< SEARCH\n1\n=======\n2\n>>>>>>> REPLACE", "b.py", "Done."):
        _, body = ask(models, "/v1/chat/completions", {"model": "m", "messages": talk})
        message = json.loads(body)["choices"][0]["message"]
        assert expected in message["content"]
        talk.append(message)


def test_what_offers_no_tools_is_aside(models: ScriptedModels) -> None:
    _, body = ask(models, "/v1/messages", {"model": "m", "messages": []})
    assert json.loads(body)["content"][0]["text"] == "Scripted work"
    assert not models.work() and len(models.requests) == 1


def test_keys_and_scripts_of_their_own(models: ScriptedModels) -> None:
    models.keys = {"one", "two"}
    models.play(Script([Say("first")], key="one"), Script([Say("second")], when="Do it"))
    answers = {}
    for key in ("one", "two", "three"):
        answers[key] = ask(models, "/v1/messages", claude(), authorization=f"Bearer {key}")
    assert b"first" in answers["one"][1] and b"second" in answers["two"][1]
    assert answers["three"][0] == 401
    assert [asked.key for asked in models.work()] == ["one", "two"]
    path = "/v1beta/models/g:generateContent?key=three"
    assert ask(models, path, {"contents": []})[0] == 401


def test_it_is_every_model_host_and_no_other(models: ScriptedModels) -> None:
    for host in ("api.anthropic.com", "chatgpt.com"):
        assert ask(models, "/v1/messages", claude(), host)[0] == 200
        assert (models.requests[-1].host, models.requests[-1].sni) == (host, host)
    with pytest.raises(urllib.error.URLError, match="502"):
        ask(models, "/", {}, "example.org")
    assert models.refused == ["example.org:443"]


def test_what_it_does_not_serve_is_forwarded_if_it_may_be(
    models: ScriptedModels, tmp_path: Path
) -> None:
    models.forward = lambda host: host == "localhost"
    with urllib.request.urlopen(models.url + "/v1/models", timeout=20) as direct:
        expected = direct.read()
    through = http.client.HTTPConnection("127.0.0.1", models.port, timeout=20)
    through.set_tunnel("localhost", models.port)
    through.request("GET", "/v1/models")
    assert through.getresponse().read() == expected
    through.close()


def test_refresh_tokens_rotate_and_errors_are_said(models: ScriptedModels) -> None:
    first = models.tokens.issue()
    form = {"grant_type": "refresh_token", "refresh_token": first["refresh_token"]}
    status, body = ask(models, "/v1/oauth/token", form, "platform.claude.com")
    second = json.loads(body)
    assert status == 200 and second["access_token"] != first["access_token"]
    assert ask(models, "/v1/oauth/token", form, "platform.claude.com")[0] == 400
    assert [asked["host"] for asked in models.tokens.asked] == ["platform.claude.com"] * 2

    models.tokens.rotate = False
    google = models.tokens.issue("google")
    fields = f"grant_type=refresh_token&refresh_token={google['refresh_token']}".encode()
    kind = "application/x-www-form-urlencoded"
    for _ in range(2):
        status, body = ask(models, "/token", fields, "oauth2.googleapis.com", content_type=kind)
        assert status == 200 and "refresh_token" not in json.loads(body)
    models.tokens.error = (500, "server_error")
    assert ask(models, "/oauth/token", form, "auth.openai.com")[0] == 500
    models.keys = {"none"}
    bearer = f"Bearer {second['access_token']}"
    assert ask(models, "/v1/messages", claude(), authorization=bearer)[0] == 200


def test_garbage_is_refused(models: ScriptedModels) -> None:
    for body in (b"", b"[]", b"{", b'{"messages": 3}', b'{"messages": [{}]}'):
        assert ask(models, "/v1/messages", body)[0] == 400
    assert ask(models, "/elsewhere", {})[0] == 404


def test_scripts_are_written_as_json() -> None:
    [script] = parse(
        '[{"read": "a"}, {"use": "t", "arguments": {"n": 1}}, {"say": "x", "gate": "g"}]'
    )
    assert list(script.turns) == [Read("a"), Use("t", {"n": 1}), Say("x", gate="g")]
    [one, two] = parse('[{"turns": [{"say": "a"}], "key": "k"}, {"turns": []}]')
    assert one.key == "k" and two.turns == []
    for bad in ("3", '[{"jump": 1}]', '{"turns": 3}', '{"turns": [], "more": 1}'):
        with pytest.raises(ValueError, match="script|turn"):
            parse(bad)
