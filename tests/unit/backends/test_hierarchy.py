"""Where groups are made: v1, v2 as root, in a container, in a user's scope. On made-up trees."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from agentkernel.backends.local import delegation, hierarchy
from agentkernel.backends.local.cgroups import SandboxGroups
from agentkernel.backends.local.hierarchy import Hierarchy
from agentkernel.security.profiles import security_profile

MANAGER = "user.slice/user-1000.slice/user@1000.service"
SCOPE = f"{MANAGER}/app.slice/agentkernel-7-ab.scope"
ALL = "cpu memory pids"


def group(path: Path, controllers: str = ALL, procs: str = "", subtree: str = "") -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "cgroup.controllers").write_text(controllers)
    (path / "cgroup.subtree_control").write_text(subtree)
    (path / "cgroup.procs").write_text(procs)
    return path


class FakeKernel:
    """v2's rule: a group with processes hands no controllers down (the machine's root excepted)."""

    def __init__(self, root: Path, is_writable: str) -> None:
        self.root, self.writable = root, root / is_writable
        self.exempt: Path | None = None

    def enable(self, at: Path, controllers: list[str]) -> None:
        if at != self.exempt and (at / "cgroup.procs").exists():
            procs = (at / "cgroup.procs").read_text().split()
            if procs:
                raise OSError(errno.EBUSY, "Device or resource busy", str(at))
        (at / "cgroup.subtree_control").write_text(" ".join(controllers))

    def move(self, pid: str, to: Path) -> None:
        source = to.parent / "cgroup.procs"
        source.write_text("\n".join(p for p in source.read_text().split() if p != pid))
        with open(to / "cgroup.procs", "a") as file:
            file.write(f"{pid}\n")

    def is_writable(self, at: Path) -> bool:
        return (at / "cgroup.procs").exists() and at.is_relative_to(self.writable)


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeKernel:
    fake = FakeKernel(tmp_path, MANAGER)
    monkeypatch.setattr(hierarchy, "_enable", fake.enable)
    monkeypatch.setattr(hierarchy, "_move", fake.move)
    monkeypatch.setattr(hierarchy, "is_writable", fake.is_writable)
    return fake


def test_root_makes_them_at_the_top(tmp_path: Path, kernel: FakeKernel) -> None:
    kernel.writable = kernel.exempt = group(tmp_path, procs="1\n2")
    found = Hierarchy(tmp_path, "/system.slice/ssh.service")
    assert set(found.parents.values()) == {tmp_path / "agentkernel"}
    assert (tmp_path / "cgroup.procs").read_text() == "1\n2", "nobody is moved"


def test_a_container_moves_its_own_processes_aside(tmp_path: Path, kernel: FakeKernel) -> None:
    kernel.writable = group(tmp_path, procs="1\n17")
    found = Hierarchy(tmp_path, "/")
    assert set(found.parents) == {"memory", "pids", "cpu"}
    assert (tmp_path / "cgroup.procs").read_text() == ""
    assert (tmp_path / "host/cgroup.procs").read_text().split() == ["1", "17"]
    assert set((tmp_path / "cgroup.subtree_control").read_text().split()) == set(ALL.split())


def test_a_container_that_may_not_write(tmp_path: Path, kernel: FakeKernel) -> None:
    group(tmp_path)
    found = Hierarchy(tmp_path, "/")
    reason, remedy = found.why_not("memory")
    assert not found.parents and "read-only" in reason and "--privileged" in remedy


def test_a_login_session_is_not_ours(tmp_path: Path, kernel: FakeKernel) -> None:
    group(tmp_path)
    own = "/user.slice/user-1000.slice/session-2.scope"
    group(tmp_path / own[1:], procs="44")
    found = Hierarchy(tmp_path, own)
    reason, remedy = found.why_not("memory")
    assert not found.parents
    assert "session" in reason and "systemctl --user" in remedy


def test_a_terminal_of_the_desktop_is_not_ours(tmp_path: Path, kernel: FakeKernel) -> None:
    """It can be written to, but others are in it: they are not ours to move."""
    group(tmp_path)
    group(tmp_path / MANAGER / "app.slice/vte.scope", procs=f"{os.getpid()}\n44")
    assert not Hierarchy(tmp_path, f"/{MANAGER}/app.slice/vte.scope").parents
    group(tmp_path / MANAGER / "app.slice/vte.scope", procs=f"{os.getpid()}\n")
    assert Hierarchy(tmp_path, f"/{MANAGER}/app.slice/vte.scope").parents, "control: alone in it"


def test_a_scope_of_ours_is_divided(tmp_path: Path, kernel: FakeKernel) -> None:
    group(tmp_path)
    scope = group(tmp_path / SCOPE, procs="99")
    found = Hierarchy(tmp_path, f"/{SCOPE}")
    assert set(found.parents.values()) == {scope / "agentkernel"}
    assert (scope / "host/cgroup.procs").read_text().split() == ["99"]
    assert set((scope / "agentkernel/cgroup.subtree_control").read_text().split()) == set(
        ALL.split()
    )
    # The daemon is in the leaf from now on, and finds the same place.
    assert Hierarchy(tmp_path, f"/{SCOPE}/host").parents == found.parents


def test_what_is_not_delegated_is_said(tmp_path: Path, kernel: FakeKernel) -> None:
    group(tmp_path)
    group(tmp_path / SCOPE, controllers="memory pids")
    found = Hierarchy(tmp_path, f"/{SCOPE}")
    assert found.why_not("memory") == ("", "")
    reason, remedy = found.why_not("cpu")
    assert "not delegated" in reason and "Delegate=cpu" in remedy


def test_what_fails_in_the_end_is_a_reason(tmp_path: Path, kernel: FakeKernel) -> None:
    group(tmp_path)
    group(tmp_path / SCOPE)
    (tmp_path / SCOPE / "agentkernel").write_text("in the way")
    found = Hierarchy(tmp_path, f"/{SCOPE}")
    assert not found.parents
    assert "File exists" in found.why_not("memory")[0]


def test_groups_of_an_earlier_scope_are_found(tmp_path: Path, kernel: FakeKernel) -> None:
    group(tmp_path)
    group(tmp_path / SCOPE)
    old = group(tmp_path / MANAGER / "app.slice/agentkernel-1-cd.scope/agentkernel/abc")
    (old / "memory.max").write_text(str(64 << 20))
    (old / "memory.events").write_text("oom_kill 3\n")
    found = Hierarchy(tmp_path, f"/{SCOPE}")
    groups = SandboxGroups(found, "abc", {"memory": str(old)})
    groups.find()
    assert groups.enforced == {"memory"} and not groups.was_out_of_memory()


def test_usage_on_v2(tmp_path: Path, kernel: FakeKernel) -> None:
    group(tmp_path)
    scope = group(tmp_path / SCOPE)
    groups = SandboxGroups(Hierarchy(tmp_path, f"/{SCOPE}"), "abc")
    groups.create(security_profile("restrictive").limits)
    own = scope / "agentkernel/abc"
    for name, text in {
        "cpu.stat": "usage_usec 2500000\nuser_usec 1\nnr_throttled 4\nthrottled_usec 500000\n",
        "memory.current": "4096\n",
        "memory.peak": "8192\n",
        "pids.current": "3\n",
        "memory.events": "low 0\nmax 9\noom 2\noom_kill 2\n",
        "pids.events": "max 5\n",
    }.items():
        (own / name).write_text(text)
    used = groups.usage()
    assert used is not None and used.counted_by == "control group"
    assert (used.cpu_seconds, used.throttled_seconds) == (2.5, 0.5)
    assert (used.memory_bytes, used.peak_memory_bytes, used.processes) == (4096, 8192, 3)
    assert groups.hits() == {"memory": 2, "pids": 5}


def test_usage_on_v1_and_what_is_not_there(tmp_path: Path) -> None:
    for name in ("memory", "pids", "cpu", "cpuacct"):
        group(tmp_path / name)
        (tmp_path / name / "cgroup.controllers").unlink()
    groups = SandboxGroups(Hierarchy(tmp_path), "abc")
    groups.create(security_profile("restrictive").limits)
    (tmp_path / "cpuacct/agentkernel/abc/cpuacct.usage").write_text("1500000000\n")
    (tmp_path / "cpu/agentkernel/abc/cpu.stat").write_text(
        "nr_throttled 1\nthrottled_time 250000000\n"
    )
    (tmp_path / "memory/agentkernel/abc/memory.max_usage_in_bytes").write_text("4096\n")
    used = groups.usage()
    assert used is not None
    assert (used.cpu_seconds, used.throttled_seconds, used.peak_memory_bytes) == (1.5, 0.25, 4096)
    assert used.memory_bytes is used.processes is None, "nobody says it"
    assert SandboxGroups(Hierarchy(tmp_path / "none"), "abc").usage() is None


def test_the_words_for_systemd() -> None:
    words = delegation.scope_words("/bin/systemd-run", ["python", "-m", "x"])
    assert words[:3] == ["/bin/systemd-run", "--user", "--scope"]
    assert "--property=Delegate=yes" in words and words[-4:] == ["--", "python", "-m", "x"]
    unit = next(word for word in words if word.startswith("--unit=")).removeprefix("--unit=")
    assert hierarchy.is_ours(unit)


def test_without_the_users_systemd_nothing_is_replaced(
    tmp_path: Path, kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    group(tmp_path)
    group(tmp_path / "session-1.scope")
    monkeypatch.setattr(delegation, "Hierarchy", lambda: Hierarchy(tmp_path, "/session-1.scope"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "no-runtime"))
    replaced: list[object] = []
    monkeypatch.setattr(os, "execve", lambda *words: replaced.append(words))
    delegation.enter_own_scope(["serve"])
    assert replaced == []

    (tmp_path / "no-runtime/systemd").mkdir(parents=True)
    (tmp_path / "no-runtime/systemd/private").touch()
    monkeypatch.setattr("shutil.which", lambda _name: "/bin/true")
    delegation.enter_own_scope(["serve"])
    assert len(replaced) == 1, "control: with it, and a systemd-run that works"
    monkeypatch.setenv("AGENTKERNEL_SCOPE", "1")
    delegation.enter_own_scope(["serve"])
    assert len(replaced) == 1 and "AGENTKERNEL_SCOPE" not in os.environ
