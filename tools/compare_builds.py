#!/usr/bin/env python3
"""Builds every case of tools/builds with agentkernel and with buildah, and compares the images.

    tools/compare_builds.py --work DIR [CASE…]

Needs root, buildah, umoci, docker-registry and mmdebstrap. Bases are made from Debian's packages
and served by a registry of its own on loopback; both build from there. What is compared: every name
of the unpacked image (type, mode, owner, content, link) and the config (environment, command, user,
ports, labels, volumes, …, and which lines of its history have a layer). Then the image is run, and
built again, which has to be all cache. `--report FILE` writes what came of it.

Not compared: times; what a file system needs to be mounted on (/dev, /proc, /sys, /run, and the
three files that every engine puts there); directories that only a WORKDIR or a VOLUME names, which
buildah makes late or never.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import hashlib
import json
import os
import platform
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from builds.cases import CASES, Case

ROOT = Path(__file__).parent.parent
AGENTKERNEL = (sys.executable, "-m", "agentkernel")
# What is mounted into buildah's containers so that package clients inside find what those of this
# machine use; agentkernel tells its sandboxes by itself.
CLIENT_FILES = (
    *("/etc/pip.conf", "/etc/npmrc", "/root/.npmrc", "/etc/ssl/certs/ca-certificates.crt"),
    *("/etc/apt/sources.list", "/etc/apt/sources.list.d/debian.sources", "/etc/apt/auth.conf.d"),
)
CLIENT_VARIABLES = (
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CERT", "npm_config_registry"),
    "NODE_EXTRA_CA_CERTS",
)
STUBS = ("etc/hosts", "etc/hostname", "etc/resolv.conf", "dev", "proc", "sys", "run", "etc")
BASES = {
    "debian": "ca-certificates",
    "python": "ca-certificates,python3,python3-pip,python3-venv",
}
SOURCES = """\
Types: deb
URIs: http://deb.debian.org/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""
CONFIG = (
    *("Env", "Cmd", "Entrypoint", "WorkingDir", "User", "ExposedPorts", "Labels", "Volumes"),
    *("StopSignal", "Healthcheck", "Shell"),
)


class Work:
    """Scratch directories, the registry, and how the two are called."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.state = directory / "state"
        self.roots = directory / "roots"
        self.port = 0
        for path in (self.state, self.roots):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def base(self) -> str:
        return f"127.0.0.1:{self.port}/bases"

    def buildah(self, *words: str, **more: Any) -> str:
        place = self.directory / "buildah"
        roots = (
            "--root",
            f"{place}/root",
            "--runroot",
            f"{place}/run",
            "--storage-driver",
            "overlay",
        )
        return run("buildah", *roots, *words, **more)

    def ours(self, *words: str, **more: Any) -> str:
        environment = {
            **os.environ,
            "AGENTKERNEL_STATE_DIR": str(self.state),
            "PYTHONPATH": str(ROOT / "src"),
        }
        return run(*AGENTKERNEL, *words, env=environment, **more)

    def begin(self) -> None:
        """No layer of ours from before, whatever was built."""
        shutil.rmtree(self.state / "images/build-cache", ignore_errors=True)

    def close(self) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            self.ours("daemon", "stop")


def run(*words: str, env: dict[str, str] | None = None, seconds: float = 1200) -> str:
    """Its stdout. What it says besides is shown if it fails."""
    done = subprocess.run(
        words, env=env, capture_output=True, text=True, timeout=seconds, check=False
    )
    if done.returncode:
        sys.stderr.write(done.stdout[-4000:] + done.stderr[-4000:])
        raise subprocess.CalledProcessError(done.returncode, words[:8])
    return done.stdout


@contextlib.contextmanager
def registry(work: Work) -> Iterator[None]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        work.port = probe.getsockname()[1]
    config = work.directory / "registry.json"
    config.write_text(
        json.dumps(
            {
                "version": "0.1",
                "log": {"level": "error"},
                "storage": {"filesystem": {"rootdirectory": str(work.directory / "registry")}},
                "http": {"addr": f"127.0.0.1:{work.port}"},
            }
        )
    )
    with open(work.directory / "registry.log", "wb") as log:
        server = subprocess.Popen(["docker-registry", "serve", str(config)], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", work.port), 1).close()
                break
            except OSError:
                if time.monotonic() > deadline or server.poll() is not None:
                    raise
                time.sleep(0.05)
        yield
    finally:
        server.terminate()
        server.wait()


def make_bases(work: Work, wanted: set[str]) -> None:
    for name in sorted(wanted | ({"debian"} if wanted & {"node", "go"} else set())):
        target = f"{work.base}/{name}"
        if (work.directory / "registry/docker/registry/v2/repositories/bases" / name).is_dir():
            continue  # from an earlier time
        container = work.buildah("from", "scratch").strip()
        if name in BASES:
            root = work.roots / f"{name}.tar"
            if not root.is_file() or not root.stat().st_size:
                run(
                    "mmdebstrap", "--variant=minbase", f"--include={BASES[name]}", "bookworm",
                    str(root),
                )  # fmt: skip
            work.buildah("add", container, str(root), "/")
            mount = work.buildah("mount", container).strip()
            # As in Debian's own images: one host for all.
            os.unlink(f"{mount}/etc/apt/sources.list")
            Path(f"{mount}/etc/apt/sources.list.d/debian.sources").write_text(SOURCES)
            work.buildah("umount", container)
            work.buildah("config", "--cmd", "bash", container)
        elif name == "busybox":
            busybox = shutil.which("busybox") or "/bin/busybox"
            work.buildah("add", container, busybox, "/bin/busybox")
            mount = work.buildah("mount", container).strip()
            for applet in run(busybox, "--list").split():
                if applet != "busybox":
                    os.symlink("busybox", f"{mount}/bin/{applet}")
            for directory, mode in (("tmp", 0o1777), ("etc", 0o755), ("root", 0o700)):
                os.mkdir(f"{mount}/{directory}")
                os.chmod(f"{mount}/{directory}", mode)
            Path(f"{mount}/etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
            Path(f"{mount}/etc/group").write_text("root:x:0:\n")
            work.buildah("umount", container)
            work.buildah("config", "--cmd", "sh", container)
        else:
            work.buildah("rm", container)
            container = work.buildah("from", "--tls-verify=false", f"{work.base}/debian").strip()
            mount = work.buildah("mount", container).strip()
            for path in _tool_files(name):
                os.makedirs(os.path.dirname(mount + path), exist_ok=True)
                run("cp", "-a", path, mount + path)
            work.buildah("umount", container)
            if name == "go":
                path = "/usr/local/go/bin:/usr/local/bin:/usr/bin:/bin"
                work.buildah("config", "--env", f"PATH={path}", container)
        work.buildah("commit", "--rm", "--format", "docker", container, target)
        work.buildah("push", "--tls-verify=false", target, f"docker://{target}")


def _tool_files(name: str) -> list[str]:
    """This machine's own tools, as Debian's are old."""
    if name == "go":
        goroot = run("go", "env", "GOROOT").strip()
        if goroot != "/usr/local/go":
            raise SystemExit(f"go is in {goroot}, not in /usr/local/go")
        return [goroot]
    node, npm = shutil.which("node"), shutil.which("npm")
    if not node or not npm:
        raise SystemExit("node and npm are not installed")
    modules = os.path.realpath(npm).partition("/npm/")[0] + "/npm"
    libraries = [
        line.split()[2] for line in run("ldd", node).splitlines() if "=> /usr/local" in line
    ]
    return [node, npm, modules, *libraries]


def write_context(case: Case, directory: Path) -> None:
    directory.mkdir(parents=True)
    (directory / "Dockerfile").write_text(case.dockerfile)
    for name, text in case.files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    if case.prepare:
        case.prepare(directory)


def compare(work: Work, case: Case) -> dict[str, Any]:
    place = work.directory / "cases" / case.name
    shutil.rmtree(place, ignore_errors=True)
    write_context(case, place / "context")
    words = _arguments(work, case)
    began = time.monotonic()
    built = _last_json(work.ours("image", "build", "--json", "-t", f"case/{case.name}", *words,
                                 str(place / "context")))  # fmt: skip
    first = time.monotonic() - began
    again = _last_json(work.ours("image", "build", "--json", "-t", f"case/{case.name}", *words,
                                 str(place / "context")))  # fmt: skip
    theirs, their_seconds = _buildah(work, case, place)
    ours_root = unpack_ours(work, case, place)
    theirs_root = unpack_theirs(work, theirs, place)
    one, other = names_of(ours_root), names_of(theirs_root)
    detail = json.loads(work.ours("image", "inspect", "--json", f"case/{case.name}"))
    config = json.loads(
        (work.state / "images/blobs/sha256" / detail["id"].removeprefix("sha256:")).read_bytes()
    )
    inspected = json.loads(work.buildah("inspect", "--type", "image", theirs))["Docker"]
    said = work.ours("run", "--workspace", "none", "--image", f"case/{case.name}").strip()
    return {
        "name": case.name,
        "files": len(one),
        "different": differences(case, one, other, config),
        "config": config_differences(config, inspected),
        "runs": said == case.says,
        "said": said,
        "layers": built["layers"],
        "all_cached": again["cached"] == again["layers"] and again["digest"] == built["digest"],
        "seconds": first,
        "again_seconds": again["seconds"],
        "buildah_seconds": their_seconds,
    }


def _arguments(work: Work, case: Case) -> list[str]:
    given = list(case.arguments)
    words = ["--build-arg", f"BASE={work.base}"]
    while given:
        word = given.pop(0)
        words += [word, given.pop(0)] if word.startswith("--") else ["--build-arg", word]
    return words


def _last_json(output: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return found


def _buildah(work: Work, case: Case, place: Path) -> tuple[str, float]:
    context = place / "context"
    dockerfile = context / "Dockerfile"
    if case.buildah:
        dockerfile = place / "Dockerfile.buildah"
        dockerfile.write_text(case.buildah)
    words = ["bud", "--isolation", "chroot", "--layers", "--format", "docker", "--tls-verify=false"]
    if case.packages:
        for path in CLIENT_FILES:
            if os.path.exists(path):
                words += ["-v", f"{path}:{path}:ro"]
        found = {"NODE_EXTRA_CA_CERTS": CLIENT_FILES[3], **os.environ}
        for name in CLIENT_VARIABLES:
            if name in found:
                words += ["--env", f"{name}={found[name]}"]
    words += [word for word in _arguments(work, case) if word not in ("--target", "final")]
    image = f"localhost/case-{case.name}"
    began = time.monotonic()
    work.buildah(*words, "--no-cache", "-t", image, "-f", str(dockerfile), str(context))
    return image, time.monotonic() - began


def unpack_ours(work: Work, case: Case, place: Path) -> Path:
    archive = place / "ours.tar"
    work.ours("image", "save", "-o", str(archive), f"case/{case.name}")
    layout = place / "ours"
    layout.mkdir()
    run("tar", "-C", str(layout), "-xf", str(archive))
    archive.unlink()
    index = json.loads((layout / "index.json").read_text())
    for entry in index["manifests"]:
        entry.setdefault("annotations", {})["org.opencontainers.image.ref.name"] = "it"
    (layout / "index.json").write_text(json.dumps(index))
    run("umoci", "unpack", "--image", f"{layout}:it", str(place / "ours-bundle"))
    shutil.rmtree(layout)
    return place / "ours-bundle/rootfs"


def unpack_theirs(work: Work, image: str, place: Path) -> Path:
    layout = place / "theirs"
    work.buildah("push", "--format", "oci", image, f"oci:{layout}:it")
    run("umoci", "unpack", "--image", f"{layout}:it", str(place / "theirs-bundle"))
    shutil.rmtree(layout)
    return place / "theirs-bundle/rootfs"


def names_of(root: Path) -> dict[str, tuple[Any, ...]]:
    """Every name of a tree, with all that is to be equal. Of hard links each counts as a file."""
    found: dict[str, tuple[Any, ...]] = {}
    for here, directories, files in os.walk(root):
        for name in [*directories, *files]:
            path = os.path.join(here, name)
            status = os.lstat(path)
            kind = stat.S_IFMT(status.st_mode)
            extra = ""
            if kind == stat.S_IFLNK:
                extra = os.readlink(path)
            elif kind == stat.S_IFREG:
                with open(path, "rb") as file:
                    extra = hashlib.file_digest(file, "sha256").hexdigest()
            found[os.path.relpath(path, root)] = (
                *(oct(status.st_mode), status.st_uid, status.st_gid, extra),
            )
    return found


def differences(
    case: Case,
    one: dict[str, tuple[Any, ...]],
    other: dict[str, tuple[Any, ...]],
    config: dict[str, Any],
) -> list[str]:
    mounted = [path.strip("/") for path in CLIENT_FILES] if case.packages else []
    made = [*(config["config"].get("Volumes") or {}), config["config"].get("WorkingDir") or "/"]
    late = {above for path in made for above in _above(path.strip("/"))}
    found = []
    for path in sorted(one.keys() | other.keys()):
        if one.get(path) == other.get(path):
            continue
        is_stub = path in STUBS and (path not in one or path not in other)
        is_late = path in late and (path not in one or path not in other)
        is_mounted = any(at == path or at.startswith(f"{path}/") for at in mounted)
        if is_stub or is_late or is_mounted:
            continue
        if any(fnmatch.fnmatchcase(path, pattern) for pattern in case.may_differ):
            ours, theirs = one.get(path), other.get(path)
            if ours and theirs and ours[:3] == theirs[:3]:
                continue
        found.append(f"{path}: {one.get(path)} and {other.get(path)}")
    return found


def _above(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition("/")[0]


def config_differences(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    found = []
    # Buildah records what is only for its package clients.
    theirs["config"]["Env"] = [
        one
        for one in theirs["config"].get("Env") or ()
        if one.partition("=")[0] not in CLIENT_VARIABLES
    ]
    for image in (ours, theirs):
        labels = dict(image["config"].get("Labels") or {})
        labels.pop("io.buildah.version", None)
        image["config"]["Labels"] = labels
    for key in CONFIG:
        one, other = ours["config"].get(key) or None, theirs["config"].get(key) or None
        if one != other:
            found.append(f"{key}: {one} and {other}")
    if (ours.get("author") or "") != (theirs.get("author") or ""):
        found.append(f"author: {ours.get('author')} and {theirs.get('author')}")
    shapes = [
        [
            bool(line.get("empty_layer")) or "#(nop) WORKDIR" in line.get("created_by", "")
            for line in image.get("history") or ()
        ]
        for image in (ours, theirs)
    ]
    if shapes[0] != shapes[1]:
        found.append(f"history: {shapes[0]} and {shapes[1]}")
    return found


def show(result: dict[str, Any]) -> None:
    good = is_good(result)
    print(
        f"{'ok  ' if good else 'FAIL'} {result['name']}: {result['files']} names, "
        f"{len(result['different'])} different, config "
        f"{'equal' if not result['config'] else 'different'}, "
        f"{'runs' if result['runs'] else 'RUNS NOT'}, "
        f"{'all cached' if result['all_cached'] else 'NOT CACHED'}, "
        f"{result['seconds']:.1f} s, again {result['again_seconds']:.1f} s, "
        f"buildah {result['buildah_seconds']:.1f} s",
        flush=True,
    )
    for line in (result["different"] + result["config"])[:20]:
        print(f"       {line}")
    if not result["runs"]:
        print(f"       said {result['said']!r}")


def report(results: list[dict[str, Any]], path: Path) -> None:
    commit = run("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD").strip()
    buildah = run("buildah", "--version").split()[2]
    lines = [
        "# Images built by agentkernel and by buildah",
        "",
        f"`tools/compare_builds.py` on {time.strftime('%Y-%m-%d')} at {commit}, as root, Linux "
        f"{platform.release().partition('-')[0]}, {os.cpu_count()} cores, buildah {buildah} "
        "(`bud --isolation chroot --layers --format docker`). Bases from a registry on "
        "loopback, made by mmdebstrap from Debian 12; packages from the machine's own registries.",
        "",
        "Compared name by name after `umoci unpack` of both: type, mode, owner, content, target of "
        "links; and in the config: environment, command, entrypoint, working directory, user, "
        "ports, labels, volumes, stop signal, health check, shell, author, and which lines of the "
        "history have a layer. Then the image was run and built again. Times are those of a first "
        "build with pulling its base; other work may go on beside it.",
        "",
        "| Dockerfile | names | different | config | runs | again | ours | ours again | buildah |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {one['name']} | {one['files']} | {len(one['different'])} | "
        f"{'equal' if not one['config'] else 'different'} | "
        f"{'yes' if one['runs'] else 'no'} | "
        f"{'all cache, same digest' if one['all_cached'] else 'not all cache'} | "
        f"{one['seconds']:.1f} s | {one['again_seconds']:.1f} s | {one['buildah_seconds']:.1f} s |"
        for one in results
    ]
    lines += [
        "",
        "Not compared: times; what file systems are mounted on (`/dev`, `/proc`, `/sys`, `/run`) "
        "and the stubs of `/etc/hosts`, `/etc/hostname` and `/etc/resolv.conf`; directories that "
        "only a WORKDIR or a VOLUME names, which buildah makes late or never; in the cases with "
        "packages the files that were mounted into buildah's containers for its package clients, "
        "and content that is of its time (`var/cache/ldconfig/aux-cache`, dpkg's status). The "
        "Dockerfiles are in `tools/builds/cases.py`; `heredocs` is given to buildah as the same "
        "build without heredocs, which this version does not know, and `stages` without a stage "
        "that nothing needs.",
        "",
    ]
    path.write_text("\n".join(lines))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--work", required=True, type=Path, help="a scratch directory")
    parser.add_argument("--report", type=Path, help="write what came of it to this file")
    parser.add_argument("cases", nargs="*", metavar="CASE")
    options = parser.parse_args()
    chosen = [case for case in CASES if not options.cases or case.name in options.cases]
    work = Work(options.work.absolute())
    results = []
    failed = False
    with registry(work):
        make_bases(work, {name for case in chosen for name in case.needs})
        work.begin()
        try:
            for case in chosen:
                try:
                    result = compare(work, case)
                except subprocess.CalledProcessError as exc:
                    print(f"FAIL {case.name}: {exc}", flush=True)
                    failed = True
                    continue
                results.append(result)
                show(result)
        finally:
            work.close()
    if options.report:
        report(results, options.report)
    return 0 if not failed and all(map(is_good, results)) else 1


def is_good(result: dict[str, Any]) -> bool:
    return bool(
        not result["different"] and not result["config"] and result["runs"] and result["all_cached"]
    )


if __name__ == "__main__":
    sys.exit(main())
