"""Paths of a project that make other programs of the user run something.

What a guest puts there would get out of the sandbox by the next `git`, editor, shell or agent of
the user's; so it is held back until the user says that it is meant.
"""

from __future__ import annotations

import os

_NAMES = frozenset({
    ".git", ".vscode", ".idea", ".devcontainer", ".husky", ".claude", ".codex", ".gemini",
    ".cursor", ".opencode", ".aider.conf.yml", ".continue", ".direnv", ".circleci", ".envrc",
    ".mcp.json", "agentkernel.toml", ".gitmodules", ".gitattributes", ".gitconfig",
    ".gitlab-ci.yml", ".pre-commit-config.yaml", "lefthook.yml", ".bashrc", ".bash_profile",
    ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin",
    ".inputrc", ".vimrc", ".exrc", ".nvimrc", ".ssh", ".npmrc", ".yarnrc.yml", ".pypirc",
})  # fmt: skip
_BELOW = frozenset({(".github", "workflows"), (".github", "actions")})


def why_risky(path: str, link: str | None = None) -> str:
    """Why a path is held back; nothing: it is not. `link`: where a symbolic link leads."""
    parts = [part.lower().rstrip(". ") for part in path.split("/")]
    for number, part in enumerate(parts):
        if part in _NAMES or (number and (parts[number - 1], part) in _BELOW):
            return f"{path.split('/')[number]} makes other programs run something"
    if link is not None and _leads_out(path, link):
        return "the link leads out of the project"
    return ""


def _leads_out(path: str, link: str) -> bool:
    if link.startswith("/"):
        return True
    # By words alone: every .. counts, whatever stands before it.
    depth = path.count("/")
    for part in link.split("/"):
        if part == os.pardir:
            depth -= 1
            if depth < 0:
                return True
    return False
