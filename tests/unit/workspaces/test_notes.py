"""Notes that programs write for themselves into a repository are no changes of the project."""

from __future__ import annotations

import os
from pathlib import Path

from agentkernel.workspaces.changes import Reader


def test_an_agents_note_is_no_change_and_what_stands_beside_it_is(tmp_path: Path) -> None:
    upper, project = tmp_path / "upper", tmp_path / "project"
    for place in (upper, project):
        (place / ".git" / "hooks").mkdir(parents=True)
    for path in (".git/opencode", ".git/opencode2", ".git/hooks/opencode", "opencode"):
        (upper / path).write_text("0123")
    one, other = os.open(upper, os.O_RDONLY), os.open(project, os.O_RDONLY)
    try:
        changes = Reader(one, other, began_ns=0).read()
    finally:
        os.close(one)
        os.close(other)
    found = [change.path for change in changes.entries]
    assert found == [".git/hooks/opencode", ".git/opencode2", "opencode"]
