"""A project of the host at /workspace: what is seen of it, and what becomes of it."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from agentkernel.backends.base import Sandbox
from agentkernel.backends.local import idmaps
from agentkernel.backends.native.backend import NativeBackend
from agentkernel.errors import InvalidInputError
from agentkernel.guest.processes import ProcessOptions
from agentkernel.kernel.commands import ExecResult, run_command
from agentkernel.kernel.runs import Runs
from agentkernel.kernel.spec import SandboxSpec, expand

OWNER = 1001
"""Of the project, where we are root and can choose; nobody whom a sandbox knows."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    (path / "src").mkdir(parents=True)
    (path / "README").write_text("one\n")
    (path / "src" / "old.py").write_text("print(1)\n")
    (path / "src" / ".env").write_text("TOKEN=hidden\n")
    (path / ".npmrc").write_text("token=hidden\n")
    return path


def give_away(path: Path) -> None:
    """As root: the project is some developer's."""
    if os.getuid() == 0:
        for entry in (path, *path.rglob("*")):
            os.chown(entry, OWNER, OWNER, follow_symlinks=False)


def listing(path: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(entry.relative_to(path)): (
            entry.lstat().st_mode,
            entry.lstat().st_uid,
            entry.read_bytes() if entry.is_file() else b"",
        )
        for entry in sorted(path.rglob("*"))
    }


async def shell(sandbox: Sandbox, script: str) -> str:
    """What a script says, in the sandbox's own working directory; it has to succeed."""
    result = await said(sandbox, script)
    assert result.status.exit_code == 0, result
    return result.stdout.decode()


async def said(sandbox: Sandbox, script: str) -> ExecResult:
    options = ProcessOptions(env=dict(sandbox.environment))
    return await run_command(sandbox, ["sh", "-c", script], options)


async def test_changes_stay_inside(runs: Runs, project: Path) -> None:
    give_away(project)
    before = listing(project)
    sandbox = await runs.create(SandboxSpec(workspace=str(project)))
    owners = await shell(sandbox, "pwd; stat -c %u . README src src/old.py | sort -u; id -u")
    assert owners.split() == ["/workspace", "0", "0"]
    await shell(
        sandbox,
        "echo two >> README; rm src/old.py; echo new > src/new.py; mkdir -p a/b; chmod 700 src; "
        "mv README LIESMICH; rm -r src; mkdir src; echo x > src/x",
    )
    assert await shell(sandbox, "cat LIESMICH; ls src") == "one\ntwo\nx\n"
    assert listing(project) == before
    assert any(line.what == "workspace" for line in sandbox.effective)


async def test_changes_of_a_kept_one_outlive_its_processes(state_dir: Path, project: Path) -> None:
    blueprint = expand(SandboxSpec(workspace=str(project), ephemeral=False), owned=False)
    backend = NativeBackend(state_dir)
    sandbox = await backend.create(blueprint)
    try:
        await shell(sandbox, "echo two >> README; rm src/old.py")
        await sandbox.stop()
        sandbox = await backend.start(blueprint)
        assert await shell(sandbox, "cat README; ls -A src") == "one\ntwo\n"
    finally:
        await sandbox.destroy()
    assert not (state_dir / "sandboxes" / blueprint.id).exists()
    assert (project / "README").read_text() == "one\n"


async def test_read_only(runs: Runs, project: Path) -> None:
    sandbox = await runs.create(SandboxSpec(workspace=f"{project}:ro"))
    assert await shell(sandbox, "cat README") == "one\n"
    for script in ("echo x > README", "rm README", "touch new", "chmod 777 ."):
        result = await said(sandbox, script)
        assert result.status.exit_code and b"Read-only file system" in result.stderr, script
    assert await shell(sandbox, "find . -name .env -o -name .npmrc") == ""


async def test_the_directory_itself(runs: Runs, project: Path) -> None:
    give_away(project)
    owner = OWNER if os.getuid() == 0 else os.getuid()
    sandbox = await runs.create(SandboxSpec(workspace=f"{project}:rw"))
    await shell(sandbox, "echo two >> README; echo new > new; rm src/old.py")
    assert (project / "README").read_text() == "one\ntwo\n"
    assert (project / "new").stat().st_uid == owner
    assert not (project / "src" / "old.py").exists()
    assert await shell(sandbox, "cat .npmrc src/.env") == ""
    assert (project / ".npmrc").read_text() == "token=hidden\n"
    line = next(line for line in sandbox.effective if line.what == "workspace")
    assert "a hole" in line.enforced_by


async def test_its_user_can_edit_too(runs: Runs, project: Path) -> None:
    if not idmaps.is_host_root() and idmaps.find_subids():
        pytest.skip("with subuids the project is root's inside, which is said at the create")
    give_away(project)
    sandbox = await runs.create(SandboxSpec(workspace=str(project), user="user"))
    script = "echo two >> README; touch new src/new; stat -c %u . README new | sort -u"
    assert await shell(sandbox, script) == "1000\n"


async def test_files_like_secrets(runs: Runs, project: Path) -> None:
    find = "find . -name .env -o -name .npmrc | sort"
    hidden = await runs.create(SandboxSpec(workspace=str(project)))
    assert await shell(hidden, find) == ""
    assert await shell(hidden, "ls src; echo own > src/.env; cat src/.env") == "old.py\nown\n"
    shown = await runs.create(SandboxSpec(workspace=str(project), workspace_secrets=True))
    assert await shell(shown, find) == "./.npmrc\n./src/.env\n"


CONNECT = """
import os, socket, sys
try:
    socket.socket(socket.AF_UNIX).connect("door")
    print("connected")
except OSError as exc:
    print(exc.strerror)
fifo = os.open("fifo", os.O_RDONLY | os.O_NONBLOCK)
try:
    print(os.read(fifo, 10).decode() or "nothing")
except BlockingIOError:
    print("nothing yet")
"""


async def test_sockets_and_fifos_of_the_host(runs: Runs, project: Path) -> None:
    os.mkfifo(project / "fifo")
    fifo = os.open(project / "fifo", os.O_RDWR)
    os.write(fifo, b"from host")
    door = socket.socket(socket.AF_UNIX)
    place = os.open(project, os.O_PATH)
    try:
        door.bind(f"/proc/self/fd/{place}/door")
        door.listen()
        for mode in ("cow", "ro"):
            sandbox = await runs.create(SandboxSpec(workspace=f"{project}:{mode}"))
            words = (await shell(sandbox, f"python3 -c '{CONNECT}'")).splitlines()
            assert words == ["Connection refused", "nothing"], mode
        # The control: through the directory itself both are reached, which `effective` says.
        sandbox = await runs.create(SandboxSpec(workspace=f"{project}:rw"))
        assert (await shell(sandbox, f"python3 -c '{CONNECT}'")).splitlines() == [
            "connected",
            "from host",
        ]
    finally:
        os.close(place)
        os.close(fifo)
        door.close()


async def test_links_out_lead_nowhere(runs: Runs, project: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("outside\n")
    (project / "up").symlink_to("../outside/file")
    (project / "absolute").symlink_to(tmp_path / "outside")
    assert (project / "up").read_text() == (project / "absolute" / "file").read_text()
    for mode in ("cow", "ro", "rw"):
        sandbox = await runs.create(SandboxSpec(workspace=f"{project}:{mode}"))
        result = await said(sandbox, "cat up; cat absolute/file; ls ..; true")
        assert b"outside" not in result.stdout, mode


async def test_a_project_around_the_state_directory(runs: Runs) -> None:
    with pytest.raises(InvalidInputError, match="state directory"):
        await runs.create(SandboxSpec(workspace=str(runs.state_dir)))
    with pytest.raises(InvalidInputError, match="all of this machine"):
        await runs.create(SandboxSpec(workspace="/:ro"))


async def test_git_in_a_worktree_can_read(runs: Runs, tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", *words],
            cwd=tmp_path, check=True, capture_output=True, timeout=20,
            env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"},
        )  # fmt: skip

    git("init", "-q", "main")
    git("-C", "main", "commit", "-q", "--allow-empty", "-m", "first")
    git("-C", "main", "worktree", "add", "-q", str(tmp_path / "tree"))
    give_away(tmp_path / "main")
    give_away(tmp_path / "tree")
    sandbox = await runs.create(SandboxSpec(workspace=str(tmp_path / "tree")))
    found = await said(sandbox, "git log --format=%s; git commit --allow-empty -m second")
    assert found.stdout.decode().startswith("first\n") and found.status.exit_code != 0, found
    assert b"ead-only" in found.stderr


@pytest.mark.parametrize("engine", ["runc", "crun", "gvisor"])
async def test_other_engines(
    runs: Runs, project: Path, need_engine: Callable[[str], Awaitable[None]], engine: str
) -> None:
    await need_engine(engine)
    give_away(project)
    before = listing(project)
    sandbox = await runs.create(SandboxSpec(workspace=str(project), backend=engine))
    script = "pwd; stat -c %u . README; echo two >> README; cat README; ls -A . src"
    words = (await shell(sandbox, script)).split()
    assert words[:3] == ["/workspace", "0", "0"] and "two" in words
    assert ".env" not in words and ".npmrc" not in words
    assert listing(project) == before
    sandbox = await runs.create(SandboxSpec(workspace=f"{project}:ro", backend=engine))
    assert (await said(sandbox, "echo x > README")).status.exit_code != 0
    assert await shell(sandbox, "cat README") == "one\n"


async def test_a_secret_that_came_since_the_last_start(runs: Runs, project: Path) -> None:
    """A sandbox is launched with what was found last; one that was wrong is made anew before
    anything runs in it."""
    for path in (project, project / "src"):
        os.utime(path, (1, 1))
    first = await runs.create(SandboxSpec(workspace=str(project)))
    assert await shell(first, "ls -A . src") == ".:\nREADME\nsrc\n\nsrc:\nold.py\n"
    (project / "src" / ".env.production").write_text("TOKEN=hidden\n")
    (project / ".npmrc").unlink()
    second = await runs.create(SandboxSpec(workspace=str(project)))
    assert await shell(second, "ls -A . src") == ".:\nREADME\nsrc\n\nsrc:\nold.py\n"
    lines = {line.what: line.value for line in second.effective}
    assert lines["hidden in the workspace"] == "2 like secrets"
    await shell(first, "true")
