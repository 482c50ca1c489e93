"""Files of a project that look like secrets, so that a sandbox need not see them.

They are found by name, and keys by what they say of themselves, in a walk over the project. A walk
over a big one takes longer than a sandbox: so it is remembered, and directories are looked at again
only if their time says that a name came or went. Even that takes a while: a sandbox may be launched
with what was found last, if nothing runs in it before it is known that this still holds.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field

_NAMES = frozenset({
    ".env", ".envrc", ".npmrc", ".yarnrc.yml", ".netrc", "_netrc", ".pypirc", ".git-credentials",
    ".pgpass", ".my.cnf", ".htpasswd", ".dockercfg", ".vault-token", ".s3cfg", ".boto",
    ".terraformrc", "terraform.tfstate", "terraform.tfstate.backup", "id_rsa", "id_dsa", "id_ecdsa",
    "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk", "client_secret.json", "service-account.json",
    ".ssh", ".gnupg",
})  # fmt: skip
_BELOW = frozenset({
    (".aws", "credentials"), (".azure", "accessTokens.json"), (".cargo", "credentials"),
    (".cargo", "credentials.toml"), (".config", "gcloud"), (".docker", "config.json"),
    (".gem", "credentials"), (".kube", "config"), (".bundle", "config"),
})  # fmt: skip
_EXAMPLES = frozenset({"example", "sample", "template", "dist", "defaults", "schema"})
_STORES = (".p12", ".pfx", ".jks", ".keystore", ".ppk", ".kdbx")
# These may be certificates, which nobody need hide: what is in them decides.
_PERHAPS = (".pem", ".key")
_KEY_WORDS = b"PRIVATE KEY"
_MOST_OF_KEY = 16_384
# A directory whose time is this young when it was read may get another name in the same tick.
_TICK_NS = 50_000_000
_MOST_REMEMBERED = 4
# Content by its hash, of which names say nothing.
_SKIPPED = (".git", "objects")


def is_secret_name(parent: str, name: str) -> bool:
    """By the name alone, with that of the directory it is in."""
    if name in _NAMES or name.endswith(_STORES) or (parent, name) in _BELOW:
        return True
    return name.startswith(".env.") and name.rpartition(".")[2] not in _EXAMPLES


@dataclass
class _Directory:
    mtime_ns: int
    inode: int
    read_ns: int
    secrets: list[str] = field(default_factory=list)
    perhaps: list[str] = field(default_factory=list)
    below: list[str] = field(default_factory=list)

    @property
    def is_settled(self) -> bool:
        """A name that came after it was read would have changed its time."""
        return self.read_ns - self.mtime_ns > _TICK_NS


@dataclass
class _Walk:
    """What a walk has seen. `times`: every directory with its time and number, in one list, because
    to go through it is what each start over a big project waits for; none: some were too young."""

    directories: dict[str, _Directory]
    times: list[tuple[str, int, int]]
    named: list[str]
    perhaps: list[str]
    found: list[str] | None = None

    def still_holds(self, project: str) -> bool:
        stat = os.stat
        try:
            # From here every path is a short one.
            top = os.open(project, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            for path, mtime_ns, inode in self.times:
                info = stat(path, dir_fd=top)
                if info.st_mtime_ns != mtime_ns or info.st_ino != inode:
                    return False
        except OSError:
            return False
        finally:
            os.close(top)
        return bool(self.times)


class SecretFinder:
    """Remembers what the last walks have seen. Thread-safe."""

    def __init__(self) -> None:
        self._known: dict[str, _Walk] = {}
        self._lock = threading.Lock()

    def remembered(self, project: str) -> list[str] | None:
        """What `find` found last; whether it still holds only `find` can tell."""
        with self._lock:
            walk = self._known.get(project)
            return None if walk is None else walk.found

    def find(self, project: str) -> list[str]:
        """Paths below the project, of files and whole directories, in order."""
        with self._lock:
            walk = self._known.get(project)
        if walk is None or not walk.still_holds(project):
            walk = _walked(project, walk.directories if walk else {})
        keys = [path for path in walk.perhaps if _holds_key(f"{project}/{path}")]
        found = sorted([*walk.named, *keys])
        with self._lock:
            walk.found = found
            self._known.pop(project, None)
            self._known[project] = walk
            while len(self._known) > _MOST_REMEMBERED:
                self._known.pop(next(iter(self._known)))
        return found


def _walked(project: str, known: dict[str, _Directory]) -> _Walk:
    seen: dict[str, _Directory] = {}
    named: list[str] = []
    perhaps: list[str] = []
    device = os.stat(project).st_dev
    pending = [""]
    while pending:
        here = pending.pop()
        entry = _look(f"{project}/{here}" if here else project, device, known.get(here))
        if entry is None:
            continue
        seen[here] = entry
        prefix = f"{here}/" if here else ""
        named += [prefix + name for name in entry.secrets]
        perhaps += [prefix + name for name in entry.perhaps]
        pending += [prefix + name for name in entry.below]
    times = []
    if all(entry.is_settled for entry in seen.values()):
        times = [(here or ".", entry.mtime_ns, entry.inode) for here, entry in seen.items()]
    return _Walk(seen, times, named, perhaps)


def _look(path: str, device: int, before: _Directory | None) -> _Directory | None:
    """What is in one directory, as it was before if nothing came or went; None: not ours."""
    try:
        info = os.stat(path, follow_symlinks=False)
        if info.st_dev != device:
            return None
        if (
            before is not None
            and (before.mtime_ns, before.inode) == (info.st_mtime_ns, info.st_ino)
            and before.is_settled
        ):
            return before
        now = _Directory(info.st_mtime_ns, info.st_ino, time.time_ns())
        parent = os.path.basename(path)
        with os.scandir(path) as entries:
            for entry in entries:
                name = entry.name
                if is_secret_name(parent, name):
                    now.secrets.append(name)
                elif entry.is_dir(follow_symlinks=False):
                    if (parent, name) != _SKIPPED:
                        now.below.append(name)
                elif name.endswith(_PERHAPS):
                    now.perhaps.append(name)
    except OSError:
        return None  # gone, or not ours to read: then not the guest's either
    return now


def _holds_key(path: str) -> bool:
    """True also for what can't be read: nobody can say that it is no key."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return not os.path.islink(path)
    try:
        text = os.read(fd, _MOST_OF_KEY)
    except OSError:
        return True
    finally:
        os.close(fd)
    return _KEY_WORDS in text or b"\0" in text
