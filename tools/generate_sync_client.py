"""Writes `src/agentkernel/client/_sync` from `_async`, word by word.

    python tools/generate_sync_client.py [--check]

With --check nothing is written, and the exit status is 1 if something would be.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

CLIENT = Path(__file__).resolve().parents[1] / "src" / "agentkernel" / "client"
NOTE = "# Generated from _async by tools/generate_sync_client.py. Change that, not this.\n"

# In this order.
WORDS = (
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\baclosing\b", "closing"),
    (r"\bAsync([A-Z]\w*)", r"\1"),
    (r"\b_async\b", "_sync"),
    (r"\basyncio_stream\b", "socket_stream"),
    (r"\basynchronous\b", "blocking"),
)


def translate(text: str) -> str:
    for pattern, replacement in WORDS:
        text = re.sub(pattern, replacement, text)
    return NOTE + text


def generated() -> dict[Path, str]:
    """What every file of `_sync` is to hold."""
    return {
        CLIENT / "_sync" / path.name: translate(path.read_text())
        for path in sorted((CLIENT / "_async").glob("*.py"))
    }


def main() -> int:
    wanted = generated()
    present = set((CLIENT / "_sync").glob("*.py"))
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    extra = sorted(present - wanted.keys())
    for path in (*stale, *extra):
        print(f"{'differs' if '--check' in sys.argv else 'written'}: {path}")
    if "--check" in sys.argv:
        return 1 if stale or extra else 0
    for path in stale:
        path.write_text(wanted[path])
    for path in extra:
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
