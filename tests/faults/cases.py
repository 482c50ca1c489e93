"""For every fault point: which operations reach it, and what is true after the next start."""

from __future__ import annotations

from typing import NamedTuple

GONE, RUNNING, STOPPED = "gone", "running", "stopped"
# Ended or half removed: its row says so, and whoever asks again completes it.
ERROR, REMOVING = "error", "removing"


class Case(NamedTuple):
    """`after`: the sandbox of the operation, after the next start. `points`: see operations.arm.

    `fails`: also the system may refuse here (ENOSPC, EIO, EMFILE): the operation raises, the
    sandbox is `after_error` then, and the same operation works right afterwards.
    """

    points: str
    operation: str
    after: str
    fails: bool = False
    after_error: str = ""

    @property
    def point(self) -> str:
        return self.points.rpartition(">")[2]

    def __str__(self) -> str:
        return f"{self.operation}-{self.points}"


# Moments of a launch, which create and start have in common.
_LAUNCH = ("marked", "ids", "layers", "groups", "files", "launched", "recorded")

CASES: tuple[Case, ...] = (
    Case("create.row", "create", GONE),
    Case("launch.directory", "create", GONE, True, GONE),
    *(Case(f"launch.{moment}", "create", GONE, True, GONE) for moment in _LAUNCH),
    Case("launcher.spawned", "create", GONE, True, GONE),
    Case("create.connected", "create", GONE),
    Case("create.connected>store.commit", "create", GONE, True, GONE),
    Case("create.done", "create", RUNNING),
    *(Case(f"launch.{moment}", "run", GONE, True, GONE) for moment in ("directory", "launched")),
    Case("create.done", "run", GONE),
    Case("start.begin", "start", STOPPED),
    *(Case(f"launch.{moment}", "start", STOPPED, True, STOPPED) for moment in _LAUNCH),
    Case("launcher.spawned", "start", STOPPED, True, STOPPED),
    Case("start.connected", "start", STOPPED),
    Case("start.connected>store.commit", "start", STOPPED, True, STOPPED),
    Case("start.done", "start", RUNNING),
    Case("exec.before", "exec", RUNNING),
    Case("exec.started", "exec", RUNNING),
    Case("job.row", "job", RUNNING),
    Case("job.started", "job", RUNNING),
    Case("job.ended", "short job", RUNNING),
    Case("file.before", "file", RUNNING),
    Case("file.midway", "file", RUNNING),
    Case("file.sent", "file", RUNNING),
    Case("stop.begin", "stop", RUNNING),
    *(
        Case(f"end.{moment}", "stop", STOPPED, True, ERROR)
        for moment in ("killed", "groups", "ids")
    ),
    Case("stop.ended", "stop", STOPPED),
    Case("stop.ended>store.commit", "stop", STOPPED, True, ERROR),
    Case("stop.done", "stop", STOPPED),
    Case("remove.row", "remove", GONE),
    Case("end.killed", "remove", GONE, True, REMOVING),
    Case("remove.ended", "remove", GONE, True, REMOVING),
    Case("launcher.spawned", "remove", GONE, True, REMOVING),
    Case("remove.files", "remove", GONE),
    Case("remove.files>store.commit", "remove", GONE, True, REMOVING),
    Case("remove.files", "remove stopped", GONE),
    Case("remove.done", "remove", GONE),
    *(
        Case(f"reconcile.{moment}", "restart", RUNNING)
        for moment in ("begin", "found", "orphan", "done")
    ),
    Case("audit.append", "create", GONE, True, GONE),
    Case("audit.append", "exec", RUNNING, True, RUNNING),
    Case("store.commit", "create", GONE, True, GONE),
    Case("store.commit", "job", RUNNING, True, RUNNING),
    *(
        Case(f"launch.{moment}", "create by runc", GONE, True, GONE)
        for moment in ("groups", "launched", "recorded")
    ),
    Case("launcher.spawned", "create by runc", GONE, True, GONE),
)
