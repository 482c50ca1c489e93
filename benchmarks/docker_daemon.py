"""A docker daemon of our own, its data in a directory of ours. Needs root and docker.io."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START_SECONDS = 60.0


@contextmanager
def docker_daemon(place: Path) -> Iterator[list[str]]:
    """The words that a command of this docker begins with. Raises RuntimeError where there can be
    none."""
    dockerd, client = find_program("dockerd"), find_program("docker")
    if os.getuid():
        raise RuntimeError("its daemon needs root")
    place.mkdir()
    host = f"unix://{place}/s"
    log = place / "log"
    with log.open("wb") as output:
        daemon = subprocess.Popen(
            [
                dockerd,
                "--host", host,
                "--data-root", str(place / "data"),
                "--exec-root", str(place / "exec"),
                "--pidfile", str(place / "pid"),
                "--iptables=false", "--ip6tables=false", "--bridge=none",
            ],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        words = [client, "--host", host]
        deadline = time.monotonic() + START_SECONDS
        while subprocess.run([*words, "info"], capture_output=True, timeout=60).returncode:
            if daemon.poll() is not None or time.monotonic() > deadline:
                last = log.read_text(errors="replace").splitlines()[-1:]
                raise RuntimeError(f"dockerd does not start: {last}")
            time.sleep(0.2)
        yield words
    finally:
        daemon.terminate()
        try:
            daemon.wait(30)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


def find_program(name: str) -> str:
    """Raises RuntimeError where it is not installed."""
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if path is None:
        raise RuntimeError("not installed")
    return path
