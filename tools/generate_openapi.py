"""Writes `docs/reference/openapi.json` from what the daemon's routes declare.

    python tools/generate_openapi.py [--check]

With --check nothing is written, and the exit status is 1 if something would be.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "docs" / "reference" / "openapi.json"


def main() -> int:
    sys.path.insert(0, str(ROOT / "src"))
    from agentkernel.server.openapi import document_text

    text = document_text()
    same = FILE.exists() and FILE.read_text() == text
    if "--check" in sys.argv:
        print("up to date" if same else f"differs: {FILE}")
        return 0 if same else 1
    FILE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
