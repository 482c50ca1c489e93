"""Who speaks to an acp session's agent in this daemon. Loaded when the first one is needed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agentkernel.kernel.agents.acp_driver import AcpDriver
from agentkernel.kernel.agents.acp_inside import KernelInside
from agentkernel.kernel.agents.driving import Drive
from agentkernel.kernel.agents.kept import kept_of
from agentkernel.kernel.agents.recording import Recorder
from agentkernel.kernel.store import SessionRecord

if TYPE_CHECKING:
    from agentkernel.kernel.kernel import Kernel


def make_drive(kernel: Kernel, record: SessionRecord, recorder: Recorder, directory: Path) -> Drive:
    """`directory`: the session's own."""
    driver = AcpDriver(
        recorder,
        KernelInside(kernel, record.sandbox_id),
        directory,
        attached=recorder.attached,
        attended=kept_of(record).attended,
        agent=record.agent,
    )
    return Drive(recorder, driver)
