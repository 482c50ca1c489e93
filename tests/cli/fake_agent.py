"""An agent that does as it is told: its task is a shell script. For tests of what is around it."""

from __future__ import annotations

import os
from pathlib import Path

NAME = "fake"
CONVERSATION = "conversation-7"

HEADLESS = """\
echo '{"type":"system","subtype":"init","session_id":"conversation-7"}'
eval "$1"
code=$?
echo '{"type":"assistant","message":{"content":[{"type":"text","text":"all done"}]}}'
echo '{"type":"result","subtype":"success","result":"all done","total_cost_usd":0.25,"num_turns":1,\
"usage":{"input_tokens":11,"output_tokens":7}}'
exit $code
"""
INTERACTIVE = """\
import os, signal, sys
def say(*words):  # whole at once: handlers may come in between
    os.write(1, (" ".join(map(str, words)) + chr(10)).encode())
def size(*_):
    columns, rows = os.get_terminal_size(0)
    say("size", rows, columns)
signal.signal(signal.SIGWINCH, size)
signal.signal(signal.SIGINT, lambda *_: say("interrupted"))
say("ready", os.environ["TERM"])
size()
for line in sys.stdin:
    words = line.split()
    if words[:1] == ["quit"]:
        sys.exit(int(words[1]))
    elif words[:1] == ["write"]:
        open(words[1], "w").write(words[2] + chr(10))
        say("written")
    elif words[:1] == ["modes"]:
        esc = chr(27)
        say(esc + "[?1049h" + esc + "[?2004h" + esc + "]52;c;aGk=" + chr(7) + "set")
    else:
        say("heard", repr(line))
"""


def write_definition() -> None:
    """Among the user's own, which the tests' daemon reads, too."""
    directory = Path(os.environ["XDG_CONFIG_HOME"]) / "agentkernel" / "agents"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{NAME}.toml").write_text(f"""\
name = "{NAME}"
title = "Fake"
version = "1.0"
events = "claude"
timeout = "5m"

[command]
headless = ["sh", "-c", '''{HEADLESS}''', "fake", "{{task}}"]
resume_headless = ["sh", "-c", '''echo "again {{session}}"; {HEADLESS}''', "fake", "{{task}}"]
interactive = ["python3", "-c", '''{INTERACTIVE}''']

[state]
keep = ["~/.fake"]

[mcp]
project = ".mcp.json"
""")
