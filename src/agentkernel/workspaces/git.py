"""git's plumbing, run so that a repository is read and obeyed in nothing.

Configuration of a repository can name programs to run (filters, monitors, hooks), and a repository
may be anybody's. So objects are read and written through a git directory of our own, empty but for
the way to the repository's objects. Only refs need the repository itself; there what could run
something is switched off on the command line, which no file overrides.

Nothing here reads what a guest has written, except as the content of an object.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import resource
import shutil
import stat
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO

from agentkernel.errors import HostError, UnsupportedError
from agentkernel.workspaces.checking import find_repository

SECONDS = 60.0
_MOST_DRAINED = 8 << 20
_MOST_EXCLUDES = 1 << 20
_MOST_OUTPUT = 256 << 20
_MOST_MEMORY = 2 << 30
_OFF = tuple(
    word
    for setting in (
        "core.fsmonitor=false", "core.hooksPath=/dev/null", "core.untrackedCache=false",
        "core.attributesFile=/dev/null", "core.alternateRefsCommand=false", "core.sshCommand=false",
        "core.askPass=false", "credential.helper=", "gc.auto=0", "maintenance.auto=false",
        "protocol.allow=never", "uploadpack.packObjectsHook=", "commit.gpgSign=false",
        "core.quotePath=false", "advice.detachedHead=false",
    )
    for word in ("-c", setting)
)  # fmt: skip


class GitError(HostError):
    """git did not do what it was asked for."""


@dataclass(frozen=True)
class GitPlace:
    """A repository around a directory. `own`: what is this worktree's alone (HEAD, index);
    `common`: the rest. All without links."""

    top: str
    own: str
    common: str

    @property
    def objects(self) -> str:
        return f"{self.common}/objects"


def find_git(directory: str) -> GitPlace | None:
    """The repository that `directory` (without links in it) is in; None: none, or one whose `.git`
    is not believed."""
    here = directory
    while not os.path.lexists(f"{here}/.git"):
        if here == "/":
            return None
        here = os.path.dirname(here)
    own = f"{here}/.git"
    if os.path.islink(own):
        return None
    if os.path.isdir(own):
        known = os.path.isdir(f"{own}/objects") and os.path.isfile(f"{own}/HEAD")
        return GitPlace(here, own, own) if known else None
    repository = find_repository(here)
    return None if repository is None else GitPlace(here, repository.own, repository.common)


def has_git() -> bool:
    return shutil.which("git") is not None


class Git:
    """Calls of git about one repository. Blocking; to be used as a context.

    What writes to the repository is run as its owner, whose files all of it then are.
    """

    def __init__(self, place: GitPlace) -> None:
        self.place = place
        self._program = shutil.which("git")
        self._as: dict[str, object] = {}
        self._owner = os.stat(place.common)
        if os.geteuid() == 0 and self._owner.st_uid:
            self._as = {
                "user": self._owner.st_uid, "group": self._owner.st_gid, "extra_groups": [],
            }  # fmt: skip
        self._scratch = ""

    def __enter__(self) -> Git:
        if self._program is None:
            raise UnsupportedError("git is not installed", hint="install the package git")
        self._scratch = tempfile.mkdtemp(prefix="agentkernel-git-")
        try:
            for name in ("objects", "refs"):
                os.mkdir(f"{self._scratch}/{name}")
            self.write_scratch("HEAD", "ref: refs/heads/none\n")
            self.write_scratch("config", self._config())
            self._take_excludes()
            if self._as:
                for path in (self._scratch, f"{self._scratch}/objects", f"{self._scratch}/refs"):
                    os.chown(path, self._owner.st_uid, self._owner.st_gid)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._scratch, ignore_errors=True)

    @property
    def hash_bytes(self) -> int:
        return 32 if self._is_sha256() else 20

    def write_scratch(self, name: str, content: str | bytes) -> str:
        """A file of our own git directory."""
        path = f"{self._scratch}/{name}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        raw = content.encode() if isinstance(content, str) else content
        with open(path, "wb") as file:
            file.write(raw)
        if self._as:
            os.chown(path, self._owner.st_uid, self._owner.st_gid)
        return path

    def scratch(self, name: str) -> str:
        return f"{self._scratch}/{name}"

    def plumbing(
        self,
        *words: str,
        stdin: bytes | IO[bytes] = b"",
        index: str | None = None,
        work_tree: str | None = None,
        cwd: str = "/",
        accept: Sequence[int] = (0,),
        writes: bool = False,
    ) -> bytes:
        """With our own git directory and the repository's objects. Raises GitError."""
        environment = self._environment()
        environment["GIT_DIR"] = self._scratch
        environment["GIT_OBJECT_DIRECTORY"] = self.place.objects
        environment["GIT_INDEX_FILE"] = index or f"{self._scratch}/index"
        if work_tree is not None:
            environment["GIT_WORK_TREE"] = work_tree
        return self._run(words, environment, stdin, cwd, accept, writes)

    def in_repository(
        self, *words: str, accept: Sequence[int] = (0,), writes: bool = False
    ) -> bytes:
        """With the repository's own git directory: for refs alone. Raises GitError."""
        environment = self._environment() | {"GIT_DIR": self.place.own}
        return self._run(words, environment, b"", "/", accept, writes)

    @contextlib.contextmanager
    def objects(self) -> Iterator[Objects]:
        """To read many."""
        environment = self._environment()
        environment |= {"GIT_DIR": self._scratch, "GIT_OBJECT_DIRECTORY": self.place.objects}
        reader = Objects([self._program or "git", *_OFF, "cat-file", "--batch"], environment)
        try:
            yield reader
        finally:
            reader.close()

    def identity(self) -> tuple[str, str]:
        """Who the repository's owner says to be, in its configuration or the user's own."""
        try:
            home = pwd.getpwuid(self._owner.st_uid).pw_dir
        except KeyError:
            home = "/"
        files = (f"{self.place.common}/config", f"{home}/.gitconfig", f"{home}/.config/git/config")
        found: dict[str, str] = {}
        for name, otherwise in (("name", "agentkernel"), ("email", "agentkernel@localhost")):
            for file in files:
                words = ("config", "--file", file, "--no-includes", "--get", f"user.{name}")
                with contextlib.suppress(GitError):
                    if said := self.plumbing(*words).decode(errors="replace").strip():
                        found.setdefault(name, said)
            found.setdefault(name, otherwise)
        return found["name"], found["email"]

    def _run(
        self,
        words: Sequence[str],
        environment: dict[str, str],
        stdin: bytes | IO[bytes],
        cwd: str,
        accept: Sequence[int],
        writes: bool,
    ) -> bytes:
        """A small repository may stand for endless trees: what it takes is bounded."""
        is_late = threading.Event()
        try:
            with contextlib.ExitStack() as stack:
                errors = stack.enter_context(tempfile.TemporaryFile())
                if isinstance(stdin, bytes):
                    given = stack.enter_context(tempfile.TemporaryFile())
                    given.write(stdin)
                    given.seek(0)
                    stdin = given
                process: subprocess.Popen[bytes] = subprocess.Popen(  # type: ignore[call-overload]
                    [self._program or "git", *_OFF, *words],
                    env=environment, cwd=cwd, stdin=stdin, stdout=subprocess.PIPE, stderr=errors,
                    **(self._as if writes else {}),
                )  # fmt: skip
                stack.callback(_end, process)
                with contextlib.suppress(OSError):  # it has ended already
                    resource.prlimit(process.pid, resource.RLIMIT_DATA, (_MOST_MEMORY,) * 2)

                def stop() -> None:
                    is_late.set()
                    process.kill()

                timer = threading.Timer(SECONDS, stop)
                stack.callback(timer.cancel)
                timer.start()
                assert process.stdout
                output = process.stdout.read(_MOST_OUTPUT + 1)
                if len(output) > _MOST_OUTPUT:
                    raise GitError(f"git {words[0]} has more than {_MOST_OUTPUT >> 20} MiB to say")
                status = process.wait()
                errors.seek(max(0, errors.seek(0, os.SEEK_END) - 300))
                said = errors.read().decode(errors="replace").strip()
        except OSError as exc:
            raise GitError(f"git can't be run: {exc.strerror}") from None
        if is_late.is_set():
            raise GitError(f"git {words[0]} did not end in {SECONDS:g} s")
        if status not in accept:
            raise GitError(f"git {words[0]}: {said or f'status {status}'}")
        return output

    def _take_excludes(self) -> None:
        """What the repository and the user say is ignored, besides the project's own files."""
        texts = []
        for path in (f"{self.place.common}/info/exclude", _users_excludes()):
            with contextlib.suppress(OSError):
                texts.append(read_beginning(path, _MOST_EXCLUDES))
        # The last word is the repository's.
        self.write_scratch("info/exclude", b"\n".join(reversed(texts)))

    def _config(self) -> str:
        if self._is_sha256():
            return "[core]\nrepositoryformatversion = 1\n[extensions]\nobjectformat = sha256\n"
        return "[core]\nrepositoryformatversion = 0\n"

    def _is_sha256(self) -> bool:
        """Only that is read of the repository's configuration; it decides nothing but lengths."""
        try:
            text = read_beginning(f"{self.place.common}/config", 1 << 16).lower()
        except OSError:
            return False
        return any(
            line.partition(b"=")[0].strip() == b"objectformat" and b"sha256" in line
            for line in text.split(b"\n")
        )

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": self._scratch,
            "LC_ALL": "C",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_ALLOW_PROTOCOL": "none",
        }


def read_beginning(path: str, most: int) -> bytes:
    """Of a file of somebody's repository, which may be a pipe: nobody waits for its writer. Raises
    OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        return file.read(most) if stat.S_ISREG(os.fstat(fd).st_mode) else b""


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    if process.stdout:
        process.stdout.close()


def _users_excludes() -> str:
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return f"{base}/git/ignore"


class Objects:
    """Objects of a repository, one after the other, by one process."""

    def __init__(self, argv: list[str], environment: dict[str, str]) -> None:
        self._argv, self._environment = argv, environment
        self._process: subprocess.Popen[bytes] | None = None

    def blob(self, object: str, most: int) -> bytes | None:
        """Its content; None: it is not there, no blob, or longer than `most`. Raises GitError."""
        process = self._started()
        assert process.stdin and process.stdout
        watch = threading.Timer(SECONDS, process.kill)
        watch.start()
        try:
            process.stdin.write(object.encode() + b"\n")
            process.stdin.flush()
            words = process.stdout.readline().split()
            if len(words) != 3:
                if words[-1:] != [b"missing"]:
                    raise GitError("git cat-file ended too early")
                return None
            size = int(words[2])
            if size > _MOST_DRAINED:
                self.close()
                return None
            content = process.stdout.read(size + 1)[:-1]
        except (OSError, ValueError):
            raise GitError("git cat-file ended too early") from None
        finally:
            watch.cancel()
        if len(content) != size:
            raise GitError("git cat-file ended too early")
        return content if words[1] == b"blob" and size <= most else None

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                self._argv, env=self._environment, cwd="/", stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        return self._process

    def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe:
                with contextlib.suppress(OSError):
                    pipe.close()
        process.wait()
