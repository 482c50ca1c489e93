"""What an agent is told of where it is, as a file that it reads before anything else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentkernel.agents.definition import AgentDefinition

_TOP = """\
# You are in a sandbox

{title} runs here in a sandbox of agentkernel, not on the user's own machine. Inside it you may do
anything: install, delete, start servers. Work without asking for permission; nothing outside can
break. What follows is decided outside and can't be changed from here, so don't try to get around
it: if it is in your way, say so and say what you need.
"""
_FILES = """\
## Files

The project is at `{workspace}`. It is copy-on-write: what you change there is seen here alone until
the user has looked at it and applied it. So leave files as they are to be; do not push, and do not
copy results to other places. Changes to files that would run on the user's machine by themselves
(`.git/hooks`, `.git/config`, `.vscode`, `.envrc`, `.mcp.json`, settings of agents, and the like)
are held back when the rest is applied: say so if you have made one. Files that look like secrets
(`.env`, keys) may be missing here on purpose. Everything outside the project is gone when the
sandbox is.
"""
_SECRETS = """\
## Secrets

These variables hold placeholders: {names}. The gateway puts the real values in, on the way to the
hosts they belong to. Use them as they are; the values are nowhere in here, and printing, decoding
or sending a placeholder somewhere else gets you nothing.
"""


def context_text(
    definition: AgentDefinition,
    *,
    workspace: str,
    network_page: str,
    secrets: Sequence[str],
    limits: Sequence[str],
    mcp_names: Sequence[str],
) -> str:
    """`network_page`: of `network.guest_files.page`. `secrets`: names of variables, never values.
    `limits`: sentences, such as "4 GiB of memory"."""
    parts = [
        _TOP.format(title=_plain(definition.title)),
        _FILES.format(workspace=_plain(workspace)),
    ]
    if limits:
        parts.append("## Limits\n\n" + _list(limits))
    if secrets and "## Secrets" not in network_page:
        parts.append(_SECRETS.format(names=", ".join(f"`{_plain(name)}`" for name in secrets)))
    if mcp_names:
        parts.append("## MCP servers\n\nThe user gave you these:\n\n" + _list(mcp_names))
    if network_page:
        # Its title is one of the sections here.
        parts.append(_nested(network_page))
    return "\n".join(parts)


def _list(items: Iterable[str]) -> str:
    return "".join(f"- {_plain(item)}\n" for item in items)


def _nested(page: str) -> str:
    lines = page.splitlines()
    return "\n".join(f"#{line}" if line.startswith("#") else line for line in lines) + "\n"


def _plain(text: str) -> str:
    """One line of printable text: names come from files and callers."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)[:300]
