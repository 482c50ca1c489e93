"""Finding the daemon of a state directory, and starting it when none answers.

Blocking and light. However many processes find no daemon at once, one starts it and the others
wait for that: `start.lock` is theirs to agree by, `daemon.lock` the daemon's own.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

from agentkernel.client.wire import error_of
from agentkernel.errors import AgentKernelError, DaemonError, DaemonTimeoutError, StateLockedError
from agentkernel.places import SOCKET_NAME, make_state_directory, state_path

TYPE_CHECKING = False  # as in typing, which the command line does not load
if TYPE_CHECKING:
    from agentkernel.client.remote import Remote

START_SECONDS = 30.0
_PAUSE = 0.01
_LONGEST_PATH = 100
_ABSENT = (FileNotFoundError, ConnectionRefusedError)
# Daemons that this process started: to be waited for when they end, or they stay as zombies.
_children: list[int] = []


class Daemon:
    """The daemon of a state directory, there or not."""

    # What it has to be told with every request: who comes is known by the socket.
    headers: Mapping[str, str] = {}
    # It sees the toolchains that we see.
    shares_host = True

    def __init__(self, state_dir: str | None = None) -> None:
        self.state_dir = os.path.abspath(state_dir) if state_dir else state_path()
        self.socket_path = os.path.join(self.state_dir, SOCKET_NAME)
        self.log_path = os.path.join(self.state_dir, "daemon.log")

    def connect(self) -> socket.socket | None:
        """A non-blocking connection, or None: no daemon. BlockingIOError: it is busy, try again."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            if len(self.socket_path) <= _LONGEST_PATH:
                connection.connect(self.socket_path)
            else:
                self._connect_far(connection)
        except _ABSENT:
            connection.close()
            return None
        except BlockingIOError:
            connection.close()
            raise
        except OSError as exc:
            connection.close()
            raise DaemonError(
                f"the daemon's socket can't be used: {self.socket_path}: {exc.strerror}",
                hint="set AGENTKERNEL_STATE_DIR to a directory of yours",
            ) from None
        return connection

    def _connect_far(self, connection: socket.socket) -> None:
        """A socket's address holds 107 bytes; a directory's descriptor makes any path short."""
        directory = os.open(self.state_dir, os.O_PATH | os.O_CLOEXEC)
        try:
            connection.connect(f"/proc/self/fd/{directory}/{SOCKET_NAME}")
        finally:
            os.close(directory)

    def answers(self) -> bool:
        try:
            connection = self.connect()
        except BlockingIOError:
            return True
        if connection is None:
            return False
        connection.close()
        return True

    def start(self, seconds: float = START_SECONDS, arguments: Sequence[str] = ()) -> None:
        """Returns when a daemon answers, started by us or by anybody; or raises its own words.
        `arguments`: of `agentkernel serve`."""
        deadline = time.monotonic() + seconds
        make_state_directory(self.state_dir)
        with self._starting(deadline):
            while not self.answers():
                error = self._launch(deadline, arguments)
                if error is None:
                    return
                # One that is just ending holds the lock still: no reason to give up.
                if not isinstance(error, StateLockedError) or time.monotonic() > deadline - 1:
                    raise error
                time.sleep(0.1)

    @contextlib.contextmanager
    def _starting(self, deadline: float) -> Iterator[None]:
        import fcntl

        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        lock = os.open(os.path.join(self.state_dir, "start.lock"), flags, 0o600)
        try:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    self._check(deadline)
            yield
        finally:
            os.close(lock)

    def _launch(self, deadline: float, arguments: Sequence[str]) -> AgentKernelError | None:
        """Starts one and waits until it is ready. Why it is not, if it ended instead."""
        import subprocess

        _reap()
        readable, writable = os.pipe()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        log = os.open(self.log_path, flags, 0o600)
        # -P: what lies in the current directory is not ours to run.
        words = [sys.executable, "-P", "-m", "agentkernel", "serve", "--ready-fd", str(writable)]
        try:
            child = subprocess.Popen(
                [*words, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(writable,),
                cwd="/",
                env=self._environment(),
                start_new_session=True,
            )
        finally:
            os.close(writable)
            os.close(log)
        try:
            told = _line(readable, deadline)
        except TimeoutError:
            child.kill()
            child.wait()
            raise DaemonTimeoutError(
                "the daemon did not start in time", hint=f"its log is {self.log_path}"
            ) from None
        finally:
            os.close(readable)
        if told and "error" not in (body := json.loads(told)):
            _children.append(child.pid)
            child.returncode = 0  # it is to outlive us: no warning that it does
            return None
        status = child.wait()
        if told:
            return error_of({**body["error"], "detail": body["error"]["message"]})
        return DaemonError(
            f"the daemon ended with status {status} before it was ready",
            hint=f"its log is {self.log_path}",
        )

    def _environment(self) -> dict[str, str]:
        environment = {**os.environ, "AGENTKERNEL_STATE_DIR": self.state_dir}
        home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        if os.path.basename(home) not in ("site-packages", "dist-packages"):
            rest = environment.get("PYTHONPATH")
            environment["PYTHONPATH"] = f"{home}{os.pathsep}{rest}" if rest else home
        return environment

    def _check(self, deadline: float) -> None:
        if time.monotonic() > deadline:
            raise DaemonTimeoutError(
                "the daemon did not start in time", hint=f"its log is {self.log_path}"
            )
        time.sleep(_PAUSE)

    def wait_gone(self, pid: int, seconds: float = START_SECONDS) -> None:
        """Returns when the process has ended."""
        deadline = time.monotonic() + seconds
        while _alive(pid):
            if time.monotonic() > deadline:
                raise DaemonTimeoutError(
                    f"the daemon (process {pid}) did not end in time",
                    hint=f"`kill -9 {pid}` loses nothing: sandboxes outlive it",
                )
            time.sleep(_PAUSE)


def chosen_daemon(
    state_dir: str | None = None, url: str | None = None, token: str | None = None
) -> Daemon | Remote:
    """The one that is meant: by what the caller says, else by the environment, else this user's."""
    if url is None and state_dir is None:
        url = os.environ.get("AGENTKERNEL_URL")
    if not url:
        return Daemon(state_dir)
    from agentkernel.client.remote import Remote

    return Remote(url, token or os.environ.get("AGENTKERNEL_TOKEN"))


def _line(fd: int, deadline: float) -> bytes:
    """All that comes up to a line's end or the end."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    data = b""
    while not data.endswith(b"\n"):
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise TimeoutError
        more = os.read(fd, 1 << 16)
        if not more:
            break
        data += more
    return data


def _alive(pid: int) -> bool:
    _reap()
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2][:1] != b"Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _reap() -> None:
    for pid in list(_children):
        try:
            ended = os.waitpid(pid, os.WNOHANG)[0] == pid
        except ChildProcessError:
            ended = True
        if ended:
            _children.remove(pid)
