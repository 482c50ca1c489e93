"""The official client drives the server as a model's client would."""

from __future__ import annotations

import asyncio
import base64
import struct
import zlib
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from agentkernel.client._async.sandbox import AsyncSandbox
from agentkernel.client._async.transport import AsyncTransport

from .connections import Connect, Tools, until

# The tools are the same over both; what is about them alone needs no process of its own.
ONE_TRANSPORT = pytest.mark.parametrize("transport", ["http"], indirect=True)
MODES = pytest.mark.parametrize("mode", ["auto", "legacy"])


async def running(tools: Tools, box: str, number: int) -> bool:
    """Whether `sleep NUMBER` runs in a sandbox. The pattern does not match itself."""
    pattern = f"[s]leep {number}"
    done = await tools.call("exec", sandbox=box, command=f"pgrep -f '{pattern}' || true")
    return bool(done["stdout"])


@MODES
async def test_create_write_run_with_progress_cancel_page_remove(
    connect: Connect, mode: str
) -> None:
    async with connect(mode=mode) as tools:
        modern = tools.client.session.protocol_version != "2025-11-25"
        assert modern == (mode == "auto")

        box = (await tools.call("create", name=f"story-{mode}"))["sandbox"]
        assert box == f"story-{mode}"
        await tools.call("write_file", sandbox=box, path="/root/a/b.py", content="print(6 * 7)\n")
        done = await tools.call("exec", sandbox=box, command="python3 /root/a/b.py")
        assert (done["exit_code"], done["stdout"]) == (0, "42\n")

        # It runs until it is told of: the client hears of the progress while it does.
        heard: list[tuple[float, str | None]] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            if message and "counting" in message:
                heard.append((progress, message))
            if len(heard) == 2:
                await tools.call("write_file", sandbox=box, path="/root/go", content="")

        command = "echo counting; until [ -e /root/go ]; do sleep 0.05; done; echo done"
        result = await tools.client.call_tool(
            "exec", {"sandbox": box, "command": command}, progress_callback=on_progress
        )
        assert isinstance(result, types.CallToolResult) and result.structured_content
        assert result.structured_content["stdout"] == "counting\ndone\n"
        assert len(heard) >= 2 and heard[0][0] < heard[1][0]

        # A cancelled call ends all that its command has started.
        command = "sleep 4001 & setsid sleep 4001 & sleep 4001"
        call = asyncio.create_task(tools.call("exec", sandbox=box, command=command))
        await until(lambda: running(tools, box, 4001))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

        async def gone() -> bool:
            return not await running(tools, box, 4001)

        await until(gone)

        # Long output comes in pages, none of which cuts a character.
        whole = "".join(f"{n} äöü €uro 🎈\n" for n in range(9000))
        program = 'print("".join(f"{n} äöü €uro 🎈\\n" for n in range(9000)), end="")'
        await tools.call("write_file", sandbox=box, path="/root/long.py", content=program)
        done = await tools.call("exec", sandbox=box, command="python3 -X utf8 /root/long.py")
        assert "bytes left out" in done["stdout"] and "\ufffd" not in done["stdout"]
        head = done["stdout"].partition("\n[… ")[0]
        assert whole.startswith(head) and len(head.encode()) > 8000
        assert whole.endswith(done["stdout"].rpartition(" …]\n")[2])
        pages, cursor = [head], done["stdout_cursor"]
        while cursor is not None:
            page = await tools.call("output", cursor=cursor)
            pages.append(page["text"])
            cursor = page.get("cursor")
        assert "".join(pages) == whole and len(pages) > 3

        await tools.call("remove", sandbox=box)
        assert (await tools.call("list"))["sandboxes"] == []


async def test_run_leaves_nothing_and_a_cancelled_one_neither(
    connect: Connect, mcp_state: Path
) -> None:
    own = AsyncTransport(str(mcp_state), owner="mcp:third")

    async def runs() -> bool:
        return bool(await AsyncSandbox.list(transport=own))

    async def ended() -> bool:
        return not await runs()

    async with connect(name="third") as tools:
        done = await tools.call("run", command="echo $A; cat; exit 3", env={"A": "b"}, stdin="c")
        assert (done["outcome"], done["exit_code"], done["stdout"]) == ("exited", 3, "b\nc")
        assert (await tools.call("run", code="print(2 + 2)"))["stdout"] == "4\n"
        shell = await tools.call("run", code="echo $0 a", language="shell")
        assert shell["stdout"].endswith(" a\n")
        await until(ended)
        call = asyncio.create_task(tools.call("run", command="sleep 4002"))
        await until(runs)
        assert (await tools.call("list"))["sandboxes"] == [], "it is nobody's to use"
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(ended)
    own.close()


async def test_a_client_has_its_own_sandboxes_and_finds_them_again(connect: Connect) -> None:
    async with connect() as tools, connect(name="Other!") as other:
        made = await tools.call("create", name="mine")
        for name in ("mine", made["id"]):
            refused = await other.error("exec", sandbox=name, command="true")
            assert refused["code"] == "not_found"
        assert (await other.call("list"))["sandboxes"] == []
        await tools.call("write_file", sandbox="mine", path="/root/note", content="kept")
        # Pages of a long output are its owner's too.
        long = await tools.call("exec", sandbox="mine", command="seq 20000")
        assert (await other.error("output", cursor=long["stdout_cursor"]))["code"] == "not_found"
        assert (await tools.call("output", cursor=long["stdout_cursor"]))["text"]
    async with connect() as again:
        assert [entry["id"] for entry in (await again.call("list"))["sandboxes"]] == [made["id"]]
        text = await again.text("read_file", sandbox="mine", path="/root/note")
        assert text.startswith("kept\n")
        await again.call("remove", sandbox="mine")


async def test_jobs(connect: Connect) -> None:
    async with connect() as tools:
        box = (await tools.call("create"))["sandbox"]
        command = "echo one; until [ -e /tmp/go ]; do sleep 0.05; done; echo two; sleep 4003"
        job = (await tools.call("job_start", sandbox=box, command=command))["job"]
        first = await tools.call("job_output", job=job, wait_seconds=20)
        assert (first["stdout"], first["state"]) == ("one\n", "running")
        nothing = await tools.call("job_output", job=job, cursor=first["cursor"])
        assert nothing["stdout"] == "" and nothing["cursor"] == first["cursor"]
        waiting = asyncio.create_task(
            tools.call("job_output", job=job, cursor=first["cursor"], wait_seconds=20)
        )
        await tools.call("write_file", sandbox=box, path="/tmp/go", content="")
        assert (await waiting)["stdout"] == "two\n"
        listed = (await tools.call("job_list", sandbox=box))["jobs"]
        assert [(entry["job"], entry["state"]) for entry in listed] == [(job, "running")]
        killed = await tools.call("job_kill", job=job)
        assert (killed["state"], killed["outcome"]) == ("ended", "signaled")
        assert not await running(tools, box, 4003)
        assert (await tools.error("job_output", job=job, cursor="x"))["code"] == "invalid_input"
        assert (await tools.error("job_kill", job="nosuchjob"))["code"] == "not_found"
        await tools.call("remove", sandbox=box)


@ONE_TRANSPORT
async def test_a_jobs_long_output_page_by_page(connect: Connect) -> None:
    async with connect() as tools:
        box = (await tools.call("create"))["sandbox"]
        program = (
            'python3 -X utf8 -c \'print("".join(f"{n} é€🎈\\n" for n in range(9000)), end="")\''
        )
        job = (await tools.call("job_start", sandbox=box, command=program))["job"]
        whole, cursor, pages = "", None, 0
        while True:
            page = await tools.call(
                "job_output", job=job, wait_seconds=20, **({"cursor": cursor} if cursor else {})
            )
            whole, cursor, pages = whole + page["stdout"], page["cursor"], pages + 1
            if page["state"] == "ended" and not page.get("more"):
                break
        assert whole == "".join(f"{n} é€🎈\n" for n in range(9000))
        assert pages > 3
        await tools.call("remove", sandbox=box)


@ONE_TRANSPORT
async def test_stop_start_and_what_holds(connect: Connect) -> None:
    async with connect() as tools:
        made = await tools.call("create")
        box = made["sandbox"]
        assert "1h" in made["clocks"] and "7d" in made["clocks"] and made["expires_at"]
        assert (await tools.call("stop", sandbox=box))["state"] == "stopped"
        refused = await tools.error("exec", sandbox=box, command="true")
        assert refused["code"] == "conflict"
        assert (await tools.call("start", sandbox=box))["state"] == "running"
        info = await tools.call("info", sandbox=box)
        assert info["profile"] == "moderate" and info["limits"]
        await tools.call("remove", sandbox=box)


@ONE_TRANSPORT
async def test_files(connect: Connect) -> None:
    async with connect() as tools:
        box = (await tools.call("create"))["sandbox"]
        text = "one\ntwo\nthree\ntwo\n"
        await tools.call("write_file", sandbox=box, path="/root/d/e/f.txt", content=text)
        await tools.call(
            "write_file", sandbox=box, path="/root/d/run", content="#!/bin/sh\n", executable=True
        )
        whole = await tools.text("read_file", sandbox=box, path="/root/d/e/f.txt")
        assert whole == f"{text}\n[the whole file, {len(text)} bytes]"
        part = await tools.text("read_file", sandbox=box, path="/root/d/e/f.txt", line=3, limit=6)
        assert part == "three\n\n[bytes 8 to 14; there is more: read on with offset 14]"
        rest = await tools.text("read_file", sandbox=box, path="/root/d/e/f.txt", offset=14)
        assert rest.startswith("two\n")
        assert (await tools.error("read_file", sandbox=box, path="/root/d/e/f.txt", line=9))[
            "code"
        ] == "invalid_input"

        listed = await tools.call("list_files", sandbox=box, path="/root/d", depth=3)
        assert [(entry["path"], entry["type"]) for entry in listed["entries"]] == [
            ("e", "dir"), ("run", "file"), ("e/f.txt", "file"),
        ]  # fmt: skip
        assert listed["entries"][1]["mode"] == "-rwxr-xr-x"

        twice = await tools.error(
            "edit_file", sandbox=box, path="/root/d/e/f.txt", old="two", new="2"
        )
        assert twice["details"] == {"found": 2}
        edited = await tools.call(
            "edit_file", sandbox=box, path="/root/d/e/f.txt", old="two", new="2", replace_all=True
        )
        assert edited["replaced"] == 2
        await tools.call("edit_file", sandbox=box, path="/root/d/run", old="bin/sh", new="bin/ash")
        listed = await tools.call("list_files", sandbox=box, path="/root/d")
        assert listed["entries"][1]["mode"] == "-rwxr-xr-x", "an edit keeps the mode"

        found = await tools.call("search_files", sandbox=box, path="/root/d", pattern="^t.*e$")
        assert found["matches"] == [{"path": "/root/d/e/f.txt", "line": 3, "text": "three"}]
        named = await tools.call("search_files", sandbox=box, path="/root/d", glob="r*")
        assert [match["path"] for match in named["matches"]] == ["/root/d/run"]
        none = await tools.call("search_files", sandbox=box, path="/root/d", pattern="nowhere")
        assert none["matches"] == []
        # Nothing of what is looked for is anything but itself.
        odd = await tools.call(
            "search_files",
            sandbox=box,
            path="/root/d",
            pattern="-f/etc/passwd",
            glob="$(touch /tmp/x)",
        )
        assert odd["matches"] == []
        bad = await tools.error("search_files", sandbox=box, path="/root/d", pattern="(")
        assert bad["code"] == "invalid_input"
        for name in ("read_file", "list_files"):
            missing = await tools.error(name, sandbox=box, path="/root/nowhere")
            assert missing["code"] == "file_not_found"
        await tools.call("remove", sandbox=box)


def png() -> bytes:
    """One red point."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    body = zlib.compress(b"\0\xff\0\0")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


@ONE_TRANSPORT
async def test_a_picture_is_a_picture(connect: Connect) -> None:
    async with connect() as tools:
        box = (await tools.call("create"))["sandbox"]
        content = base64.b64encode(png()).decode()
        await tools.call(
            "write_file", sandbox=box, path="/root/a.png", content=content, encoding="base64"
        )
        result = await tools.result("read_file", sandbox=box, path="/root/a.png")
        (image,) = [b for b in result.content if isinstance(b, types.ImageContent)]
        assert image.mime_type == "image/png" and base64.b64decode(image.data) == png()
        # The control: the same bytes without their beginning are no picture, and no text.
        await tools.call("exec", sandbox=box, command="tail -c +2 a.png > b.png", cwd="/root")
        result = await tools.result("read_file", sandbox=box, path="/root/b.png")
        assert [block.type for block in result.content] == ["text", "text"]
        assert "not UTF-8" in str(result.content[1])
        # One that is too large is refused with its size.
        command = "cp a.png c.png && truncate -s 4M c.png"
        await tools.call("exec", sandbox=box, command=command, cwd="/root")
        refused = await tools.error("read_file", sandbox=box, path="/root/c.png")
        assert "4194304 bytes" in refused["message"]
        await tools.call("remove", sandbox=box)


@ONE_TRANSPORT
async def test_bytes_that_are_not_text_are_said(connect: Connect) -> None:
    async with connect() as tools:
        done = await tools.call("run", command=r"printf '\377ok'; printf fine >&2")
        assert done["stdout"] == "\ufffdok" and done["not_utf8"] == ["stdout"]
        fine = await tools.call("run", command="printf ok")
        assert "not_utf8" not in fine


@ONE_TRANSPORT
async def test_ends_of_commands(connect: Connect) -> None:
    async with connect() as tools:
        late = await tools.call("run", command="sleep 4004", timeout_seconds=0.2)
        assert late["outcome"] == "timeout" and "exit_code" not in late
        killed = await tools.call("run", command="kill -9 $$")
        assert (killed["outcome"], killed["signal"]) == ("signaled", "SIGKILL")
        absent = await tools.call("run", command="true", cwd="/nowhere")
        assert absent["outcome"] == "not_started" and "ENOENT" in absent["reason"]
        big = await tools.call("run", command="head -c 9000000 /dev/zero | tr '\\0' x")
        assert big["dropped_bytes"] == 9000000 - (8 << 20)


async def test_errors_say_what_to_do(connect: Connect) -> None:
    async with connect() as tools:
        refused = await tools.error("run", command="true", timeout_seconds=601)
        assert refused["code"] == "policy_denied" and "10m" in refused["message"]
        assert (await tools.call("run", command="true", timeout_seconds=600))["exit_code"] == 0
        wrong: tuple[dict[str, Any], ...] = (
            {"command": "true", "image": "/"},
            {"command": "true", "profile": "permissive"},
            {"command": 5},
            {},
            {"command": "true", "code": "1"},
            {"command": "true", "timeout_seconds": -1},
        )
        for arguments in wrong:
            assert (await tools.error("run", **arguments))["code"] == "invalid_input"
        with pytest.raises(Exception, match="there is no tool"):
            await tools.result("sudo")


async def test_what_its_operator_set_holds(connect: Connect, transport: str) -> None:
    """Over HTTP the daemon's user set nothing, which is the control."""
    flags: tuple[str, ...] = ()
    if transport == "stdio":
        flags = ("--nofile", "99", "--timeout", "5", "--ttl", "1h", "-e", "A=b")
    async with connect(name="third", flags=flags) as tools:
        made = await tools.call("create")
        info = await tools.call("info", sandbox=made["sandbox"])
        limits = {line["what"]: line["value"] for line in info["limits"]}
        if flags:
            assert limits["open files"] == "99" and "1h" in made["clocks"]
            shown = await tools.call("exec", sandbox=made["sandbox"], command="echo $A")
            assert shown["stdout"] == "b\n"
            refused = await tools.error("run", command="true", timeout_seconds=6)
            assert refused["code"] == "policy_denied"
        else:
            assert limits["open files"] != "99"
        await tools.call("remove", sandbox=made["sandbox"])
