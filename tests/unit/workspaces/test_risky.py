"""Which paths make other programs of the user run something, and which are a project's own code."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentkernel.workspaces.changes import Change, Item
from agentkernel.workspaces.noting import note_of
from agentkernel.workspaces.risky import why_held_back, why_risky

HELD = {
    "git": (
        ".git/hooks/pre-commit", ".GIT/config", "a/.git", ".gitmodules", "a/.gitattributes",
        ".husky/pre-push", ".pre-commit-config.yaml", "lefthook.yml", "lefthook-local.toml",
        ".lefthook/pre-commit/x", ".githooks/post-merge", ".hg/hgrc", ".git. /config",
        ".g\u200cit/hooks/x", ".git::$INDEX_ALLOCATION/config", "\uff0egit/config",
    ),
    "editor": (
        ".vscode/tasks.json", ".idea/x", ".fleet/run.json", ".zed/tasks.json", ".cursor/mcp.json",
        ".devcontainer/devcontainer.json", ".nvim.lua", ".exrc", ".dir-locals.el",
        "x.code-workspace", ".helix/languages.toml", ".v\u017fcode/tasks.json",
    ),
    "shell": (
        ".envrc", "sub/.envrc", ".bashrc", "mise.toml", ".mise.local.toml", "mise.dev.toml",
        ".config/mise/config.toml", ".tool-versions", ".venv/bin/activate", "venv/bin/python",
    ),
    "agent": (
        ".mcp.json", "agentkernel.toml", ".claude/settings.json", ".claude/commands/x.md",
        ".codex/config.toml", ".gemini/settings.json", "opencode.json", "opencode.jsonc",
        ".opencode/plugin/x.ts", ".aider.conf.yml", ".github/hooks/x.json",
    ),
    "build server": (".github/workflows/ci.yml", ".gitlab-ci.yml", "Jenkinsfile", ".circleci/x"),
    "package manager": (
        ".npmrc", ".yarnrc.yml", ".yarn/releases/yarn.cjs", ".pnpmfile.cjs", ".cargo/config.toml",
        "gradle/wrapper/gradle-wrapper.jar", ".mvn/extensions.xml",
    ),
    "interpreter": (
        ".venv/pyvenv.cfg", "lib/x.pth", "sitecustomize.py", ".gdbinit", ".Rprofile",
    ),
}  # fmt: skip
ALLOWED = (
    "CLAUDE.md", "AGENTS.md", "GEMINI.md", "Makefile", "Justfile", "package.json", "conftest.py",
    "src/git/hooks.py", "src/head/index.ts", "github/workflows/x", ".github/CODEOWNERS",
    ".gitignore", ".env.example", "bin/tool", "docs/vscode.md", ".python-version", "my.envrc.txt",
    ".venv/lib/python3.12/site-packages/x.py", "gradle/libs.versions.toml", "Dockerfile",
)  # fmt: skip


@pytest.mark.parametrize(("who", "path"), [(who, p) for who, paths in HELD.items() for p in paths])
def test_what_is_held_back_says_who_would_obey(who: str, path: str) -> None:
    assert who in why_risky(path)


@pytest.mark.parametrize("path", ALLOWED)
def test_what_a_project_is_made_of_is_not(path: str) -> None:
    assert why_risky(path) == ""


def test_a_directory_that_git_would_take_for_a_repository() -> None:
    assert "repository" in why_risky("docs/sample/HEAD")
    assert why_risky("docs/sample/head") == ""


def test_links_by_where_they_lead() -> None:
    assert "out of the project" in why_risky("a/b", "../../x")
    assert "out of the project" in why_risky("a", "/etc/passwd")
    assert why_risky("a/b", "../x") == ""


def test_a_file_that_is_moved_away_counts_as_one_that_is_gone() -> None:
    item = Item("file", 0o644, 1)
    moved = Change("harmless", "added", None, item, renamed_from=".envrc")
    assert ".envrc" in why_held_back(moved, -1)
    assert why_held_back(Change("harmless", "added", None, item, renamed_from="x"), -1) == ""


def test_what_the_next_install_would_run_is_noted(tmp_path: Path) -> None:
    upper, project = tmp_path / "upper", tmp_path / "project"
    item = Item("file", 0o644, 1)

    def noted(before: str | None, after: str, name: str = "package.json") -> str:
        for place, text in ((project, before), (upper, after)):
            place.mkdir(exist_ok=True)
            (place / name).write_text(text or "")
        old = None if before is None else item
        change = Change(name, "added" if old is None else "modified", old, item)
        ends = [os.open(place, os.O_RDONLY) for place in (upper, project)]
        try:
            return note_of(change, *ends)
        finally:
            for end in ends:
                os.close(end)

    runs = '{"scripts": {"postinstall": "x", "test": "y"}}'
    assert "postinstall" in noted(None, runs) and "postinstall" in noted("{}", runs)
    assert noted(runs, runs) == noted("{}", '{"scripts": {"test": "x"}}') == ""
    assert noted("{}", runs, "other.json") == ""
    for odd in ("", "[", "[]", "1", '{"scripts": []}', "[" * 9999):
        assert noted(odd, odd) == ""
        assert "postinstall" in noted(odd, runs)
