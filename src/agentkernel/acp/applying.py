"""The end of a turn: what the agent changed comes into the project, as the user says."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal

from agentkernel.agents.acp.paths import PathMap
from agentkernel.agents.acp.permissions import choice_of
from agentkernel.client._async.sandbox import AsyncSandbox
from agentkernel.errors import AgentKernelError

Apply = Literal["ask", "never", "turn"]
_ONCE, _ALWAYS, _KEEP = "agentkernel-apply", "agentkernel-apply-always", "agentkernel-keep"
_MOST_NAMES: Final = 50
_MOST_PATCH: Final = 40_000
# What is asked about may change while it is: so often it is shown anew.
_TRIES: Final = 3

Ask = Callable[[str, dict[str, Any]], Awaitable[Any]]
"""A request to the editor; its result, or None if there is none."""
Tell = Callable[[str, dict[str, Any]], Awaitable[None]]


class Settling:
    """One sandbox's changes. `mode`: what becomes of them; `ask` asks the editor, which has asked
    for permission to act before and knows how."""

    def __init__(
        self, sandbox: AsyncSandbox, paths: PathMap, mode: Apply, *, ask: Ask, tell: Tell
    ) -> None:
        self._sandbox = sandbox
        self._paths = paths
        self._mode = mode
        self._ask = ask
        self._tell = tell
        self._always: set[str] = set()
        self._kept = ""
        self._calls = 0

    async def settle(self, session: str) -> None:
        """After a turn of a session. Never raises: what can't be applied is told, and is still in
        the sandbox."""
        if self._mode == "never":
            return
        try:
            for _ in range(_TRIES):
                diff = await self._sandbox.workspace.diff()
                changes = diff.get("changes") or []
                if not changes or _mark_of(diff) == self._kept:
                    return
                if await self._settle(session, diff, changes):
                    # What is left now has been decided about; it is asked for again when it
                    # changes.
                    self._kept = _mark_of(await self._sandbox.workspace.diff())
                    return
            await self._show(session, "Kept in the sandbox: they go on changing.", "failed")
        except AgentKernelError as error:
            await self._show(session, f"The changes are in the sandbox: {error.message}", "failed")

    async def _settle(self, session: str, diff: dict[str, Any], changes: list[Any]) -> bool:
        """False: what the user was shown is not what is there now."""
        self._calls += 1
        wanted = [change["path"] for change in changes if not _why(change)]
        held = {change["path"]: why for change in changes if (why := _why(change))}
        if not wanted:
            await self._show(session, _held_text(held), "completed")
            return True
        if self._mode == "ask" and session not in self._always:
            choice = choice_of(
                await self._ask(
                    "session/request_permission",
                    {
                        "sessionId": session,
                        "toolCall": self._call(wanted, held, str(diff.get("patch") or "")),
                        "options": _OPTIONS,
                    },
                )
            )
            if choice == _ALWAYS:
                self._always.add(session)
            elif choice != _ONCE:
                await self._show(session, "Kept in the sandbox.", "completed")
                return True
            if _mark_of(await self._sandbox.workspace.diff()) != _mark_of(diff):
                text = "Not applied: it was changed while you were asked."
                await self._show(session, text, "failed")
                return False
        done = await self._sandbox.workspace.apply()
        await self._show(session, _done_text(done), "completed")
        return True

    def _call(self, wanted: list[str], held: dict[str, str], patch: str) -> dict[str, Any]:
        text = _files_text(wanted)
        if held:
            text += "\n\n" + _held_text(held)
        content = [_text(text)]
        if patch:
            cut = patch[:_MOST_PATCH]
            note = "" if cut == patch else "\n… (agentkernel diff shows all of it)"
            fence = "`" * (3 + max((len(run) for run in _ticks(cut)), default=0))
            content.append(_text(f"{fence}diff\n{cut}\n{fence}{note}"))
        return {
            "toolCallId": self._id(),
            "title": f"Apply {_count(wanted)} to {self._paths.host}",
            "kind": "edit",
            "status": "pending",
            "content": content,
            "locations": [{"path": f"{self._paths.host}/{path}"} for path in wanted[:_MOST_NAMES]],
        }

    async def _show(self, session: str, text: str, status: str) -> None:
        """As the outcome of the call that the user was asked about, if one was."""
        await self._tell(
            "session/update",
            {
                "sessionId": session,
                "update": {
                    "sessionUpdate": "tool_call",
                    "toolCallId": self._id(),
                    "title": "Changes of the sandbox",
                    "kind": "edit",
                    "status": status,
                    "content": [_text(text)],
                },
            },
        )

    def _id(self) -> str:
        return f"agentkernel-apply-{self._calls}"


_OPTIONS: Final = [
    {"optionId": _ONCE, "name": "Apply", "kind": "allow_once"},
    {"optionId": _ALWAYS, "name": "Apply after every turn", "kind": "allow_always"},
    {"optionId": _KEEP, "name": "Keep in the sandbox", "kind": "reject_once"},
]


def _mark_of(diff: dict[str, Any]) -> str:
    """Of what there is to be decided about."""
    return hashlib.sha256(repr((diff.get("changes"), diff.get("patch"))).encode()).hexdigest()


def _why(change: dict[str, Any]) -> str:
    return str(change.get("held_back") or "")


def _count(paths: list[str]) -> str:
    return f"{len(paths)} file" if len(paths) == 1 else f"{len(paths)} files"


def _files_text(paths: list[str]) -> str:
    names = [f"- {path}" for path in paths[:_MOST_NAMES]]
    if len(paths) > _MOST_NAMES:
        names.append(f"- … and {len(paths) - _MOST_NAMES} more")
    return "\n".join(names)


def _held_text(held: dict[str, str]) -> str:
    lines = [f"- {path}: {why}" for path, why in list(held.items())[:_MOST_NAMES]]
    return "\n".join(["Held back in the sandbox:", *lines])


def _done_text(done: dict[str, Any]) -> str:
    by: dict[str, list[str]] = {}
    for file in done.get("files") or []:
        why = f" ({file['why']})" if file.get("why") else ""
        by.setdefault(str(file.get("outcome")), []).append(f"- {file.get('path')}{why}")
    words = {
        "applied": "Applied:",
        "merged": "Merged with what you have changed:",
        "conflict": "Not applied, since you have changed the same lines:",
        "held": "Held back in the sandbox:",
        "skipped": "Can't be applied:",
    }
    parts = []
    for outcome, title in words.items():
        if names := by.get(outcome):
            more = [f"- … and {len(names) - _MOST_NAMES} more"] if len(names) > _MOST_NAMES else []
            parts.append("\n".join([title, *names[:_MOST_NAMES], *more]))
    return "\n\n".join(parts) or "Nothing was to be applied."


def _ticks(text: str) -> list[str]:
    return [run for line in text.splitlines() if "```" in line for run in ["`" * line.count("`")]]


def _text(text: str) -> dict[str, Any]:
    return {"type": "content", "content": {"type": "text", "text": text}}
