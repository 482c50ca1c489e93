"""Changes that are a project's own, and still worth a second look: what a package manager runs by
itself at the next install. They are told of, and applied as others are.
"""

from __future__ import annotations

import json
from typing import Any, Final

from agentkernel.workspaces import beneath
from agentkernel.workspaces.changes import Change, Item

_MOST: Final = 1 << 20
_RUN_BY_ITSELF: Final = {
    "package.json": frozenset({
        "preinstall", "install", "postinstall", "prepublish", "preprepare", "prepare",
        "postprepare",
    }),
    "composer.json": frozenset({
        "pre-install-cmd", "post-install-cmd", "pre-update-cmd", "post-update-cmd",
        "post-autoload-dump", "pre-autoload-dump",
    }),
}  # fmt: skip


def note_of(change: Change, upper: int, project: int) -> str:
    """What to look at; nothing: nothing. Both sides are hostile, and need not be such a file."""
    name = change.path.rpartition("/")[2]
    if name not in _RUN_BY_ITSELF or change.after is None:
        return ""
    before = _scripts(project, change.renamed_from or change.path, change.before)
    after = _scripts(upper, change.path, change.after)
    wanted = _RUN_BY_ITSELF[name]
    changed = sorted(key for key in wanted & after.keys() if after[key] != before.get(key))
    if not changed:
        return ""
    return f"the next install runs what it says: {', '.join(changed)}"


def _scripts(root: int, path: str, item: Item | None) -> dict[str, Any]:
    if item is None or item.type != "file":
        return {}
    try:
        body = json.loads(beneath.read(root, path, _MOST) or b"")
    except (OSError, ValueError, RecursionError):
        return {}
    scripts = body.get("scripts") if isinstance(body, dict) else None
    return scripts if isinstance(scripts, dict) else {}
