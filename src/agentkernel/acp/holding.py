"""One bridge for one agent: an agent that is held is nobody else's until its holder has gone."""

from __future__ import annotations

import fcntl
import os

from agentkernel.places import make_state_directory


class Hold:
    """A file that is locked, for as long as this process lives or until `release`."""

    def __init__(self, path: str, file: int) -> None:
        self._path = path
        self._file = file

    def release(self) -> None:
        # The name goes first: whoever finds it then makes one of their own.
        os.unlink(self._path)
        os.close(self._file)


def hold(name: str, state_dir: str | None = None) -> Hold | None:
    """None: another process has it. `name` is an id of ours."""
    directory = os.path.join(make_state_directory(state_dir), "acp")
    os.makedirs(directory, mode=0o700, exist_ok=True)
    path = os.path.join(directory, f"{name}.lock")
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            return None
        try:
            if os.stat(path).st_ino == os.fstat(file).st_ino:
                return Hold(path, file)
        except FileNotFoundError:
            pass  # released between: it is another file by now
        os.close(file)
