"""Named moments at which tests make things go wrong. In a normal process they do nothing.

    faults.point("launch.groups")           in the code, where the moment is
    faults.arm("launch.groups", action)     in a test's own process

An action kills somebody, or raises the OSError that the next system call might. Nothing but code of
the same process can arm a point: no environment, file or request does. Every point has a case in
tests/faults, or a test fails.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Final

# What is true at that moment.
POINTS: Final[Mapping[str, str]] = {
    "create.row": "the row says creating, nothing else exists",
    "create.connected": "the sandbox answers, its row says creating",
    "create.done": "the row says running, the caller was not told",
    "start.begin": "nothing runs, the row says stopped",
    "start.connected": "the sandbox answers, its row says stopped",
    "start.done": "the row says running, the caller was not told",
    "build.ran": "a build's command has ended, its sandbox is still there",
    "build.layer": "a step's layer is in the store, and nothing knows of it",
    "build.image": "the image is in the store, without its names",
    "build.named": "the image has its names, the caller was not told",
    "launch.directory": "the sandbox has an empty directory",
    "launch.marked": "its groups are written down and not made, no ids are held",
    "launch.ids": "an id range is held",
    "launch.layers": "the layers below it are made and written down",
    "launch.groups": "its control groups are made",
    "launch.files": "the place for its files is made: a directory, or a disk image",
    "launch.launched": "PID 1 runs and is written down by the launcher, the runtime is not",
    "launch.recorded": "the runtime is written down, nobody has connected",
    "layer.begun": "a layer of an image has an empty directory without a name",
    "layer.unpacked": "all of a layer is in that directory",
    "layer.done": "the layer has its name",
    "launcher.spawned": "the launcher runs, or the remover of a sandbox's files",
    "exec.before": "a command is about to be asked for",
    "exec.started": "a command runs",
    "job.row": "the job's row says running, nobody was asked to run it",
    "job.started": "agentd runs the job, the caller was not told",
    "job.ended": "the job's end is known, its row says running",
    "session.row": "an agent's session has a row that says starting, nothing else exists",
    "session.sandbox": "its sandbox runs, the agent does not",
    "session.setup": "its sandbox's network is in the phase for the setup, which has not begun",
    "session.job": "the agent runs, its session's row says starting",
    "session.ended": "the agent has ended, its session's row says running",
    "file.before": "a file call is about to be asked for",
    "file.midway": "a part of the content was sent",
    "file.sent": "all content was sent, nobody has answered",
    "stop.begin": "everything runs, the row says running",
    "stop.ended": "no process is left, the row says running",
    "stop.done": "the row says stopped, the caller was not told",
    "end.killed": "no process is left; control groups, ids and marks are",
    "end.groups": "no process and no control group is left; ids and marks are",
    "end.ids": "no process, group or id range is left; marks are",
    "remove.row": "the row says removing, everything runs",
    "remove.ended": "no process is left, the files are there",
    "remove.files": "no file is left, the row says removing",
    "remove.done": "there is no row any more, the caller was not told",
    "volume.row": "the volume's row says creating, nothing else exists",
    "volume.directory": "its directory is there, its disk is not",
    "volume.made": "its files are there, its row says creating",
    "volume.imported": "all of an archive is in it, its row says creating",
    "volume.done": "its row says ready, the caller was not told",
    "kit.filled": "an agent's installation has run; nobody has looked at the kit",
    "kit.checked": "the kit works; nothing is written down of it",
    "kit.recorded": "the kit is written down, and its volume is not ready",
    "kit.dropped": "the volume of a kit is gone, and what is written down of it is not",
    "volume.remove_row": "its row says removing, its files are there",
    "volume.files_removed": "none of its files is left, its row says removing",
    "volume.load": "the state is ours, no volume was looked at",
    "image.staged": "all of an archive is on disk, nobody has looked at what it is",
    "image.fetched": "all blobs of an image are there; it has no layers and no name",
    "image.unpacked": "its layers are there, too; it has no name",
    "image.named": "the image has its name, the caller was not told",
    "login.answered": "the provider gave new tokens, the old ones are kept",
    "login.refresh_kept": "the new refresh token is kept; the access token is the old one",
    "login.access_kept": "both new tokens are kept, the record of the login is the old one",
    "reconcile.begin": "the state is ours, nothing was looked at",
    "reconcile.found": "a sandbox was found again, the next was not looked for",
    "reconcile.orphan": "every row is true, something without a row is still there",
    "reconcile.done": "the rows are true, nobody can ask for anything yet",
    "audit.append": "a line of the audit log is about to be written",
    "store.commit": "a transaction is about to be committed",
}

_armed: dict[str, Callable[[], None]] = {}


def point(name: str) -> None:
    """The moment `name`, which is a literal of POINTS."""
    if _armed and (action := _armed.pop(name, None)):
        action()


def arm(name: str, action: Callable[[], None]) -> None:
    """The next time that `name` is reached, and only then, `action` is carried out."""
    if name not in POINTS:
        raise ValueError(f"there is no fault point {name!r}")
    _armed[name] = action


def disarm() -> list[str]:
    """Names of the points that were armed and never reached; nothing is armed any more."""
    left = list(_armed)
    _armed.clear()
    return left
