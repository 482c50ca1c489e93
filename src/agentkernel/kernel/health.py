"""What `doctor` says of the machine and the install, finding by finding.

Probing is doing: whether namespaces, the overlay, seccomp and control groups work is read off a
sandbox that was really made, not off files that suggest it. Without one, the cause that the
launcher met stands once, and what depends on it is said to be unknown.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal

import msgspec

from agentkernel.backends.local import delegation, idmaps
from agentkernel.backends.local.diagnose import (
    KERNEL_FLOOR_ROOT,
    KERNEL_FLOOR_USER,
    NO_UPPER,
    filesystem_of,
    kernel_version,
)
from agentkernel.backends.local.hierarchy import LIMITING, Hierarchy
from agentkernel.errors import AgentKernelError, ImageInvalidError
from agentkernel.guest.binary import agentd_path
from agentkernel.images.oci.store import ImageStore
from agentkernel.kernel.checks import Probe, check_others, probe_backend
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.kernel.store import schema
from agentkernel.network.starting import LOG_NAME, try_gateway
from agentkernel.quantities import short_size
from agentkernel.space import HINT as ROOM
from agentkernel.space import room_at

State = Literal["ok", "warn", "fail"]
NO_SPACE = 64 << 20
_MACHINES = {62: "x86_64", 183: "aarch64"}


class Finding(msgspec.Struct, frozen=True):
    """One line. `fail`: something that is needed does not work. `hint`: what mends it."""

    what: str
    state: State
    detail: str
    hint: str | None = None


async def examine(state_dir: str) -> list[Finding]:
    """The machine and the install. Makes short-lived sandboxes of each engine, and removes, as
    every run does, what runs without an owner left."""
    found = [_kernel(), agentd(), state_directory(state_dir)]
    if any(finding.what == "state directory" and finding.state == "fail" for finding in found):
        return found
    probe = await probe_backend(Path(state_dir), look=("status", "mountinfo", "uid_map"))
    found += _native(probe)
    found.append(_subuids())
    found.append(_control_groups(probe))
    if probe.check.works:
        found.append(await _files_on_disk(Path(state_dir)))
        found.append(await _network(Path(state_dir)))
    found.append(_images(Path(state_dir)))
    found += await _others(Path(state_dir))
    return found


def _images(state_dir: Path) -> Finding:
    """How many there are, and what they take as they came; what is unpacked `system df` tells."""
    store = ImageStore(state_dir / "images")
    names = store.names()
    broken = [entry.name for entry in names if not _is_whole(store, entry.digest)]
    taken = sum(path.stat().st_blocks * 512 for path in store.directory.glob("blobs/sha256/*"))
    detail = f"{len({entry.digest for entry in names})} are here, {taken >> 20} MiB of downloads"
    if broken:
        return Finding(
            "images",
            "warn",
            f"{detail}; not complete: {', '.join(broken[:5])}",
            "pull or load them again",
        )
    return Finding("images", "ok", detail)


def _is_whole(store: ImageStore, digest: str) -> bool:
    try:
        image = store.image(digest)
    except ImageInvalidError:
        return False
    return all(store.has_blob(layer.digest) for layer in image.manifest.layers)


def _kernel() -> Finding:
    as_root = os.getuid() == 0
    floor = KERNEL_FLOOR_ROOT if as_root else KERNEL_FLOOR_USER
    wanted = f"{'.'.join(map(str, floor))} or newer is needed"
    detail = f"Linux {os.uname().release}; {wanted}{' as root' if as_root else ''}"
    if kernel_version() >= floor:
        return Finding("kernel", "ok", detail)
    return Finding("kernel", "fail", detail, "use a newer kernel")


def _native(probe: Probe) -> Iterator[Finding]:
    check = probe.check
    yield Finding("native backend", "ok" if check.works else "fail", check.detail, check.hint)
    if not check.works:
        yield Finding("isolation", "warn", "not known: no sandbox could be made")
        return
    ids = " ".join(probe.inside["uid_map"].split())
    yield Finding("user namespaces", "ok", f"made two, one in the other; ids inside: {ids}")
    root = next((line for line in probe.inside["mountinfo"].splitlines() if _is_root(line)), "")
    kind = "".join(root.partition(" - ")[2].split()[:1])
    state: State = "ok" if kind == "overlay" else "fail"
    yield Finding("overlay", state, f"the sandbox's root is of type {kind or 'unknown'}")
    if idmaps.is_host_root():
        yield Finding("idmapped mounts", "ok", "the layers below the root are mapped to its ids")
    else:
        yield Finding("idmapped mounts", "ok", "not needed: only root's sandboxes use them")
    status = dict(line.split(":", 1) for line in probe.inside["status"].splitlines() if ":" in line)
    seccomp, privileges = (status.get(name, "?").strip() for name in ("Seccomp", "NoNewPrivs"))
    good = (seccomp, privileges) == ("2", "1")
    yield Finding(
        "seccomp",
        "ok" if good else "fail",
        "a filter was in force in the sandbox, and no_new_privs" if good
        else f"in the sandbox: Seccomp {seccomp}, NoNewPrivs {privileges}",
    )  # fmt: skip


def _is_root(line: str) -> bool:
    words = line.split()
    return len(words) > 4 and words[4] == "/"


def _subuids() -> Finding:
    if idmaps.is_host_root():
        return Finding("subordinate ids", "ok", "not needed: root has ranges of its own")
    found = idmaps.find_subids()
    if found is not None:
        return Finding("subordinate ids", "ok", f"this user's are used: {found[0]}")
    return Finding(
        "subordinate ids",
        "warn",
        "this user has none, or newuidmap is missing: a sandbox has one uid only",
        "install uidmap, and give 65536 ids that nobody has, such as `sudo usermod --add-subuids "
        "100000-165535 --add-subgids 100000-165535 $USER`",
    )


def _control_groups(probe: Probe) -> Finding:
    hierarchy = Hierarchy()
    version = "version 2" if hierarchy.unified else "version 1 or hybrid"
    missing = {name: why for name in LIMITING if any(why := hierarchy.why_not(name))}
    ours = [name for name in LIMITING if name not in missing]
    detail = f"{version}; ours: {', '.join(ours) or 'none'}"
    held = next((line for line in probe.effective if line.what == "memory"), None)
    if held is not None and "memory" in ours:
        detail += f"; memory {held.value} in the sandbox: {held.enforced_by}"
    if not missing:
        return Finding("control groups", "ok", detail)
    if not ours and hierarchy.unified and delegation.is_possible():
        how = "this user's systemd gives the daemon a scope to make them in"
        return Finding("control groups", "ok", f"{version}; {how}")
    reasons = "; ".join(dict.fromkeys(reason for reason, _ in missing.values()))
    remedies = "; ".join(dict.fromkeys(remedy for _, remedy in missing.values()))
    return Finding("control groups", "warn", f"{detail}; {reasons}", remedies)


def agentd() -> Finding:
    try:
        path = agentd_path()
        data = path.read_bytes()
    except AgentKernelError as exc:
        return Finding("agentd", "fail", exc.message, exc.hint)
    except OSError as exc:
        return Finding("agentd", "fail", f"it can't be read: {exc.filename}: {exc.strerror}")
    machine = _MACHINES.get(int.from_bytes(data[18:20], "little"), "another")
    if not data.startswith(b"\x7fELF") or machine != os.uname().machine:
        return Finding(
            "agentd",
            "fail",
            f"{path} is no program for {os.uname().machine}",
            "install agentkernel for this machine, or correct AGENTKERNEL_AGENTD",
        )
    digest = hashlib.sha256(data).hexdigest()[:16]
    return Finding("agentd", "ok", f"{path}, {machine}, sha256 {digest}")


def state_directory(path: str) -> Finding:
    """Looked at before anything is made in it."""
    what, hint = "state directory", "set AGENTKERNEL_STATE_DIR to a directory of yours"
    there = path
    while not os.path.exists(there):
        there = os.path.dirname(there)
    try:
        info = os.stat(there)
        room = room_at(there)
    except OSError as exc:
        return Finding(what, "fail", f"{path}: {exc.strerror}", hint)
    kind = filesystem_of(there)
    detail = f"{path}, {kind}, {short_size(room.free)} free"
    if there != path:
        if not os.access(there, os.W_OK | os.X_OK):
            return Finding(what, "fail", f"{detail}; it can't be made in {there}", hint)
        detail += ", not there yet"
    elif info.st_uid != os.getuid():
        return Finding(what, "fail", f"{detail}; it belongs to uid {info.st_uid}", hint)
    elif info.st_mode & 0o077:
        return Finding(
            what, "warn", f"{detail}; others may look into it (mode {info.st_mode & 0o777:o})",
            f"chmod 700 {path}",
        )  # fmt: skip
    if room.free < NO_SPACE:
        return Finding(what, "fail", f"{detail}: too little", f"{ROOM}; or {hint}")
    if room.is_short:
        words = f"{detail}: nothing new is made below {short_size(room.reserve)}"
        return Finding(what, "warn", words, f"{ROOM}; or {hint}")
    return Finding(what, "ok", detail)


async def _files_on_disk(state_dir: Path) -> Finding:
    """Kept sandboxes have their files in the state directory, which not every file system can."""
    probe = await probe_backend(state_dir, SandboxSpec(unlimited_disk=True))
    kind = filesystem_of(str(state_dir))
    if probe.check.works:
        return Finding("files of sandboxes", "ok", f"a sandbox had its files on {kind}")
    hint = probe.check.hint
    if kind in NO_UPPER:
        hint = "set AGENTKERNEL_STATE_DIR to a directory on ext4, xfs, btrfs or tmpfs"
    return Finding("files of sandboxes", "fail", probe.check.detail, hint)


async def _network(state_dir: Path) -> Finding:
    """Without one, sandboxes of profiles that have one are made without it: no reason to be unfit.
    The gateway is tried in a directory of its own, beside the one that may be at work."""
    what = "network"
    probe = await probe_backend(state_dir, way_out=True)
    if not probe.check.works:
        return Finding(what, "warn", probe.check.detail, probe.check.hint)
    with tempfile.TemporaryDirectory(prefix="agentkernel-") as place:
        try:
            await try_gateway(Path(place))
        except AgentKernelError as exc:
            words = f"{exc.message} {_last_line(os.path.join(place, LOG_NAME))}".rstrip()
            return Finding(what, "warn", words, "install agentkernel again: a part may be missing")
    return Finding(what, "ok", "nf_tables rules were made in a sandbox; the gateway answers")


def _last_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read(1 << 20).splitlines()
    except OSError:
        return ""
    return f"({lines[-1][:300]})" if lines else ""


async def _others(state_dir: Path) -> list[Finding]:
    found, present = [], []
    for check in await check_others(state_dir):
        if check.supported and check.found:
            state: State = "ok" if check.works else "warn"
            found.append(Finding(f"{check.backend} backend", state, check.detail, check.hint))
        elif check.found:
            present.append(check.backend)
    if present:
        words = f"{', '.join(present)}: found; this version has no backend for them"
        found.append(Finding("other engines", "ok", words))
    return found


def rows(state_dir: str) -> set[str] | None:
    """Ids of the sandboxes in the records; None: there are no records. Only looks.

    Raises sqlite3.Error. Preconditions: no daemon answers, else it knows better.
    """
    path = Path(state_dir, "state.db")
    if not path.exists():
        return None
    with closing(schema.connect(path, "ro")) as connection:
        return {row[0] for row in connection.execute("SELECT id FROM sandboxes")}


def records(state_dir: str) -> Finding:
    """The database, as far as it can be judged without opening it for writing."""
    path = Path(state_dir, "state.db")
    if not path.exists():
        return Finding("records", "ok", "none yet")
    try:
        with closing(schema.connect(path, "ro")) as connection:
            version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    except sqlite3.Error as exc:
        return Finding("records", "fail", f"{path}: {exc}", "put back a copy, or move it away")
    known = len(schema.MIGRATIONS)
    if version > known:
        return Finding(
            "records", "fail", f"{path} has version {version}; this agentkernel knows {known}",
            "use the newer agentkernel that wrote it",
        )  # fmt: skip
    return Finding("records", "ok", f"{path}, version {version}")


def leftovers(state_dir: str, known: set[str] | None) -> Finding:
    """Directories of sandboxes that nobody knows or owns. The next start of a daemon, or the next
    run, removes them; here they are only counted. `known`: ids that have a row.
    """
    kept = [id for id in _names(state_dir, "sandboxes") if known is not None and id not in known]
    # One that was removed between the two looks is not left over.
    orphans = [id for id in kept if os.path.exists(os.path.join(state_dir, "sandboxes", id))]
    abandoned = [id for id in _names(state_dir, "runs") if _is_abandoned(state_dir, id)]
    if not orphans and not abandoned:
        return Finding("leftovers", "ok", "none")
    parts = []
    if orphans:
        parts.append(f"{len(orphans)} sandboxes without a record ({orphans[0]}, …)")
    if abandoned:
        parts.append(f"{len(abandoned)} runs whose owner is gone ({abandoned[0]}, …)")
    return Finding(
        "leftovers", "warn", "; ".join(parts),
        "`agentkernel daemon restart` and the next `run` remove them",
    )  # fmt: skip


def _names(state_dir: str, below: str) -> list[str]:
    try:
        return sorted(os.listdir(os.path.join(state_dir, below)))
    except OSError:
        return []


def _is_abandoned(state_dir: str, id: str) -> bool:
    import fcntl

    try:
        lock = os.open(os.path.join(state_dir, "runs", id, "lock"), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # Shared, and given back at once: an owner that locks at this moment does not fail by it,
        # for it waits.
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True
