"""The `host` image: the machine's own programs over a clean root, with nothing to download.

`/` is a small generated layer (`etc.py` makes its `/etc`); `/usr` and, where they are directories
of their own, `/bin`, `/sbin` and `/lib*` are the machine's, read-only below the sandbox's upper.
Everything generated is cached by a key that costs a few dozen `stat` calls.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping

from agentkernel.errors import HostError
from agentkernel.images import toolchains as tools
from agentkernel.images.cache import Progress, StrPath, key_of, layer
from agentkernel.images.model import IdView, RootFilesystem, Stack, Tree
from agentkernel.images.skeleton import skeleton, tree_key

VERSION = 1
MOUNTINFO = "/proc/self/mountinfo"
DEFAULT_PATH = (
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
)
SYSTEM_DIRECTORIES = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
# Paths whose change means a new base layer, besides the allow-list itself: files that are
# rewritten in place below a directory whose own times stay the same.
ALSO_IN_KEY = (
    "etc/ssl/certs/ca-certificates.crt",
    "etc/ssl/certs/java/cacerts",
    "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "etc/ca-certificates/extracted/tls-ca-bundle.pem",
    "etc/fonts/conf.d",
    "etc/localtime",
    "usr/lib/os-release",
    "bin/bash",
)
DIRECTORIES = (
    ("dev", 0o755),
    ("etc", 0o755),
    ("home", 0o755),
    ("home/user", 0o755),
    ("media", 0o755),
    ("mnt", 0o755),
    ("opt", 0o755),
    ("proc", 0o755),
    ("root", 0o700),
    ("run", 0o755),
    ("run/lock", 0o1777),
    ("srv", 0o755),
    ("sys", 0o755),
    ("tmp", 0o1777),
    ("usr", 0o755),
    ("var", 0o755),
    ("var/cache", 0o755),
    ("var/lib", 0o755),
    ("var/log", 0o755),
    ("var/mail", 0o755),
    ("var/spool", 0o755),
    ("var/tmp", 0o1777),
)
LINKS = (("var/run", "/run"), ("var/lock", "/run/lock"))
NOTES = (
    "/etc, /home, /root, /var and /opt are the sandbox's own; /usr is this machine's, read-only"
    " below the sandbox's changes.",
    "The machine's package database is not shown: dpkg and rpm know of no installed package.",
)


def resolve_host(
    cache_dir: StrPath,
    ids: IdView,
    *,
    toolchains: bool = True,
    progress: Progress | None = None,
    environment: Mapping[str, str] | None = None,
    machine: StrPath = "/",
) -> RootFilesystem:
    """The `host` image for these ids; builds what is not cached.

    `environment` is the user's (this process's own by default): its PATH says which toolchains
    outside `/usr` are wanted, unless `toolchains` is false. No other value of it gets inside,
    except where a toolchain needs one that points into it. `machine` is the root to take things
    from; tests have others than "/".
    """
    root = os.path.abspath(os.fspath(machine)).rstrip("/")
    outside = os.environ if environment is None else environment
    links, directories = _system_directories(root)
    notes = list(NOTES)

    targets = [f"/{name}" for name in directories] + _mounts_below(root, directories, notes)
    stacks = [_stack(target, root, cache_dir, ids, progress) for target in targets]

    guest_home = home_of(ids)
    found = tools.find(
        outside.get("PATH", ""),
        outside.get("HOME", ""),
        [f"/{name}" for name in (*directories, *links)],
        environment=outside,
        guest_home=guest_home,
        machine=root,
        toolchains=toolchains,
    )
    notes += found.notes
    base = _base(cache_dir, ids, root, links, directories, found.trees, progress)
    path = list(dict.fromkeys([*found.path, *_standard_path(root), f"{guest_home}/.local/bin"]))
    return RootFilesystem(
        reference="host",
        stacks=(Stack("/", (base,)), *stacks),
        trees=tuple(found.trees),
        environment=guest_environment(ids, path) | found.environment,
        notes=tuple(notes),
    )


def home_of(ids: IdView) -> str:
    return "/root" if ids.guest_uid == 0 else "/home/user"


def guest_environment(ids: IdView, path: list[str]) -> dict[str, str]:
    """What every guest process starts from: nothing of the host's environment."""
    name = "root" if ids.guest_uid == 0 else "user"
    return {
        "PATH": ":".join(path),
        "HOME": home_of(ids),
        "USER": name,
        "LOGNAME": name,
        "LANG": "C.UTF-8",
    }


def _standard_path(root: str) -> list[str]:
    return [path for path in DEFAULT_PATH if os.path.isdir(root + path)]


def _system_directories(root: str) -> tuple[dict[str, str], list[str]]:
    """Which of `/bin`, `/lib64`, … are links (with their targets) and which are directories."""
    if not os.path.isdir(f"{root}/usr"):
        raise HostError(
            f"{root or '/'} has no /usr directory, so there is no `host` image to make of it",
            hint="use --image DIR with a root filesystem",
        )
    links: dict[str, str] = {}
    directories = ["usr"]
    for name in SYSTEM_DIRECTORIES:
        path = f"{root}/{name}"
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            continue
        if stat.S_ISLNK(mode):
            target = os.readlink(path)
            if target.lstrip("/").split("/")[0] in ("usr", *SYSTEM_DIRECTORIES):
                links[name] = target
        elif stat.S_ISDIR(mode):
            directories.append(name)
    return links, directories


def _mounts_below(root: str, directories: list[str], notes: list[str]) -> list[str]:
    """Guest paths below the system directories where the machine has another filesystem.

    An overlay shows its lower without what is mounted below it, so each needs one of its own.
    """
    try:
        # A carriage return may be part of a name; what ends a line is escaped in names.
        with open(MOUNTINFO, encoding="utf-8", errors="surrogateescape", newline="\n") as lines:
            points = {fields[4] for line in lines if len(fields := line.split(" ", 5)) > 4}
    except OSError:
        return []
    found = []
    for point in sorted(points):
        if not point.startswith(root + "/"):
            continue
        inside = point[len(root) :]
        if inside.split("/", 2)[1] not in directories or inside.count("/") < 2:
            continue
        inside = _unescaped(inside)
        if os.path.isdir(root + inside):
            found.append(inside)
        else:
            notes.append(f"{inside} is mounted as a single file on this machine; it is not shown.")
    return found


def _unescaped(path: str) -> str:
    """The kernel writes blanks and backslashes of mount points as `\\040` and the like."""
    raw = re.sub(rb"\\([0-3][0-7]{2})", lambda octal: bytes((int(octal[1], 8),)), os.fsencode(path))
    return os.fsdecode(raw)


def _stack(
    target: str, root: str, cache_dir: StrPath, ids: IdView, progress: Progress | None
) -> Stack:
    """The overlay for one directory of the machine, with what must lie above it."""
    source = root + target
    lowers = [source]
    if ids.kind == "range":
        private = _private(source, root, cache_dir, progress)
        lowers.insert(0, private)
    else:
        lowers.insert(0, skeleton(source, cache_dir, progress, machine=root, shown_as=target))
    if target == "/usr":
        lowers.insert(0, _extras(cache_dir, ids, root))
    return Stack(target, tuple(lowers))


# --- the base layer: "/" ---------------------------------------------------------------------


def _base(
    cache_dir: StrPath,
    ids: IdView,
    root: str,
    links: dict[str, str],
    directories: list[str],
    trees: list[Tree],
    progress: Progress | None,
) -> str:
    from agentkernel.images import etc

    # Root's toolchains live below /root, and `user` must get through to them.
    through = ids.guest_uid != 0 and any(tree.path.startswith("/root/") for tree in trees)
    seen = [
        _seen(f"{root}/{path}", path) for path in dict.fromkeys((*etc.sources(root), *ALSO_IN_KEY))
    ]
    key = key_of("base", VERSION, ids.kind, links, directories, through, etc.rules(), seen)

    def build(target: str) -> None:
        for path, mode in DIRECTORIES:
            etc.make_directories(target, path, mode)
        for name in directories:
            etc.make_directories(target, name)
        for name, link in (*links.items(), *LINKS):
            os.symlink(link, f"{target}/{name}")
        if through:
            os.chmod(f"{target}/root", 0o711)
        etc.build_etc(root, target)
        if ids.kind == "range":
            os.chown(f"{target}/home/user", 1000, 1000)

    return layer(
        cache_dir,
        f"base-{key}",
        build,
        progress=progress,
        message="preparing the host image (once, until the machine's configuration changes)",
    )


def _seen(path: str, name: str) -> tuple[object, ...]:
    """What tells that a path changed. ctime, because packages set mtimes as they like."""
    try:
        info = os.stat(path)
    except OSError:
        return (name,)
    return (name, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_mode)


# --- what lies above /usr --------------------------------------------------------------------

SUDO = """\
#!/bin/sh
# Stands in for sudo: in a sandbox no program can give a process more rights than it has.
program=${0##*/}
if [ "$(id -u)" != 0 ]; then
    echo "$program: no process in this sandbox can gain rights (no_new_privs is set)." >&2
    echo "$program: to be root in it, start it as root: agentkernel run --user root -- ..." >&2
    exit 1
fi
user=root
shell=
login=
while [ $# -gt 0 ]; do
    case $1 in
        --) shift; break ;;
        -u|--user) user=${2-}; shift; [ $# -gt 0 ] && shift ;;
        -u?*) user=${1#-u}; shift ;;
        --user=*) user=${1#--user=}; shift ;;
        -g|-p|-C|-D|-R|-T|-U|-h|-r|-t|--group|--prompt|--chdir|--host)
            shift; [ $# -gt 0 ] && shift ;;
        -i|--login) login=1; shift ;;
        -s|--shell) shell=1; shift ;;
        -v|-k|-K|--validate|--reset-timestamp|--remove-timestamp) shift; [ $# -eq 0 ] && exit 0 ;;
        -l|--list) echo "root may run everything in this sandbox"; exit 0 ;;
        -V|--version) echo "sudo of an agentkernel sandbox"; exit 0 ;;
        -*) shift ;;
        [A-Za-z_]*=*) export "$1"; shift ;;
        *) break ;;
    esac
done
while [ $# -gt 0 ]; do
    case $1 in
        [A-Za-z_]*=*) export "$1"; shift ;;
        *) break ;;
    esac
done
if [ -n "$login$shell" ]; then
    [ $# -gt 0 ] && set -- -c "$*"
    [ -n "$login" ] && set -- -l "$@"
    set -- "${SHELL:-/bin/sh}" "$@"
fi
if [ $# -eq 0 ]; then
    echo "usage: $program [-E] [-H] [-n] [-u user] [--] [VAR=value] command" >&2
    exit 1
fi
case $user in
    root|'#0'|0|'') exec "$@" ;;
esac
user=${user#\\#}
exec setpriv --reuid "$user" --regid "$(id -g "$user")" --init-groups -- "$@"
"""


def _extras(cache_dir: StrPath, ids: IdView, root: str) -> str:
    """A layer for `/usr` with programs of ours."""
    from agentkernel.images import etc

    paths = [path for path in ("bin/sudo", "local/bin/sudo") if os.path.isdir(_parent(root, path))]

    def build(target: str) -> None:
        for path in paths:
            etc.write(target, path, SUDO, 0o755)

    return layer(cache_dir, f"extras-{key_of('extras', VERSION, ids.kind, paths, SUDO)}", build)


def _parent(root: str, path: str) -> str:
    return os.path.dirname(f"{root}/usr/{path}")


# --- what root's guest must not read ---------------------------------------------------------


def _private(source: str, root: str, cache_dir: StrPath, progress: Progress | None) -> str:
    """A layer that hides what only root may read in `source`.

    As host root the guest's root reads what the machine's root reads. What other accounts of the
    machine may neither read nor execute is therefore covered by whiteouts.
    """
    shown = source[len(root) :]
    return layer(
        cache_dir,
        f"private-{key_of('private', VERSION, source, tree_key(source, root))}",
        lambda target: _build_private(source, target),
        progress=progress,
        message=f"looking for private files in {shown} (once, until its packages change)",
        flush=False,
    )


def _build_private(source: str, target: str) -> None:
    info = os.stat(source)
    os.chmod(target, info.st_mode & 0o7777)
    device = info.st_dev
    pending = [source]
    while pending:
        here = pending.pop()
        with os.scandir(here) as entries:
            for entry in entries:
                if entry.is_symlink():
                    continue
                info = entry.stat(follow_symlinks=False)
                if not info.st_mode & 0o005:
                    _whiteout(source, target, entry.path[len(source) + 1 :])
                elif stat.S_ISDIR(info.st_mode) and info.st_dev == device:
                    pending.append(entry.path)


def _whiteout(source: str, target: str, path: str) -> None:
    parts = path.split("/")
    for depth in range(1, len(parts)):
        parent = "/".join(parts[:depth])
        if not os.path.isdir(f"{target}/{parent}"):
            info = os.stat(f"{source}/{parent}")
            os.mkdir(f"{target}/{parent}")
            os.chown(f"{target}/{parent}", info.st_uid, info.st_gid)
            os.chmod(f"{target}/{parent}", info.st_mode & 0o7777)
    os.mknod(f"{target}/{path}", stat.S_IFCHR, 0)
