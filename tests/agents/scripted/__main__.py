"""The scripted models by hand: `python -m tests.agents.scripted --script FILE`."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from .models import Asked
from .replies import Reply
from .script import parse
from .server import ScriptedModels


class _Told(ScriptedModels):
    """Says what is asked of it."""

    def answer(self, asked: Asked) -> Reply:
        reply = super().answer(asked)
        key = f"{asked.key[:24]}…" if len(asked.key) > 24 else asked.key
        what = "aside" if asked.aside else "turn" if asked.conversation else ""
        words = [asked.method, f"{asked.host}{asked.path}", str(reply.status), key, what]
        print(*filter(None, words), flush=True)  # noqa: T201
        return reply


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.agents.scripted", description=__doc__)
    parser.add_argument("--script", type=Path, help="a JSON file of turns; see README.md")
    parser.add_argument("--key", action="append", default=[], help="the only keys that are taken")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--place", type=Path, help="where its certificates go")
    parser.add_argument("--forward", action="store_true", help="pass on what it does not serve")
    chosen = parser.parse_args()
    try:
        scripts = parse(chosen.script.read_text()) if chosen.script else []
    except (OSError, ValueError) as exc:
        sys.exit(f"{chosen.script}: {exc}")
    place = chosen.place or Path(tempfile.mkdtemp(prefix="scripted-"))
    server = _Told(
        place,
        *scripts,
        keys=set(chosen.key),
        forward=lambda host: bool(chosen.forward),
        port=chosen.port,
    )
    print("# config.toml of the user whose sandboxes should come here:\n[network]")  # noqa: T201
    for key, value in server.settings().items():
        print(f'{key} = "{value}"', flush=True)  # noqa: T201
    signal.sigwait({signal.SIGINT, signal.SIGTERM})
    server.close()


main()
