"""Answers that no daemon of ours would give: a typed error, whatever they are."""

from __future__ import annotations

from typing import Any

import pytest

from agentkernel.client import results, wire
from agentkernel.errors import AgentKernelError, DaemonError, GuestFileError


@pytest.mark.parametrize("length", ["9" * 5000, "-1", "²", "1_0", ""])
def test_lengths_that_are_none(length: str) -> None:
    with pytest.raises(DaemonError):
        _ = wire.Head(200, {"content-length": length}).length


@pytest.mark.parametrize("body", [b"[" * 100_000, b"{", b"\xff", b"9" * 5000])
def test_json_that_is_none(body: bytes) -> None:
    with pytest.raises(DaemonError):
        wire.parse_json(body)
    with pytest.raises(DaemonError, match="status 500"):
        wire.raise_problem(wire.Head(500, {"content-type": "application/json"}), body)


def test_a_problem_of_another_shape_is_still_one() -> None:
    problem = {"code": ["x"], "detail": {"a": 1}, "hint": 5, "details": {"self": 1, "path": [2]}}
    assert isinstance(wire.error_of(problem), AgentKernelError)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"outcome": "won"},
        {"outcome": "exited", "exit_code": "0"},
        {"outcome": "exited", "stdout_b64": "é"},
        {"outcome": "exited", "usage": 1.5},
        {"id": "a"},
        {"type": "file", "size": 1, "mode": 1, "uid": 1, "gid": 1, "mtime_ms": "1"},
        ["outcome"],
    ],
)
def test_results_that_are_none(body: Any) -> None:
    for kind in (results.CommandResult, results.SandboxInfo, results.JobInfo, results.Entry):
        with pytest.raises(DaemonError):
            kind.of(body)


@pytest.mark.parametrize("details", [{"errno_name": [None]}, {"path": {}}, {"errno_name": 1}])
def test_problems_with_details_of_another_kind(details: Any) -> None:
    error = wire.error_of({"code": "file_error", "details": details})
    assert isinstance(error, GuestFileError) and error.errno is None
