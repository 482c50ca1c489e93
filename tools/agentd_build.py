"""Compile agentd: the one place that knows the sources, the flags and the compilers.

    python tools/agentd_build.py [--compiler auto|cc|zig] [--arch host|x86_64|aarch64] --out PATH

The result is a static binary that needs nothing of the system it runs in. `auto` takes the first
of these that can make one: musl-gcc, the system's C compiler (only if it proves that it can link
statically: many systems have no static libc), ziglang from the package index. Cross builds and
wheels always use ziglang, whose output is the same bit for bit wherever it is made.

A stamp beside the output holds a hash over sources, flags and compiler; while it matches, nothing
is compiled. Standard library only: this runs before anything is installed.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "agentd" / "src"
ARCHITECTURES = ("x86_64", "aarch64")

# Pinned: another version may produce other bytes, and releases promise reproducible binaries.
ZIG_REQUIREMENT = "ziglang==0.17.0"

FLAGS = (
    "-std=gnu17",
    "-Os",
    "-static",
    "-s",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wshadow",
    "-Wstrict-prototypes",
    "-Wmissing-prototypes",
    "-Wformat=2",
    "-fno-strict-aliasing",
    "-fstack-protector-strong",
    # Some distributions add a build id, which hashes the names of temporary files.
    "-Wl,--build-id=none",
)

COMPILE_TIMEOUT = 600  # the first zig build for a target also compiles its libc
INSTALL_TIMEOUT = 900
PROBE_TIMEOUT = 60


class BuildFailure(Exception):
    """agentd could not be built; `hint` says what the user can do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(f"{message}\nhint: {hint}")
        self.message = message
        self.hint = hint


@dataclasses.dataclass(frozen=True)
class Compiler:
    """A command that takes FLAGS, and words that change whenever its output might."""

    command: tuple[str, ...]
    identity: str
    environment: tuple[tuple[str, str], ...] = ()

    def run(self, arguments: list[str], cwd: Path, timeout: float) -> str | None:
        """None when it succeeded, else what the compiler said."""
        try:
            done = subprocess.run(
                [*self.command, *arguments],
                cwd=cwd,
                env={**os.environ, **dict(self.environment)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"the compiler did not finish within {timeout:.0f} s"
        except OSError as error:
            return str(error)
        if done.returncode == 0:
            return None
        return done.stdout.decode(errors="replace").strip() or f"exit status {done.returncode}"


def say(line: str) -> None:
    """Progress is for people, so it goes to stderr: stdout may be somebody's data."""
    print(f"agentkernel: {line}", file=sys.stderr, flush=True)


def host_arch() -> str:
    """The machine's architecture in the words used here."""
    machine = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


def cache_directory() -> Path:
    """Where downloads and compiler caches are kept; private, and writable or an error."""
    if base := os.environ.get("XDG_CACHE_HOME"):
        parent = Path(base)
    else:
        try:
            parent = Path.home() / ".cache"
        except RuntimeError:
            parent = Path("/nonexistent")
    directory = parent / "agentkernel"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return directory
    except OSError:
        return _temporary_cache()


@functools.cache
def _temporary_cache() -> Path:
    """Without a usable home."""
    return _scratch_directory()


def _scratch_directory() -> Path:
    """A directory that goes away with this process."""
    scratch = tempfile.TemporaryDirectory(prefix="agentkernel-")
    _scratch_directories.append(scratch)
    return Path(scratch.name)


_scratch_directories: list[tempfile.TemporaryDirectory[str]] = []


def system_compiler() -> Compiler | None:
    """The first C compiler on PATH that makes a static program which runs."""
    for name in ("musl-gcc", "cc", "gcc", "clang"):
        path = shutil.which(name)
        if path is None:
            continue
        version = _first_line([path, "--version"])
        command = [path]
        if name == "musl-gcc" and (headers := _kernel_headers()):
            command += ["-idirafter", str(headers)]
        compiler = Compiler(tuple(command), f"{name} {version}")
        if _links_statically(compiler):
            return compiler
    return None


def _kernel_headers() -> Path | None:
    """The kernel's headers and nothing else: musl-gcc hides them together with those of glibc."""
    roots = [Path("/usr/include"), *Path("/usr/include").glob(f"{host_arch()}-linux-gnu*")]
    headers = _scratch_directory()
    for name in ("linux", "asm", "asm-generic"):
        found = next((root / name for root in roots if (root / name).is_dir()), None)
        if found is None:
            return None
        (headers / name).symlink_to(found)
    return headers


def _first_line(command: list[str]) -> str:
    done = subprocess.run(
        command, capture_output=True, timeout=PROBE_TIMEOUT, check=False, stdin=subprocess.DEVNULL
    )
    return done.stdout.decode(errors="replace").partition("\n")[0].strip()


def _links_statically(compiler: Compiler) -> bool:
    """Probe by doing: compile a trivial program the way agentd is compiled, and run it."""
    with tempfile.TemporaryDirectory(prefix="agentkernel-probe-") as scratch:
        directory = Path(scratch)
        # With one of the kernel's headers: they are a package of their own.
        program = "#include <linux/seccomp.h>\n#include <stdio.h>\nint main(void) { return 0; }\n"
        (directory / "probe.c").write_text(program)
        if compiler.run([*FLAGS, "probe.c", "-o", "probe"], directory, PROBE_TIMEOUT):
            return False
        return Compiler((str(directory / "probe"),), "").run([], directory, PROBE_TIMEOUT) is None


def zig_compiler(arch: str) -> Compiler:
    """ziglang from this interpreter, else from the cache, else from the package index."""
    if arch not in ARCHITECTURES:
        raise BuildFailure(
            f"no cross compiler is set up for {arch}",
            f"the supported architectures are {', '.join(ARCHITECTURES)}",
        )
    spec = importlib.util.find_spec("ziglang")
    package = Path(spec.origin).parent if spec and spec.origin else _installed_zig()
    zig = package / "zig"
    version = _first_line([str(zig), "version"])
    wanted = ZIG_REQUIREMENT.partition("==")[2]
    if version != wanted:
        say(f"ziglang {version} is installed where {wanted} is pinned: other bytes may come out")
    caches = cache_directory() / "zig"
    return Compiler(
        (str(zig), "cc", "-target", f"{arch}-linux-musl"),
        f"zig {version}",
        # zig would write a cache beside the sources, which may be read-only.
        tuple(
            (name, os.environ.get(name, str(caches)))
            for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")
        ),
    )


def _installed_zig() -> Path:
    """Fetch ziglang into the cache once; the directory appears whole or not at all."""
    target = cache_directory() / ZIG_REQUIREMENT.replace("==", "-")
    package = target / "ziglang"
    if (package / "zig").is_file():
        return package
    if importlib.util.find_spec("pip") is None:
        raise BuildFailure(
            "no C compiler that can make static programs, and no pip to fetch one with",
            "install gcc and musl-tools (or a static libc), or run ./agentkernel, which brings pip",
        )
    say(f"fetching a C compiler, {ZIG_REQUIREMENT} (about 100 MB), into {target}")
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=target.parent) as scratch:
        fetched = Path(scratch) / "target"
        command = [sys.executable, "-I", "-m", "pip", "--disable-pip-version-check", "install"]
        command += ["--quiet", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
        command += ["--target", str(fetched), ZIG_REQUIREMENT]
        failure = Compiler(tuple(command), "").run([], Path(scratch), INSTALL_TIMEOUT)
        if failure:
            raise BuildFailure(
                f"{ZIG_REQUIREMENT} could not be installed: {failure}",
                "install a C compiler (gcc and musl-tools), or give pip access to an index",
            )
        try:
            fetched.rename(target)
        except OSError:  # somebody else was faster
            if not (package / "zig").is_file():
                raise
    return package


def choose_compiler(choice: str, arch: str) -> Compiler:
    """Turn `--compiler` and `--arch` into a command, or say why there is none."""
    if arch != host_arch() and choice == "cc":
        raise BuildFailure(
            f"the system's compiler makes no programs for {arch}", "use --compiler zig"
        )
    if choice == "zig" or arch != host_arch():
        return zig_compiler(arch)
    compiler = system_compiler()
    if compiler is not None:
        return compiler
    if choice == "cc":
        raise BuildFailure(
            "no C compiler on PATH can make a static program",
            "install gcc and musl-tools (or a static libc), or use --compiler zig",
        )
    return zig_compiler(arch)


def fingerprint(
    sources: list[Path], compiler: Compiler, arch: str, include: Path | None = None
) -> str:
    """A hash over everything that decides the output."""
    digest = hashlib.sha256()
    for part in (*FLAGS, compiler.identity, arch):
        digest.update(part.encode() + b"\0")
    if include is not None:
        digest.update(include.read_bytes())
    for path in sources:
        digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def build(
    out: Path,
    *,
    compiler: str = "auto",
    arch: str = "host",
    sources: Path = SOURCES,
    include: Path | None = None,
) -> bool:
    """Make `out` from `sources`; False when it was up to date already.

    `include` is a header that every source begins with: for builds that only tests run.
    """
    arch = host_arch() if arch == "host" else arch
    code = sorted(sources.glob("*.c"))
    if not code:
        raise BuildFailure(f"no C sources in {sources}", "is the checkout complete?")
    tool = choose_compiler(compiler, arch)
    wanted = fingerprint([*code, *sorted(sources.glob("*.h"))], tool, arch, include)
    stamp = out.with_name(out.name + ".stamp")
    if out.is_file() and stamp.is_file() and stamp.read_text() == wanted:
        return False

    say(f"compiling agentd for {arch} with {tool.identity}")
    out.parent.mkdir(parents=True, exist_ok=True)
    # Compiled beside its place and moved there: an agentd that runs right now keeps its file.
    with tempfile.TemporaryDirectory(prefix=".build-", dir=out.parent) as scratch:
        fresh = Path(scratch) / "agentd"
        # Relative names from inside the directory, so that no path of this machine gets in.
        arguments = [*FLAGS, f"-ffile-prefix-map={sources}=.", *(path.name for path in code)]
        if include is not None:
            arguments += ["-D_GNU_SOURCE", "-Wno-macro-redefined", "-include", str(include)]
        failure = tool.run([*arguments, "-o", str(fresh)], sources, COMPILE_TIMEOUT)
        if failure:
            raise BuildFailure(
                f"{tool.identity} could not compile agentd:\n{failure}",
                "try another compiler with --compiler cc or --compiler zig",
            )
        fresh.chmod(0o755)
        fresh.replace(out)
    stamp.write_text(wanted)
    return True


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Compile agentd, the static guest agent.")
    parser.add_argument("--compiler", choices=("auto", "cc", "zig"), default="auto")
    parser.add_argument("--arch", choices=("host", *ARCHITECTURES), default="host")
    parser.add_argument("--sources", type=Path, default=SOURCES, help="directory of the C files")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    try:
        build(
            options.out.absolute(),
            compiler=options.compiler,
            arch=options.arch,
            sources=options.sources.resolve(),
        )
    except BuildFailure as failure:
        print(f"agentd_build: {failure}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"agentd_build: {error}\nhint: is {options.out} writable?", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
