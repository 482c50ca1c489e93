"""`agentkernel doctor --probe`: what a guest can really reach, line by line."""

from __future__ import annotations

import json
import os
import sys

from agentkernel import __version__
from agentkernel.cli.values import printable
from agentkernel.client._sync.sandbox import Sandbox
from agentkernel.client._sync.transport import Transport
from agentkernel.client.results import ProbeFinding, ProbeResult

_OPEN = 1
# Should this process be killed, the sandbox it made goes, too.
_FRESH_TTL_SECONDS = 600.0
_COLOURS = {"closed": "\x1b[32m", "open": "\x1b[33m", "OPEN": "\x1b[31m", "?": "\x1b[31m"}


def main(name: str, *, as_json: bool) -> int:
    """Of the sandbox `name`, or of a fresh one if that is empty."""
    transport = Transport()
    try:
        if name:
            sandbox = Sandbox.connect(name, transport=transport)
            result = sandbox.probe()
        else:
            with Sandbox.create(ttl_seconds=_FRESH_TTL_SECONDS, transport=transport) as sandbox:
                result = sandbox.probe()
    finally:
        transport.close()
    if as_json:
        sandbox_body = {"id": sandbox.id, "name": sandbox.name, "fresh": not name}
        print(json.dumps({"version": __version__, "sandbox": sandbox_body, **result.raw}))
    else:
        _show(result)
    return 0 if result.fit else _OPEN


def _show(result: ProbeResult) -> None:
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    width = max((len(finding.name) for finding in result.findings), default=0)
    group = None
    for finding in result.findings:
        if finding.group != group:
            group = finding.group
            print(f"\n{printable(group)}")
        mark = _mark(finding)
        shown = f"{mark:<6}"
        if coloured:
            shown = f"{_COLOURS[mark]}{shown}\x1b[0m"
        print(f"  {shown}  {printable(finding.name):<{width}}  {printable(_words(finding))}")
    for note in result.notes:
        print(f"\nnote: {printable(note)}")
    closed = sum(finding.state == "closed" for finding in result.findings)
    wrong = result.wrong
    print(
        f"\ntried as {', '.join(result.users)}: {closed} closed, "
        f"{len(result.findings) - closed - len(wrong)} open as they are meant to be, "
        f"{len(wrong)} open or unknown that should be closed"
    )
    if wrong:
        print(f"unfit: {', '.join(printable(finding.name) for finding in wrong)}")


def _mark(finding: ProbeFinding) -> str:
    if finding.state == "unknown":
        return "?"
    return finding.state if finding.expected else "OPEN"


def _words(finding: ProbeFinding) -> str:
    answers = finding.answers
    same = len(set(answers.values())) == 1
    seen = (
        next(iter(answers.values())) if same else ", ".join(f"{u} {a}" for u, a in answers.items())
    )
    if finding.state == "closed":
        refused = [answer for answer in answers.values() if answer not in ("ok", "none")]
        return f"{finding.opens} ({seen})" if refused else finding.opens
    why = finding.reason or ("not answered" if finding.state == "unknown" else "not meant to be")
    detail = f": {finding.detail}" if finding.detail else f" ({seen})"
    return f"{finding.opens}; {why}{detail}"
