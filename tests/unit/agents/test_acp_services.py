"""An agent's calls of files and terminals: what they are given, and what they are refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentkernel.agents.acp import wire
from agentkernel.agents.acp.permissions import CANCELLED, allowed, choice_of, chosen
from agentkernel.agents.acp.services import (
    MAX_CALLS,
    MAX_COMMAND,
    MAX_OUTPUT,
    MAX_READ,
    MAX_TERMINALS,
    Exit,
    Output,
    Services,
    is_terminal,
    shell_words,
)
from agentkernel.agents.acp.wire import Request
from agentkernel.errors import GuestFileNotFoundError, NotFoundError

pytestmark = pytest.mark.anyio


class Box:
    """A sandbox of these tests."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.started: list[dict[str, Any]] = []
        self.shown = Output(b"", False, None)
        self.released: list[str] = []
        self.gate = asyncio.Event()

    async def read(self, path: str, most: int) -> bytes:
        if path not in self.files:
            raise GuestFileNotFoundError("no such file", hint="look again")
        return self.files[path][:most]

    async def write(self, path: str, data: bytes) -> None:
        self.files[path] = data

    async def start(
        self, argv: list[str], *, env: dict[str, str], cwd: str | None, keep: int
    ) -> str:
        self.started.append({"argv": argv, "env": env, "cwd": cwd, "keep": keep})
        return f"t{len(self.started)}"

    async def output(self, id: str) -> Output:
        if id != "t1":
            raise NotFoundError("there is no such terminal")
        return self.shown

    async def wait(self, id: str) -> Exit:
        await self.gate.wait()
        return Exit(None, 9)

    async def kill(self, id: str) -> None: ...

    async def release(self, id: str) -> None:
        self.released.append(id)

    def close(self) -> None: ...


async def call(services: Services, method: str, params: Any) -> Any:
    answer = await services.call(Request(method, params, 1))
    assert answer.id == 1
    return answer.result if answer.error is None else answer.error.code


async def test_files() -> None:
    box = Box()
    services = Services(box)
    box.files["/a"] = b"eins\nzwei\r\ndrei\n" + b"\xff"
    read = "fs/read_text_file"
    assert (await call(services, read, {"path": "/a"}))["content"] == "eins\nzwei\r\ndrei\n\ufffd"
    assert (await call(services, read, {"path": "/a", "line": 2, "limit": 1})) == {
        "content": "zwei\r\n"
    }
    assert (await call(services, read, {"path": "/a", "line": 99})) == {"content": ""}
    assert (await call(services, read, {"path": "/a", "limit": 0})) == {"content": ""}
    box.files["/big"] = b"x" * (MAX_READ + 1)
    assert await call(services, read, {"path": "/big"}) == wire.INVALID_PARAMS
    answer = await services.call(Request(read, {"path": "/none"}, 1))
    assert answer.error is not None and answer.error.code == wire.NOT_FOUND
    assert answer.error.message == "no such file (look again)"
    assert await call(services, "fs/write_text_file", {"path": "/b", "content": "ü"}) == {}
    assert box.files["/b"] == "ü".encode()


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("fs/read_text_file", None),
        ("fs/read_text_file", []),
        ("fs/read_text_file", {"path": "a"}),
        ("fs/read_text_file", {"path": "~/a"}),
        ("fs/read_text_file", {"path": "/a\0"}),
        ("fs/read_text_file", {"path": "/" + "a" * 5000}),
        ("fs/read_text_file", {"path": 5}),
        ("fs/read_text_file", {"path": "/a", "line": -1}),
        ("fs/read_text_file", {"path": "/a", "limit": "9"}),
        ("fs/read_text_file", {"path": "/a", "limit": True}),
        ("fs/write_text_file", {"path": "/a", "content": 5}),
        ("fs/write_text_file", {"path": "/a"}),
        ("terminal/create", {}),
        ("terminal/create", {"command": ""}),
        ("terminal/create", {"command": "a\0"}),
        ("terminal/create", {"command": "a", "args": "b"}),
        ("terminal/create", {"command": "a", "args": [5]}),
        ("terminal/create", {"command": "a", "cwd": "b"}),
        ("terminal/create", {"command": "a", "env": [5]}),
        ("terminal/create", {"command": "a", "env": [{"name": "A=B", "value": ""}]}),
        ("terminal/create", {"command": "a", "env": [{"name": "A", "value": "\0"}]}),
        ("terminal/create", {"command": "a", "outputByteLimit": -1}),
        ("terminal/output", {"terminalId": "../1"}),
        ("terminal/wait_for_exit", {}),
        ("terminal/kill", {"terminalId": 5}),
        ("terminal/release", {"terminalId": "x" * 65}),
    ],
)
async def test_what_is_no_call(method: str, params: Any) -> None:
    box = Box()
    box.files["/a"] = b""
    assert await call(Services(box), method, params) == wire.INVALID_PARAMS
    assert box.started == [] and box.files == {"/a": b""} and box.released == []


async def test_terminals() -> None:
    box = Box()
    services = Services(box, "/project")
    create = {
        "command": "make",
        "args": ["a b"],
        "env": [{"name": "A", "value": "1"}],
        "outputByteLimit": 6,
    }
    assert await call(services, "terminal/create", create) == {"terminalId": "t1"}
    (started,) = box.started
    assert started["argv"][-2:] == ["make", "a b"] and is_terminal(started["argv"])
    assert started == {**started, "env": {"A": "1"}, "cwd": "/project", "keep": 6}
    box.shown = Output("xäöü".encode(), False, None)
    got = await call(services, "terminal/output", {"terminalId": "t1"})
    assert got == {"output": "äöü", "truncated": True}
    box.shown = Output("xäöü".encode()[2:], True, Exit(0, None))
    got = await call(services, "terminal/output", {"terminalId": "t1"})
    assert got == {
        "output": "öü",
        "truncated": True,
        "exitStatus": {"exitCode": 0, "signal": None},
    }
    assert await services.shown("t1") == "öü" and await services.shown("t9") == ""
    waiting = asyncio.ensure_future(call(services, "terminal/wait_for_exit", {"terminalId": "t1"}))
    box.gate.set()
    assert await waiting == {"exitCode": None, "signal": "SIGKILL"}
    assert await call(services, "terminal/output", {"terminalId": "t2"}) == wire.INTERNAL_ERROR
    assert await call(services, "terminal/release", {"terminalId": "t1"}) == {}
    assert box.released == ["t1"]
    await call(services, "terminal/create", {"command": "a", "outputByteLimit": 1 << 40})
    assert box.started[-1]["keep"] == MAX_OUTPUT


async def test_what_goes_wrong_in_here_is_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Box):
        async def read(self, path: str, most: int) -> bytes:
            raise ZeroDivisionError("sec" + "ret")

    assert await call(Services(Broken()), "fs/read_text_file", {"path": "/a"}) == (
        wire.INTERNAL_ERROR
    )
    assert "ZeroDivisionError" in caplog.text and "secret" not in caplog.text


async def test_how_many() -> None:
    box = Box()
    services = Services(box)
    for _ in range(MAX_TERMINALS):
        assert "terminalId" in await call(services, "terminal/create", {"command": "a"})
    assert await call(services, "terminal/create", {"command": "a"}) == wire.INTERNAL_ERROR
    await call(services, "terminal/release", {"terminalId": "t1"})
    assert "terminalId" in await call(services, "terminal/create", {"command": "a"})
    waiting = [
        asyncio.ensure_future(call(services, "terminal/wait_for_exit", {"terminalId": "t2"}))
        for _ in range(MAX_CALLS)
    ]
    await asyncio.sleep(0)
    assert await call(services, "terminal/kill", {"terminalId": "t2"}) == wire.INTERNAL_ERROR
    box.gate.set()
    await asyncio.gather(*waiting)
    assert await call(services, "terminal/kill", {"terminalId": "t2"}) == {}


def test_a_line_for_a_shell_is_one() -> None:
    assert shell_words("npm", ["test"])[2:] == ['exec "$0" "$@" 2>&1', "npm", "test"]
    assert shell_words("make", [])[-1] == "make"
    assert shell_words("cd a && make", [])[2:] == ['exec 2>&1; eval "$0"', "cd a && make"]
    assert shell_words("my tool", ["x"])[-2:] == ["my tool", "x"]
    assert not is_terminal(["/bin/sh", "-c", "exec agent"]) and not is_terminal([])


def test_permissions() -> None:
    def asked(*kinds: Any) -> dict[str, Any]:
        return {"options": [{"optionId": str(kind), "kind": kind} for kind in kinds]}

    assert allowed(asked("reject_once", "allow_always", "allow_once")) == chosen("allow_once")
    assert allowed(asked("allow_always")) == chosen("allow_always")
    nothing: list[Any] = [asked("reject_once"), {}, None, {"options": "x"}, {"options": [1, {}]}]
    for body in nothing:
        assert allowed(body) == CANCELLED
    assert choice_of(chosen("a")) == "a"
    for body in [CANCELLED, None, {}, {"outcome": 1}, {"outcome": {"outcome": "selected"}}]:
        assert choice_of(body) is None


async def test_a_command_that_is_too_long() -> None:
    box = Box()
    services = Services(box)
    half = "x" * (MAX_COMMAND // 2)
    for given in (
        {"command": "x" * (MAX_COMMAND + 1)},
        {"command": "echo", "args": [half, half]},
        {"command": "echo", "args": [half], "env": [{"name": "A", "value": half}]},
    ):
        answer = await services.call(Request("terminal/create", given, 1))
        assert answer.error is not None and answer.error.code == wire.INVALID_PARAMS
    assert box.started == []
    answer = await services.call(Request("terminal/create", {"command": "echo", "args": [half]}, 1))
    assert answer.error is None and len(box.started) == 1


async def test_terminals_that_were_released_take_no_room_again() -> None:
    """Each one that is asked for is looked up and kept: an agent has no more of them that way."""
    box = Box()
    asked: list[str] = []

    async def output(id: str) -> Output:
        asked.append(id)
        return box.shown

    box.output = output  # type: ignore[method-assign]
    services = Services(box)
    for number in range(2 * MAX_TERMINALS):
        answer = await services.call(Request("terminal/output", {"terminalId": f"t{number}"}, 1))
        assert (answer.error is None) == (number < MAX_TERMINALS)
    assert len(asked) == MAX_TERMINALS
    await services.call(Request("terminal/release", {"terminalId": "t0"}, 1))
    answer = await services.call(Request("terminal/output", {"terminalId": "t99"}, 1))
    assert answer.error is None
