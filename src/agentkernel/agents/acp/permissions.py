"""Permission questions of an agent, answered without a person or with one's choice."""

from __future__ import annotations

from typing import Any, Final

CANCELLED: Final[dict[str, Any]] = {"outcome": {"outcome": "cancelled"}}
_ALLOWING: Final = ("allow_once", "allow_always")


def options_of(params: Any) -> dict[str, str]:
    """The options of a session/request_permission by id, with their kinds."""
    options = params.get("options") if isinstance(params, dict) else None
    found: dict[str, str] = {}
    for option in options if isinstance(options, list) else []:
        if isinstance(option, dict) and isinstance(id := option.get("optionId"), str):
            found[id] = str(option.get("kind"))
    return found


def allowed(params: Any) -> dict[str, Any]:
    """The answer of somebody who allows everything: this once if there is a choice, since a
    sandbox is what guards. Without an option that allows, the question is cancelled."""
    options = options_of(params)
    for kind in _ALLOWING:
        for id, known in options.items():
            if known == kind:
                return chosen(id)
    return CANCELLED


def chosen(id: str) -> dict[str, Any]:
    return {"outcome": {"outcome": "selected", "optionId": id}}


def choice_of(result: Any) -> str | None:
    """The option that an answer names; None: cancelled, or no answer at all."""
    outcome = result.get("outcome") if isinstance(result, dict) else None
    if not isinstance(outcome, dict) or outcome.get("outcome") != "selected":
        return None
    id = outcome.get("optionId")
    return id if isinstance(id, str) else None
