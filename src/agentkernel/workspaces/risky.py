"""Paths of a project that make other programs of the user run something.

What a guest puts there would get out of the sandbox by the next `git`, editor, shell or agent of
the user's; so it is held back until the user says that it is meant. A project's own code is not
here, nor what builds and tests it, nor what an agent only reads as instructions (AGENTS.md): these
are what the guest was asked to change, and what a diff is read for.
"""

from __future__ import annotations

import os
import re
import unicodedata
from typing import Final

from agentkernel.workspaces import beneath
from agentkernel.workspaces.changes import Change

# By who would obey it. Lower case: file systems may not tell the difference.
_NAMES: Final = {
    "git": (
        ".git", "git~1", ".gitmodules", ".gitattributes", ".gitconfig", ".githooks", ".husky",
        ".hg", ".jj", ".svn", ".overcommit.yml", ".pre-commit-config.yaml",
        ".pre-commit-config.yml", ".simple-git-hooks.json", ".simple-git-hooks.js",
        ".simple-git-hooks.cjs", "simple-git-hooks.json", ".lefthook", ".lefthook-local",
    ),
    "your editor": (
        ".vscode", ".idea", ".fleet", ".zed", ".cursor", ".devcontainer", ".devcontainer.json",
        ".vs", ".nova", ".helix", ".vim", ".vimrc", "_vimrc", ".gvimrc", ".lvimrc", ".exrc",
        ".nvimrc", ".nvim", ".nvim.lua", ".dir-locals.el", ".dir-locals-2.el",
        ".ycm_extra_conf.py",
    ),
    "your shell": (
        ".envrc", ".direnv", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile",
        ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".inputrc", ".mise", ".mise.toml",
        "mise.toml", ".mise.local.toml", "mise.local.toml", ".tool-versions", ".autoenv",
        ".autoenv.zsh", "devbox.json", ".ssh",
    ),
    "an agent": (
        ".mcp.json", "agentkernel.toml", ".claude", ".claude.json", ".codex", ".gemini",
        ".opencode", "opencode.json", "opencode.jsonc", ".aider.conf.yml",
        ".aider.model.settings.yml", ".continue", ".goose", ".amp", ".agents", ".crush.json",
        "crush.json", ".kiro", ".qwen", ".roo", ".windsurf", ".amazonq", ".augment", ".factory",
        ".openhands", ".junie", ".cline", ".trae",
    ),
    "a build server": (
        ".circleci", ".gitlab-ci.yml", ".travis.yml", "appveyor.yml", ".appveyor.yml",
        "azure-pipelines.yml", "bitbucket-pipelines.yml", ".drone.yml", ".woodpecker",
        ".woodpecker.yml", ".buildkite", ".gitea", ".forgejo", ".teamcity", "jenkinsfile",
    ),
    "a package manager": (
        ".npmrc", ".yarnrc", ".yarnrc.yml", ".pypirc", ".pnpmfile.cjs", ".pnpmfile.mjs",
        "bunfig.toml", ".cargo", "rust-toolchain", "rust-toolchain.toml", ".mvn",
    ),
    "an interpreter": (
        "pyvenv.cfg", "sitecustomize.py", "usercustomize.py", ".gdbinit", ".lldbinit", ".pdbrc",
        ".rprofile", ".renviron", ".irbrc", ".pryrc", ".ghci",
    ),
}  # fmt: skip
_WHO: Final = {name: who for who, names in _NAMES.items() for name in names}
# What is below a directory of another name.
_BELOW: Final = {
    (".github", "workflows"): "a build server",
    (".github", "actions"): "a build server",
    (".github", "hooks"): "an agent",
    (".config", "mise"): "your shell",
    (".yarn", "releases"): "a package manager",
    (".yarn", "plugins"): "a package manager",
    ("gradle", "wrapper"): "a package manager",
    (".venv", "bin"): "your shell",
    ("venv", "bin"): "your shell",
}
_PATTERNS: Final = (
    (re.compile(r"lefthook(-local)?\.(ya?ml|toml|jsonc?)\Z|\.lefthook(-local)?\."), "git"),
    (re.compile(r".*\.(code-workspace|sublime-project)\Z"), "your editor"),
    (re.compile(r"mise\.[a-z0-9-]+\.toml\Z|\.mise\.[a-z0-9-]+\.toml\Z"), "your shell"),
    (re.compile(r".*\.pth\Z"), "an interpreter"),
)


def why_risky(path: str, link: str | None = None) -> str:
    """Why a path is held back; nothing: it is not. `link`: where a symbolic link leads."""
    names = path.split("/")
    parts = [_as_taken(name) for name in names]
    for number, part in enumerate(parts):
        who = _WHO.get(part) or (number and _BELOW.get((parts[number - 1], part)))
        if who:
            return f"{names[number]} makes {who} run or obey something"
    for pattern, who in _PATTERNS:
        if pattern.match(parts[-1]):
            return f"{names[-1]} makes {who} run or obey something"
    if names[-1] == "HEAD":
        # Where it, objects and refs are, git takes a directory for a repository: with its config.
        return "HEAD makes git take its directory for a repository, and obey what is there"
    if link is not None and _leads_out(path, link):
        return "the link leads out of the project"
    return ""


def _as_taken(name: str) -> str:
    """What a file system may take a name for: some tell no case, no form of a letter and no letter
    that is not seen, end a name before a colon, or leave out what is at its end."""
    text = unicodedata.normalize("NFKC", name).casefold().partition(":")[0]
    seen = (letter for letter in text if unicodedata.category(letter) != "Cf")
    return "".join(seen).rstrip(". ")


def why_held_back(change: Change, upper: int) -> str:
    """As `why_risky`, of a change; `upper`: where the guest's files are. Raises OSError."""
    link = None
    if change.after is not None and change.after.type == "symlink":
        link = beneath.link_target(upper, change.path)
    why = why_risky(change.path, link)
    return why or ("" if change.renamed_from is None else why_risky(change.renamed_from))


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
