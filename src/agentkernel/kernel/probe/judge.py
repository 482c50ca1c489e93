"""Reports of several users of one sandbox → findings, one for each try."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from agentkernel.backends.base import Blueprint, EffectiveLine
from agentkernel.backends.registry import DEFAULT_BACKEND
from agentkernel.kernel.probe.catalogue import CATALOGUE, Try
from agentkernel.kernel.probe.engines import ENGINES
from agentkernel.kernel.probe.findings import ProbeFinding, ProbeResult
from agentkernel.kernel.probe.report import Seen
from agentkernel.kernel.probe.rules import Context, HostFacts, Verdict

Report = Mapping[str, Seen]
_MAX_DETAIL = 400


def judge(
    reports: Mapping[str, Report],
    blueprint: Blueprint,
    *,
    engine: str = DEFAULT_BACKEND,
    effective: Iterable[EffectiveLine] = (),
    host: HostFacts | None = None,
    notes: Sequence[str] = (),
) -> ProbeResult:
    """Every try of the catalogue, judged for each user of `reports` as `engine` means it."""
    lines = {line.what: line for line in effective}
    by = ENGINES[engine]
    contexts = {user: Context(blueprint, lines, host or HostFacts(), user, by) for user in reports}
    findings = tuple(_finding(entry, reports, contexts) for entry in CATALOGUE.values())
    return ProbeResult(
        fit=bool(reports) and all(finding.expected for finding in findings),
        users=tuple(reports),
        findings=findings,
        notes=tuple(notes),
    )


def _finding(
    entry: Try, reports: Mapping[str, Report], contexts: Mapping[str, Context]
) -> ProbeFinding:
    """The worst that any user met."""
    verdicts = {}
    for user, report in reports.items():
        rule = contexts[user].engine.rules.get(entry.name, entry.rule)
        verdicts[user] = rule(report[entry.name], contexts[user])
    worst = max(verdicts.values(), key=_badness, default=Verdict("unknown"))
    return ProbeFinding(
        name=entry.name,
        group=entry.group,
        opens=entry.opens,
        state=worst.state,
        expected=_badness(worst) <= 1,
        reason=worst.reason,
        detail=worst.detail[:_MAX_DETAIL],
        answers={user: report[entry.name].answer for user, report in reports.items()},
    )


def _badness(verdict: Verdict) -> int:
    if verdict.state == "closed":
        return 0
    if verdict.state == "unknown":
        return 2
    return 1 if verdict.reason else 3
