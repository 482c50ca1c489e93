"""What is said once."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.backends.base import EffectiveLine, notices
from agentkernel.cli.notices import tell_once

LINES = (
    EffectiveLine("memory", "4 GiB", "not enforced: this user may not make control groups"),
    EffectiveLine("pids", "512", "RLIMIT_NPROC in the user namespace"),
    EffectiveLine("supplementary groups", "kept", "not enforced: needs subuids"),
)


def test_a_limit_that_does_not_hold_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = notices(LINES)
    assert found == ["memory 4 GiB is not enforced: this user may not make control groups"]
    tell_once(str(tmp_path), found, "agentkernel info")
    first = capsys.readouterr().err
    assert found[0] in first and "`agentkernel info`" in first
    tell_once(str(tmp_path), found, "agentkernel info")
    assert capsys.readouterr().err == ""
    tell_once(str(tmp_path), ["disk 1 GiB is not enforced: no"], "agentkernel info")
    assert "disk 1 GiB" in capsys.readouterr().err, "another one is news"
