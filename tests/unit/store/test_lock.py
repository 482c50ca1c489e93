"""One owner of a state directory, however the last one ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentkernel.errors import HostError, StateLockedError
from agentkernel.kernel.store import StateLock

HOLDER = """
import sys, time
from pathlib import Path
from agentkernel.kernel.store.lock import StateLock
with StateLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_two_locks_exclude_each_other(tmp_path: Path) -> None:
    with StateLock(tmp_path) as lock:
        other = StateLock(tmp_path)
        with pytest.raises(StateLockedError) as caught:
            other.acquire()
        assert caught.value.details["pid"] == os.getpid()
        with pytest.raises(StateLockedError):
            lock.acquire()
    with other:
        pass
    other.release()
    assert (tmp_path / "daemon.lock").stat().st_mode & 0o777 == 0o600


def test_kill_9_frees_it(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StateLockedError, match=str(holder.pid)) as caught:
            StateLock(tmp_path).acquire()
        assert caught.value.details["pid"] == holder.pid
        assert caught.value.hint
        assert caught.value.retryable
        holder.send_signal(signal.SIGKILL)
        holder.wait(timeout=10)
        with StateLock(tmp_path) as lock:
            assert lock.path.read_text() == f"{os.getpid()}\n"


def test_a_child_does_not_inherit_it(tmp_path: Path) -> None:
    lock = StateLock(tmp_path)
    lock.acquire()
    with subprocess.Popen(["sleep", "60"], close_fds=False) as child:
        lock.release()
        with StateLock(tmp_path):
            pass
        child.kill()


def test_a_directory_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="locked"):
        StateLock(tmp_path / "nothing").acquire()
