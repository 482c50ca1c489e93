"""Run a command of this clone on a machine that has nothing but Python.

    tools/empty_root.py [--user root|tester] [--cache DIR] [--state DIR] [--timeout S] -- COMMAND...

The "machine" is a Debian tree with python3 and apt: no compiler, no pip, no venv. It is made once
and kept in the cache. Every run gets a copy of it with a copy of the clone in the user's home,
enters it in mount and pid namespaces of its own, and removes it afterwards; `--state DIR` keeps
the copy there for the next run. Needs root, mmdebstrap and unshare.

Nothing of this machine can be unmounted by it: all mounting happens after `unshare` with private
propagation, and the script inside refuses to go on if it still is in this namespace.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

CLONE = Path(__file__).resolve().parent.parent
SUITE = "bookworm"
USERS = {"root": (0, Path("root")), "tester": (1000, Path("home/tester"))}
BUNDLE = Path("etc/ssl/certs/ca-certificates.crt")

# What was made from the sources, or belongs to the checkout on this machine, stays out.
NOT_COPIED = (
    ".git",
    ".venv",
    ".build",
    "_agentd",
    "dist",
    "__pycache__",
    ".*_cache",
    ".hypothesis",
)

# What reaching the package registries takes; nothing else of the environment goes in.
PASSED = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_DEFAULT_TIMEOUT", "NO_COLOR", "TERM", "CI")
PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")

# Run by the host's shell as pid 1 of the new namespaces: $1 the root, $2 the host's mount
# namespace, $3 uid, $4 working directory, then the command.
ENTER = r"""
set -eu
root=$1 host=$2 uid=$3 directory=$4
shift 4
if [ "$(readlink /proc/self/ns/mnt)" = "$host" ]; then
    echo "empty_root: still in the host's mount namespace" >&2
    exit 125
fi
mount --bind "$root" "$root"
cd "$root"
mount -t proc -o nosuid,nodev,noexec proc proc
mount -t tmpfs -o nosuid,mode=755,size=1m tmpfs dev
for name in null zero full random urandom tty; do
    : >"dev/$name"
    mount --bind "/dev/$name" "dev/$name"
done
mkdir dev/shm dev/pts
mount -t tmpfs -o nosuid,nodev,mode=1777 tmpfs dev/shm
mount -t devpts -o nosuid,noexec,newinstance,ptmxmode=0666,mode=620 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ln -s /proc/self/fd/0 dev/stdin
ln -s /proc/self/fd/1 dev/stdout
ln -s /proc/self/fd/2 dev/stderr
mkdir -p .host
pivot_root . .host
cd /
# The tree has no umount; 2 is MNT_DETACH.
/usr/bin/python3 -I -c 'import ctypes; exit(ctypes.CDLL(None).umount2(b"/.host", 2) != 0)'
rmdir /.host
cd "$directory"
# A child, not exec: pid 1 has no default signal actions, and somebody has to reap.
setpriv --reuid "$uid" --regid "$uid" --clear-groups -- "$@" &
wait "$!"
"""


def fail(message: str) -> None:
    print(f"empty_root: {message}", file=sys.stderr)
    sys.exit(125)


def make_base(cache: Path) -> Path:
    """The tree that is copied; it appears under its name only when it is complete."""
    base = cache / f"{SUITE}-python3"
    if base.is_dir():
        return base
    cache.mkdir(parents=True, exist_ok=True)
    apt = Path("/etc/apt")
    sources = [apt / "sources.list", *sorted((apt / "sources.list.d").iterdir())]
    mirrors = [
        str(path)
        for path in sources
        if path.suffix in (".list", ".sources") and path.is_file() and SUITE in path.read_text()
    ]
    print(f"empty_root: making a {SUITE} root in {base}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="making-", dir=cache) as scratch:
        fresh = Path(scratch) / "root"
        command = ["mmdebstrap", "--quiet", "--variant=apt", "--include=python3"]
        command += ["--dpkgopt=path-exclude=/usr/share/doc/*", SUITE, str(fresh), *mirrors]
        subprocess.run(command, check=True, timeout=600, stdout=sys.stderr)
        fresh.rename(base)
    return base


def furnish(root: Path) -> None:
    """What a machine with a network has: names, certificates, pip's settings, one user."""
    for source in ("etc/resolv.conf", "etc/hosts", "etc/pip.conf", str(BUNDLE)):
        if Path("/", source).is_file():
            target = root / source
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            shutil.copyfile(Path("/", source), target)
    uid, home = USERS["tester"]
    with (root / "etc/passwd").open("a") as passwd, (root / "etc/group").open("a") as group:
        passwd.write(f"tester:x:{uid}:{uid}::/{home}:/bin/sh\n")
        group.write(f"tester:x:{uid}:\n")
    for name in ("etc/subuid", "etc/subgid"):
        (root / name).write_text("")
    (root / home).mkdir(parents=True)
    os.chown(root / home, uid, uid)


def copy_clone(root: Path, user: str) -> Path:
    """Put the clone into the user's home; returns where, as seen from inside."""
    uid, home = USERS[user]
    inside = home / "agentkernel"
    target = root / inside
    if not target.is_dir():
        ignored = shutil.ignore_patterns(*NOT_COPIED)
        shutil.copytree(CLONE, target, symlinks=True, ignore=ignored)
        for folder, folders, files in os.walk(target):
            for name in (".", *folders, *files):
                os.chown(Path(folder, name), uid, uid, follow_symlinks=False)
    return Path("/") / inside


def environment(user: str) -> dict[str, str]:
    values = {name: os.environ[name] for name in (*PASSED, *PROXIES) if name in os.environ}
    values["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    values["HOME"] = f"/{USERS[user][1]}"
    values["LANG"] = "C.UTF-8"
    if (Path("/") / BUNDLE).is_file():
        values["PIP_CERT"] = values["SSL_CERT_FILE"] = f"/{BUNDLE}"
    return values


def run(root: Path, user: str, directory: Path, command: list[str], timeout: float) -> int:
    namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    namespaces += ["--propagation", "private", "--"]
    shell = ["/bin/sh", "-c", ENTER, "empty_root", str(root), os.readlink("/proc/self/ns/mnt")]
    arguments = [str(USERS[user][0]), str(directory), *command]
    process = subprocess.Popen([*namespaces, *shell, *arguments], env=environment(user))
    try:
        status = process.wait(timeout)
    except subprocess.TimeoutExpired:
        print(f"empty_root: not finished after {timeout:.0f} s", file=sys.stderr)
        status = 124
    except KeyboardInterrupt:
        status = 130
    finally:
        # --kill-child: with unshare goes pid 1 inside, and with that everything inside.
        process.send_signal(signal.SIGKILL)
        process.wait()
    return status if status >= 0 else 128 - status


def main() -> int:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agentkernel"
    parser = argparse.ArgumentParser(description="Run a command where there is only Python.")
    parser.add_argument("--user", choices=tuple(USERS), default="root")
    parser.add_argument("--cache", type=Path, default=cache / "empty-root")
    parser.add_argument("--state", type=Path, help="keep the machine in this directory")
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    if os.geteuid() != 0:
        fail("needs root")
    base = make_base(options.cache.absolute())
    with tempfile.TemporaryDirectory(prefix="run-", dir=options.cache) as scratch:
        root = (options.state or Path(scratch)).absolute() / "root"
        if not root.is_dir():
            root.parent.mkdir(parents=True, exist_ok=True)
            root.parent.chmod(0o755)
            subprocess.run(["cp", "-a", "--reflink=auto", base, root], check=True, timeout=300)
            furnish(root)
        directory = copy_clone(root, options.user)
        return run(root, options.user, directory, options.command, options.timeout)


if __name__ == "__main__":
    sys.exit(main())
