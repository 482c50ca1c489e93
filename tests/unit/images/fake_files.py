"""Making and reading trees of files in tests; secrets that are planted carry MARKER."""

from __future__ import annotations

import os
from pathlib import Path

# In every planted secret; it must turn up nowhere.
MARKER = "planted-marker-7c1f"
KEY_TEXT = f"-----BEGIN {'PRIVATE'} KEY-----\n{MARKER}\n"


def put(root: Path, path: str, text: str = "", mode: int = 0o644) -> Path:
    full = root / path
    full.parent.mkdir(parents=True, exist_ok=True)
    full.write_text(text)
    full.chmod(mode)
    return full


def link(root: Path, path: str, target: str) -> None:
    full = root / path
    full.parent.mkdir(parents=True, exist_ok=True)
    full.symlink_to(target)


def program(root: Path, path: str) -> Path:
    return put(root, path, "#!/bin/sh\n", 0o755)


def contents(directory: str | Path) -> dict[str, bytes]:
    """Every regular file below a directory, by its relative path; links are not followed."""
    found = {}
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not os.path.islink(path):
                with open(path, "rb") as file:
                    found[os.path.relpath(path, directory)] = file.read()
    return found
