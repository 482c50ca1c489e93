"""One thing done to several names: each goes its own way, and all that failed is told."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from agentkernel.cli.outcome import OURS
from agentkernel.errors import AgentKernelError


def for_each(
    names: Sequence[str],
    act: Callable[[str], dict[str, Any]],
    *,
    as_json: bool,
    what: str,
    told: bool = False,
) -> int:
    """The exit status. `what`: how JSON calls those that it was done to. `told`: `act` says itself
    what was done."""
    from agentkernel.cli.main import report

    done, failed = [], []
    for name in names:
        try:
            done.append(act(name))
            if not as_json and not told:
                print(name)
        except AgentKernelError as error:
            failed.append({"name": name, "error": error.to_dict()})
            if not as_json:
                report(error, as_json=False)
    if as_json:
        print(json.dumps({what: done, "failed": failed}))
    return OURS if failed else 0
