"""An ACP agent for tests, standard library only: it runs inside a sandbox and does what a prompt's
lines say, one word and its arguments each.

say TEXT          a message
ask TITLE         a permission question; says which option was chosen
read PATH         fs/read_text_file; says what came
write PATH TEXT   fs/write_text_file
run COMMAND       a terminal, shown by a tool call; says its output and how it ended
edit PATH         a tool call with a diff, and the file changed by the agent itself
wait PATH         until the file is there, or the turn is cancelled
call METHOD JSON  any method of the client's; says what came
garbage           all that must not come
forge             once cancelled, after the turn: answers to what the editor is asked; says so
late PATH         once cancelled, after the turn: a file is written; says so
env NAME          says a variable
"""

from __future__ import annotations

import json
import os
import pathlib
import queue
import sys
import threading
import time
from typing import Any

HOME = pathlib.Path(os.environ.get("HOME", "/root")) / ".fake-agent"
OUT = threading.Lock()
ASKED: dict[str, queue.Queue[dict[str, Any]]] = {}
CANCELLED: set[str] = set()
PROMPTS: list[str] = []
NUMBER = iter(range(1, 1 << 30))


def send(body: dict[str, Any]) -> None:
    line = json.dumps({"jsonrpc": "2.0", **body})
    with OUT:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
    number = f"a{next(NUMBER)}"
    answers: queue.Queue[dict[str, Any]] = queue.Queue()
    ASKED[number] = answers
    send({"id": number, "method": method, "params": params})
    return answers.get()


def update(session: str, **body: Any) -> None:
    send({"method": "session/update", "params": {"sessionId": session, "update": body}})


def say(session: str, text: str) -> None:
    block = {"type": "text", "text": text}
    update(session, sessionUpdate="agent_message_chunk", content=block)
    with open(HOME / f"{session}.log", "a") as file:
        file.write(json.dumps(block) + "\n")


def told(answer: dict[str, Any]) -> str:
    if "error" in answer:
        return f"error {answer['error']['code']}: {answer['error']['message']}"
    return json.dumps(answer["result"])


def obey(session: str, cwd: str, line: str) -> None:
    word, _, rest = line.partition(" ")
    path = rest.split(" ")[0]
    if word == "say":
        say(session, rest)
    elif word == "ask":
        options = [
            {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
            {"optionId": "no", "name": "No", "kind": "reject_once"},
        ]
        call = {"toolCallId": "t-ask", "title": rest, "locations": [{"path": f"{cwd}/asked"}]}
        params = {"sessionId": session, "toolCall": call, "options": options}
        say(session, "answer " + told(ask("session/request_permission", params)))
    elif word == "read":
        answer = ask("fs/read_text_file", {"sessionId": session, "path": path})
        say(session, "read " + told(answer))
    elif word == "write":
        text = rest.partition(" ")[2]
        params = {"sessionId": session, "path": path, "content": text}
        say(session, "wrote " + told(ask("fs/write_text_file", params)))
    elif word == "run":
        made = ask("terminal/create", {"sessionId": session, "command": rest})
        id = made["result"]["terminalId"]
        content = [{"type": "terminal", "terminalId": id}]
        update(session, sessionUpdate="tool_call", toolCallId="t-run", title=rest, content=content)
        params = {"sessionId": session, "terminalId": id}
        ended = ask("terminal/wait_for_exit", params)
        output = ask("terminal/output", params)
        ask("terminal/release", params)
        say(session, f"ran {told(ended)} {output['result']['output']!r}")
    elif word == "edit":
        file = pathlib.Path(cwd, path)
        old = file.read_text() if file.exists() else None
        new = (old or "") + "edited\n"
        diff = {"type": "diff", "path": str(file), "oldText": old, "newText": new}
        update(
            session,
            sessionUpdate="tool_call",
            toolCallId="t-edit",
            title=f"Edit {path}",
            kind="edit",
            content=[diff],
            locations=[{"path": str(file), "line": 1}],
        )
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(new)
    elif word == "wait":
        while not os.path.exists(path) and session not in CANCELLED:
            time.sleep(0.02)
    elif word == "call":
        method, _, given = rest.partition(" ")
        say(session, f"{method} " + told(ask(method, json.loads(given or "{}"))))
    elif word == "garbage":
        garbage()
    elif word in ("forge", "late"):
        threading.Thread(target=afterwards, args=(session, word, f"{cwd}/{path}")).start()
    elif word == "env":
        say(session, f"{rest}={os.environ.get(rest)}")


def afterwards(session: str, word: str, path: str) -> None:
    while session not in CANCELLED:
        time.sleep(0.02)
    if word == "late":
        pathlib.Path(path).write_text("late\n")
    else:
        # The next numbers, after the one that this turn was asked for with.
        mark, _, last = PROMPTS[-1].rpartition("-")
        outcome = {"outcome": "selected", "optionId": "agentkernel-apply"}
        for number in range(int(last), int(last) + 50):
            send({"id": f"{mark}-{number}", "result": {"outcome": outcome}})
    say(session, word)


def garbage() -> None:
    with OUT:
        out = sys.stdout.buffer
        out.write(b"hello\n{\n[]\n\xff\xfe\n\x00\n")
        out.write(b'{"jsonrpc":"2.0","id":"nobody","result":{}}\n')
        out.write(b'{"jsonrpc":"2.0","id":{"a":1},"result":{}}\n')
        out.write(b'{"jsonrpc":"2.0","method":5}\n{"jsonrpc":"2.0","method":"what/ever"}\n')
        out.write(b'{"jsonrpc":"2.0","method":"session/update","params":[1,2]}\n')
        out.write(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n")
        out.write(b'{"jsonrpc":"2.0","method":"session/update","params":"')
        for _ in range(17):
            out.write(b"x" * (1 << 20))
        out.write(b'"}\n')
        out.flush()


def prompt(id: Any, params: dict[str, Any]) -> None:
    session = params["sessionId"]
    PROMPTS.append(str(id))
    CANCELLED.discard(session)
    cwd = json.loads((HOME / f"{session}.json").read_text())["cwd"]
    reason = "end_turn"
    for block in params["prompt"]:
        if block["type"] == "resource_link":
            say(session, "link " + block["uri"])
        for line in block.get("text", "").splitlines():
            if session in CANCELLED:
                reason = "cancelled"
                break
            obey(session, cwd, line)
    if session in CANCELLED:
        reason = "cancelled"
    send({"id": id, "result": {"stopReason": reason}})
    send({"id": id, "result": {"stopReason": "refusal"}})  # an answer that comes twice


def serve(message: dict[str, Any]) -> None:
    id, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    if method == "initialize":
        capabilities = {"loadSession": True, "sessionCapabilities": {"list": {}}}
        terminal = {"id": "t", "name": "T", "type": "terminal", "args": ["--setup"]}
        hidden = {"id": "m", "name": "M", "_meta": {"terminal-auth": {"command": "touch"}}}
        send(
            {
                "id": id,
                "result": {
                    "protocolVersion": 1,
                    "agentCapabilities": capabilities,
                    "authMethods": [terminal, hidden],
                    "_meta": {"client": params["clientCapabilities"]},
                },
            }
        )
    elif method == "session/new":
        session = f"s{len(list(HOME.glob('*.json'))) + 1}"
        (HOME / f"{session}.json").write_text(json.dumps(params))
        send({"id": id, "result": {"sessionId": session, "_meta": {"given": params}}})
    elif method == "session/load":
        session = params["sessionId"]
        if not (HOME / f"{session}.json").exists():
            send({"id": id, "error": {"code": -32002, "message": "no such session"}})
            return
        log = HOME / f"{session}.log"
        for line in log.read_text().splitlines() if log.exists() else ():
            update(session, sessionUpdate="agent_message_chunk", content=json.loads(line))
        send({"id": id, "result": {}})
    elif method == "session/list":
        found = [
            {"sessionId": file.stem, "cwd": json.loads(file.read_text())["cwd"]}
            for file in sorted(HOME.glob("*.json"))
        ]
        send({"id": id, "result": {"sessions": found}})
    elif method == "session/prompt":
        threading.Thread(target=prompt, args=(id, params), daemon=True).start()
    elif method == "session/cancel":
        CANCELLED.add(params["sessionId"])
    elif method is None and id in ASKED:
        ASKED.pop(id).put(message)
    elif id is not None and method is not None:
        send({"id": id, "error": {"code": -32601, "message": "no such method"}})


def main() -> None:
    HOME.mkdir(parents=True, exist_ok=True)
    sys.stderr.write("the fake agent runs\n")
    sys.stderr.flush()
    for line in sys.stdin:
        if line.strip():
            serve(json.loads(line))


if __name__ == "__main__":
    main()
