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
    # Nothing of the sandbox is there yet, and of the image no half of a layer is ever used.
    *(
        Case(f"layer.{moment}", "create of an image", GONE, True, GONE)
        for moment in ("begun", "unpacked", "done")
    ),
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
    *(
        Case(f"image.{moment}", "load image", GONE, True, GONE)
        for moment in ("staged", "fetched", "unpacked")
    ),
    Case("image.named", "load image", GONE),
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


class VolumeCase(NamedTuple):
    """`after`: the volume of the operation after the next start: GONE or READY. `fails`: also the
    system may refuse here; the operation raises, the volume is then as after the next start, and
    the same operation works right afterwards."""

    points: str
    operation: str
    after: str
    fails: bool = False

    @property
    def point(self) -> str:
        return self.points.rpartition(">")[2]

    def __str__(self) -> str:
        return f"{self.operation}-{self.points}"


READY = "ready"
VOLUME_CASES: tuple[VolumeCase, ...] = (
    VolumeCase("volume.row", "volume create", GONE),
    VolumeCase("volume.directory", "volume create", GONE, True),
    VolumeCase("volume.made", "volume create", GONE),
    VolumeCase("volume.made>store.commit", "volume create", GONE, True),
    VolumeCase("volume.done", "volume create", READY),
    VolumeCase("volume.directory", "volume import", GONE, True),
    VolumeCase("launch.launched", "volume import", GONE, True),
    VolumeCase("file.midway", "volume import", GONE),
    VolumeCase("volume.imported", "volume import", GONE),
    VolumeCase("volume.done", "volume import", READY),
    VolumeCase("volume.remove_row", "volume remove", GONE),
    VolumeCase("launcher.spawned", "volume remove", GONE),
    VolumeCase("volume.files_removed", "volume remove", GONE),
    VolumeCase("volume.load", "volume restart", READY),
)


# Of a kit, in the same words: GONE or READY.
KIT_CASES: tuple[VolumeCase, ...] = (
    VolumeCase("volume.directory", "kit install", GONE, True),
    VolumeCase("kit.filled", "kit install", GONE),
    VolumeCase("launch.launched", "kit install", GONE, True),
    VolumeCase("kit.checked", "kit install", GONE),
    VolumeCase("kit.recorded", "kit install", GONE),
    VolumeCase("kit.recorded>store.commit", "kit install", GONE, True),
    VolumeCase("volume.done", "kit install", READY),
    VolumeCase("volume.remove_row", "kit remove", GONE),
    VolumeCase("kit.dropped", "kit remove", GONE),
)


# Points of a build, and whether its image has its name after the next start.
BUILD_CASES: tuple[tuple[str, bool], ...] = (
    ("launch.launched", False),
    ("build.ran", False),
    ("remove.ended", False),
    ("build.layer", False),
    ("build.image", False),
    ("build.named", True),
)

# Moments of an agent's session: taken back, unless it had ended.
SESSION_CASES: tuple[str, ...] = (
    "session.row",
    "session.sandbox",
    "session.setup",
    "session.job",
    "session.ended",
)

# Points of a login's refresh, and whether the next owner goes on with it. The provider has taken
# the old refresh token back when it answers: what is not kept then is lost.
LOGIN_CASES: tuple[tuple[str, bool], ...] = (
    ("login.answered", False),
    ("login.refresh_kept", True),
    ("login.access_kept", True),
)
