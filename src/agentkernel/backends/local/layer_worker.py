"""Layers of images, unpacked, packed and removed by agentd in the user's own namespace.

The archive is uncompressed and hashed here and goes through a pipe to `agentd unpack`, whose whole
world is the layer's directory: nothing that stands in an archive can lead anywhere else. What it
refuses comes back as a word and a name, which become an error here. `docs/reference/layers.md`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import signal
from collections.abc import Iterator, Sequence
from subprocess import DEVNULL, Popen
from typing import BinaryIO

import msgspec

from agentkernel.backends.local import idmaps
from agentkernel.backends.local.diagnose import explain
from agentkernel.backends.local.launcher import LaunchFailure
from agentkernel.backends.local.layer_words import refusal
from agentkernel.backends.local.plan import LaunchPlan, encode_lines
from agentkernel.backends.local.shortages import host_error, host_errors, is_shortage
from agentkernel.errors import AgentKernelError, HostError, ImageInvalidError, LaunchError
from agentkernel.guest.binary import agentd_path
from agentkernel.images.oci.compression import uncompressed
from agentkernel.images.oci.work import LAYER_LIMITS, Count, LayerLimits, Packed, Unpacked
from agentkernel.space import Watched
from agentkernel.texts import printable

# Changes when the same archive would become other files.
VERSION = 1
_PIPE_BYTES = 1 << 20
# How it ends where an archive takes too much of the machine: of its memory, of its time.
_TOO_MUCH = {70: "memory", -signal.SIGXCPU: "time"}


class LocalLayerWorker:
    """A `LayerWorker`. `maps`: whose ids; those of whoever runs us, unless a test has others."""

    def __init__(self, maps: idmaps.IdMaps | None = None) -> None:
        self._maps = maps or idmaps.own_maps()

    def layer_name(self, diff_id: str) -> str:
        return f"oci{VERSION}-{diff_id.removeprefix('sha256:')}-{self._kind()}"

    def _kind(self) -> str:
        if self._maps.mode != "subuid":
            return self._maps.mode
        (_, (_, uid, _)), (_, (_, gid, _)) = self._maps.outer_uids, self._maps.outer_gids
        return f"subuid-{uid}-{gid}"

    def unpack(
        self,
        blob: str,
        diff_id: str,
        target: str,
        *,
        limits: LayerLimits = LAYER_LIMITS,
        progress: Count | None = None,
        sync: bool = True,
    ) -> Unpacked:
        """`sync=False`: the files may still be on their way to the disk."""
        hashed = hashlib.sha256()
        plan = self._plan(target, limits, sync=sync)
        with _opened(blob) as file, _Box("unpack", plan, "w") as box:
            left, space = limits.bytes, Watched(target)
            for piece in uncompressed(file, progress):
                left -= len(piece)
                if left < 0:
                    raise refusal("bytes", "", limits)
                hashed.update(piece)
                if not box.write(piece):
                    break
                # What is small when it comes may be large here.
                space.add(len(piece))
            result = box.result(limits)
        if f"sha256:{hashed.hexdigest()}" != diff_id:
            raise ImageInvalidError(
                f"the layer is not the one that the image names: its content has the digest "
                f"sha256:{hashed.hexdigest()}, not {printable(diff_id, 80)}",
                hint="pull the image again; if that does not help, whoever made it has to",
                reason="digest",
            )
        return Unpacked(
            entries=result["entries"],
            bytes=result["bytes"],
            whiteouts=result["whiteouts"],
            left_out=result["devices"],
        )

    def pack(self, source: str, output: BinaryIO, *, exclude: Sequence[str] = ()) -> Packed:
        hashed, size = hashlib.sha256(), 0
        plan = self._plan(source, LAYER_LIMITS, exclude=exclude)
        with host_errors("packing a layer"), _Box("pack", plan, "r") as box:
            for piece in box.pieces():
                hashed.update(piece)
                output.write(piece)
                size += len(piece)
            box.result(LAYER_LIMITS)
        return Packed(f"sha256:{hashed.hexdigest()}", size)

    def remove(self, path: str) -> None:
        if not os.path.lexists(path):
            return
        plan = LaunchPlan(self._maps, "", "", "", frozenset(), b"")
        plan.source(os.path.abspath(path), writable=True)
        with _Box("remove", plan.encode(), "") as box:
            box.result(LAYER_LIMITS)

    def _plan(
        self,
        path: str,
        limits: LayerLimits,
        *,
        exclude: Sequence[str] = (),
        sync: bool = False,
    ) -> bytes:
        return msgspec.msgpack.encode(
            {
                "ids": self._maps.mode,
                "outer_uids": encode_lines(self._maps.outer_uids),
                "outer_gids": encode_lines(self._maps.outer_gids),
                "newuidmap": self._maps.newuidmap,
                "newgidmap": self._maps.newgidmap,
                "path": os.path.abspath(path),
                "max_bytes": limits.bytes,
                "max_entries": limits.entries,
                "exclude": [os.fsencode(entry) for entry in exclude],
                "sync": sync,
            }
        )


@contextlib.contextmanager
def _opened(blob: str) -> Iterator[BinaryIO]:
    with host_errors("unpacking a layer"):
        try:
            file = open(blob, "rb")  # noqa: SIM115 (closed below)
        except FileNotFoundError:
            raise ImageInvalidError(
                "the archive of a layer is missing", hint="pull the image again", reason="missing"
            ) from None
        with file:
            yield file


class _Box:
    """A process `agentd VERB PLAN STATUS [TAR]`, gone at the end of the block whatever happens."""

    def __init__(self, verb: str, plan: bytes, tar: str) -> None:
        """`tar`: the end of its stream that is ours, "r" or "w"; "": it has none."""
        self._verb = verb
        self._tar = self._status = -1
        with contextlib.ExitStack() as handed_over, contextlib.ExitStack() as unless_made:
            unless_made.callback(self._close)
            plan_fd = os.memfd_create("plan", os.MFD_CLOEXEC)
            handed_over.callback(os.close, plan_fd)
            os.write(plan_fd, plan)
            os.lseek(plan_fd, 0, os.SEEK_SET)
            self._status, status_fd = os.pipe2(os.O_CLOEXEC)
            handed_over.callback(os.close, status_fd)
            handed = [plan_fd, status_fd]
            if tar:
                ends = os.pipe2(os.O_CLOEXEC)
                self._tar, tar_fd = ends if tar == "r" else ends[::-1]
                handed_over.callback(os.close, tar_fd)
                handed.append(tar_fd)
                with contextlib.suppress(OSError):  # beyond this user's share: it stays small
                    fcntl.fcntl(self._tar, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
            self._process = _start([str(agentd_path()), verb, *map(str, handed)], handed)
            unless_made.pop_all()

    def __enter__(self) -> _Box:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def _close(self) -> None:
        self._close_tar()
        if self._status >= 0:
            os.close(self._status)
        self._status = -1

    def _close_tar(self) -> None:
        if self._tar >= 0:
            os.close(self._tar)
        self._tar = -1

    def write(self, piece: bytes) -> bool:
        """False: it does not listen any more, and `result` says why."""
        view = memoryview(piece)
        try:
            while view:
                view = view[os.write(self._tar, view) :]
        except BrokenPipeError:
            return False
        return True

    def pieces(self) -> Iterator[bytes]:
        while piece := os.read(self._tar, _PIPE_BYTES):
            yield piece

    def result(self, limits: LayerLimits) -> dict[str, int]:
        """Waits for the end. Raises what it means."""
        self._close_tar()
        report = bytearray()
        while part := os.read(self._status, 4096):
            report += part
        status = self._process.wait()
        found: dict[str, int] = {}
        for line in report.decode("utf-8", "replace").splitlines():
            kind, _, rest = line.partition(" ")
            if kind == "E":
                number, _, words = rest.partition(" ")
                stage, _, detail = words.partition(" ")
                raise self._meaning(stage, int(number), detail, limits)
            if kind == "R":
                found = {
                    key: int(n) for key, _, n in (word.partition("=") for word in rest.split())
                }
        if status in _TOO_MUCH:
            raise refusal(_TOO_MUCH[status], "", limits)
        if status:
            raise HostError(f"agentd {self._verb} ended with status {status}", hint="try again")
        return found

    def _meaning(
        self, stage: str, number: int, detail: str, limits: LayerLimits
    ) -> AgentKernelError:
        if stage == "archive":
            reason, _, name = detail.partition(" ")
            return refusal(reason, name, limits)
        if stage in ("files", "remove"):
            doing = {"pack": "reading a layer", "remove": "removing a layer"}
            error = OSError(number, os.strerror(number), printable(detail))
            return host_error(error, doing.get(self._verb, "unpacking a layer"))
        failure = LaunchFailure(stage, number, detail)
        explained = explain(failure, as_root=idmaps.is_host_root(), upper=None)
        if not isinstance(explained, LaunchError):
            return explained
        words = f"{stage}: {os.strerror(number)}" + (f" ({printable(detail)})" if detail else "")
        return HostError(f"the directory of a layer can't be entered: {words}")


def _start(command: list[str], handed: Sequence[int]) -> Popen[bytes]:
    try:
        return Popen(command, pass_fds=handed, stdin=DEVNULL, stdout=DEVNULL, env={}, cwd="/")
    except OSError as error:
        if is_shortage(error):
            raise host_error(error, "starting agentd") from None
        raise HostError(f"agentd can't be started: {error}") from None
