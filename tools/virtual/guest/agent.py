"""Runs inside the machine as root: carries out commands that come over a virtio port.

Started by a unit of systemd once the machine is up. Needs only the standard library; the frames
are described in virtual/frames.py, which goes into the machine with this file.

    root        a login session of root
    tester      a process that belongs to nobody's session, as from cron or a container
    delegated   a login session of a user whose manager (user@.service) runs: systemd delegates
                control groups to it
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import selectors
import shlex
import signal
import subprocess
import time
from typing import Any

from virtual import frames

PORT = "/dev/virtio-ports/agentkernel"
CHUNK = 32768
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def main() -> None:
    with open(PORT, "r+b", buffering=0) as port:
        frames.send(port, frames.HELLO, json.dumps(machine()).encode())
        while True:
            kind, body = frames.receive(port)
            if kind == frames.REQUEST:
                request = json.loads(body)
                frames.send(port, frames.DONE, json.dumps(carry_out(port, request)).encode())


def machine() -> dict[str, str]:
    """What the report says of this machine."""
    systemd = subprocess.run(["systemctl", "--version"], capture_output=True, text=True, check=True)
    with open("/etc/os-release") as lines:
        release = dict(line.rstrip().split("=", 1) for line in lines if "=" in line)
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
    return {
        "kernel": os.uname().release,
        "version": os.uname().version,
        "systemd": systemd.stdout.split()[1],
        "system": release["PRETTY_NAME"].strip('"'),
        "boot": boot,
        "cgroups": open("/sys/fs/cgroup/cgroup.controllers").read().strip(),
    }


def carry_out(port: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Runs one command, its output live. It never takes longer than `timeout`."""
    process = subprocess.Popen(
        command_of(request),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
        env={"PATH": PATH, "LANG": "C.UTF-8"},
        start_new_session=True,
    )
    deadline = time.monotonic() + float(request["timeout"])
    timed_out = False
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, frames.STDOUT)  # type: ignore[arg-type]
        selector.register(process.stderr, selectors.EVENT_READ, frames.STDERR)  # type: ignore[arg-type]
        # A daemon that the command left behind may hold its output open: the command's end is ours.
        while selector.get_map() and not (process.poll() is not None and idle(selector)):
            if time.monotonic() > deadline:
                timed_out = True
                break
            for key, _ in selector.select(0.2):
                if data := os.read(key.fd, CHUNK):
                    frames.send(port, key.data, data)
                else:
                    selector.unregister(key.fileobj)
    if timed_out:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
    try:
        status = process.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        status = process.wait()
    return {"status": status if status >= 0 else 128 - status, "timed_out": timed_out}


def idle(selector: selectors.BaseSelector) -> bool:
    return not selector.select(0)


def command_of(request: dict[str, Any]) -> list[str]:
    user, argv = request["user"], list(request["argv"])
    words = [f"{name}={value}" for name, value in sorted(request["env"].items())]
    entry = pwd.getpwnam(user)
    if user == "tester":
        words = [f"HOME={entry.pw_dir}", f"USER={user}", f"PATH={PATH}", "LANG=C.UTF-8", *words]
        become = ["setpriv", "--reuid", user, "--regid", user, "--init-groups", "--"]
        return [*become, "env", "-i", "-C", request["cwd"], *words, *argv]
    inner = shlex.join(["env", f"PATH={PATH}", "LANG=C.UTF-8", *words, *argv])
    return ["su", "--login", user, "-c", f"cd {shlex.quote(request['cwd'])} && exec {inner}"]


if __name__ == "__main__":
    main()
