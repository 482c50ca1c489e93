"""Checks that pytest can't make from inside: a power cut, and rules of the whole machine.

Each says what holds as it goes; the first thing that does not is an AssertionError.
"""

from __future__ import annotations

import json
from typing import Any

from .machine import Machine, Result
from .scenarios import Holds, Lab

USERS = ("root", "delegated", "tester")
# On the root disk, unlike the clone's.
STATE = {"AGENTKERNEL_STATE_DIR": "/var/tmp/state-{user}"}
RUNNING_FILES = ("s", "process", "runtime")
# Whatever of sandboxes the machine has: processes, groups, ids, directories. One JSON object.
LEFTOVERS = """
import glob, json, os, sys
state = sys.argv[1]
def names(path): return sorted(os.listdir(path)) if os.path.isdir(path) else []
def command(pid):
    try: return open(f'/proc/{pid}/cmdline').read().split(chr(0))
    except OSError: return ['']
mine = os.getuid()
def is_ours(group): return os.path.basename(os.path.dirname(group)).startswith('agentkernel')
agents = [p for p in filter(str.isdigit, os.listdir('/proc')) if 'agentd' in command(p)[0]]
groups = [path for path, _, _ in os.walk('/sys/fs/cgroup') if is_ours(path)]
slots = glob.glob('/var/lib/agentkernel/id-ranges/[0-9]*') if mine == 0 else []
ranges = [s for s in slots if open(s).read().startswith(state)]
print(json.dumps({'processes': agents, 'groups': groups, 'ranges': ranges,
    'runs': names(state + '/runs'),
    'sandboxes': {n: names(f'{state}/sandboxes/{n}') for n in names(state + '/sandboxes')}}))
"""


class User:
    """One user of the machine and the state directory that is theirs."""

    def __init__(self, machine: Machine, name: str) -> None:
        self.machine = machine
        self.name = name
        self.state = STATE["AGENTKERNEL_STATE_DIR"].format(user=name)

    def run(self, *argv: str) -> Result:
        return self.machine.run(
            list(argv), user=self.name, env={"AGENTKERNEL_STATE_DIR": self.state}, timeout=300
        )

    def agentkernel(self, *arguments: str) -> str:
        done = self.run("python3", "-m", "agentkernel", *arguments)
        assert done.status == 0, f"{self.name}: {' '.join(arguments)}: {_words(done)}"
        return done.stdout.decode()

    def json(self, *arguments: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.agentkernel(*arguments))
        return answer

    def states(self) -> dict[str, str]:
        found = self.json("sandbox", "list", "--json")["sandboxes"]
        return {sandbox["name"]: sandbox["state"] for sandbox in found}

    def leftovers(self) -> dict[str, Any]:
        done = self.run("python3", "-c", LEFTOVERS, self.state)
        assert done.status == 0, _words(done)
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


def reboot(lab: Lab, holds: Holds) -> dict[str, str]:
    """Kept sandboxes, a job and a run; the power goes; the same disk again."""
    disk = lab.new_disk()
    jobs: dict[str, str] = {}
    with lab.machine(disk) as machine:
        first = machine.about["boot"]
        for name in USERS:
            jobs[name] = _furnish(User(machine, name))
        machine.cut_power()
    with lab.machine(disk) as machine:
        assert machine.about["boot"] != first, "the machine was not booted again"
        for name in USERS:
            _look_after_the_cut(User(machine, name), jobs[name], holds)
        return machine.about


def _furnish(user: User) -> str:
    """Returns the id of a job that runs."""
    for name in ("runs", "stopped"):
        user.agentkernel("sandbox", "create", name)
        user.agentkernel("exec", name, "--", "sh", "-c", f"echo {name} > /root/f; rm /usr/bin/yes")
    user.agentkernel("sandbox", "stop", "stopped")
    job: str = user.json("job", "start", "--json", "runs", "--", "sleep", "1000")["id"]
    # A run whose owner is cut off with everything else; its output says when it is there.
    script = "setsid python3 -m agentkernel run -q -- sh -c 'echo up; sleep 1000' >$HOME/up 2>&1 & "
    script += "for i in $(seq 600); do grep -q up $HOME/up && exit 0; sleep 0.1; done; exit 1"
    done = user.run("sh", "-c", script)
    assert done.status == 0, f"{user.name}: the run never started: {_words(done)}"
    before = user.leftovers()
    # The control of what is looked for afterwards: now it is all there.
    assert before["processes"] and len(before["runs"]) == 1, before
    assert user.name != "root" or (before["groups"] and before["ranges"]), before
    # What the state promises of a power cut is all but the last second; files are not its to sync.
    assert user.run("sh", "-c", "sleep 1.5; sync").status == 0
    return job


def _look_after_the_cut(user: User, job: str, holds: Holds) -> None:
    found = user.states()
    assert found == {"runs": "stopped", "stopped": "stopped"}, f"{user.name}: {found}"
    holds(f"{user.name}: both kept sandboxes are there and stopped")
    state = user.json("job", "info", "--json", job)["state"]
    assert state == "lost", f"{user.name}: the job is {state}"
    holds(f"{user.name}: the job that ran is lost")
    left = user.leftovers()
    ours = {key: left[key] for key in ("processes", "groups", "ranges", "runs")}
    assert not any(ours.values()), f"{user.name}: left over: {ours}"
    files = {name for names in left["sandboxes"].values() for name in names}
    assert not files & set(RUNNING_FILES), f"{user.name}: as if it ran: {left['sandboxes']}"
    holds(f"{user.name}: no process, control group, id range or run is left over")
    user.agentkernel("sandbox", "start", "runs", "stopped")
    for name in ("runs", "stopped"):
        text = user.agentkernel("exec", name, "--", "sh", "-c", "cat /root/f; ls /usr/bin/yes; :")
        assert text == f"{name}\n", f"{user.name}: {name} holds {text!r}"
    holds(f"{user.name}: both start again with their files")
    user.agentkernel("sandbox", "remove", "--force", "runs", "stopped")
    user.agentkernel("daemon", "stop")
    left = user.leftovers()
    assert not any(left.values()), f"{user.name}: left over after removal: {left}"
    holds(f"{user.name}: nothing is left after removing them")


MEMORY_BOMB = ("python3", "-c", "b'x' * (300 << 20)")
# What the control groups of the sandbox whose id is $1 say.
GROUP = """
set -eu
group=$(find /sys/fs/cgroup -type d -name "*$1*" -exec test -f {}/memory.max \\; -print | head -n 1)
cd "$group"
for name in memory.max memory.swap.max pids.max cpu.max; do echo "$name $(cat $name)"; done
"""


def systemd(lab: Lab, holds: Holds) -> dict[str, str]:
    """systemd owns the hierarchy too: what it does must not undo a sandbox's limits."""
    with lab.machine() as machine:
        root = User(machine, "root")
        limits = ("--memory", "100M", "--cpus", "0.5", "--pids", "50")
        id = root.json("sandbox", "create", "--json", "limited", *limits)["id"]
        wanted = [
            "memory.max 104857600", "memory.swap.max 0", "pids.max 50", "cpu.max 50000 100000",
        ]  # fmt: skip
        for command, what in (
            ("true", "the limits are in the sandbox's group after its maker's session ended"),
            ("systemctl daemon-reload", "and after systemctl daemon-reload"),
            (
                "systemd-run --wait -q -p CPUQuota=10% -p MemoryMax=50M -p TasksMax=9 true",
                "and after a service with limits came and went",
            ),
            ("systemctl daemon-reexec", "and after systemctl daemon-reexec"),
        ):
            done = root.run("sh", "-c", command)
            assert done.status == 0, _words(done)
            found = root.run("sh", "-c", GROUP, "sh", id)
            assert found.stdout.decode().splitlines() == wanted, _words(found)
            assert root.agentkernel("exec", "limited", "--", "echo", "here") == "here\n"
            holds(what)
        done = root.run("python3", "-m", "agentkernel", "exec", "limited", "--", *MEMORY_BOMB)
        assert done.status == 137 and b"memory" in done.stderr, _words(done)
        holds("a command that wants more memory is ended for it, and the outcome says so")
        root.agentkernel("sandbox", "remove", "--force", "limited")
        root.agentkernel("daemon", "stop")
        left = root.leftovers()
        assert not any(left.values()), f"left over: {left}"
        holds("nothing is left after removing it")
        return machine.about


def forbidden(lab: Lab, holds: Holds) -> dict[str, str]:
    """Rules of the machine that keep a normal user from making namespaces, for real."""
    with lab.machine() as machine:
        tester, root = User(machine, "tester"), User(machine, "root")
        for name, value, other in (
            ("kernel.unprivileged_userns_clone", "0", "1"),
            ("user.max_user_namespaces", "0", "10000"),
            ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
        ):
            if root.run("sysctl", "-n", name).status != 0:
                holds(f"{name}={value}", skipped="this kernel has no such sysctl")
                continue
            _sysctl(root, name, other)
            tester.agentkernel("run", "-q", "--", "true")
            _sysctl(root, name, value)
            error = _error(tester)
            assert error["code"] == "host_forbids" and name in error["message"], error
            assert f"sysctl -w {name}=" in error["hint"], error
            holds(f"{name}={value}: refused with that cause, and its hint")
            command = error["hint"].partition("sudo ")[2].split()
            assert root.run(*command).status == 0, command
            tester.agentkernel("run", "-q", "--", "true")
            holds(f"`{' '.join(command)}`, which the hint names, mends it")
        return machine.about


def _sysctl(root: User, name: str, value: str) -> None:
    done = root.run("sysctl", "-q", "-w", f"{name}={value}")
    assert done.status == 0, _words(done)


def _error(user: User) -> dict[str, str]:
    done = user.run("python3", "-m", "agentkernel", "run", "--json", "--", "true")
    assert done.status == 125, f"it was not refused: {_words(done)}"
    error: dict[str, str] = json.loads(done.stdout)["error"]
    return error


def _words(done: Result) -> str:
    return f"status {done.status}: {(done.stdout + done.stderr).decode(errors='replace')[-600:]}"
