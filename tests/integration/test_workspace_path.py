"""A project of the host at another path than /workspace."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from agentkernel.errors import InvalidInputError, LaunchError
from agentkernel.guest.processes import ProcessOptions
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.workspaces.model import file_clock_ns

OWNER = 1001


@pytest.fixture(scope="module")
async def kernel(
    state_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Kernel]:
    """A state of these tests' own, which shares the images."""
    path = tmp_path_factory.mktemp("paths")
    (state_dir / "images").mkdir(exist_ok=True)
    (path / "images").symlink_to(state_dir / "images")
    async with Kernel(path) as kernel:
        yield kernel


@pytest.fixture(autouse=True)
async def nothing_stays(kernel: Kernel) -> AsyncIterator[None]:
    yield
    for record in (await kernel.list()).records:
        await kernel.remove(record.id)
    for info in await kernel.volumes.list():
        await kernel.volumes.remove(info.id)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    (path / "src").mkdir(parents=True)
    (path / "README").write_text("one\n")
    (path / "src" / ".env").write_text("TOKEN=hidden\n")
    if os.getuid() == 0:
        for entry in (path, *path.rglob("*")):
            os.chown(entry, OWNER, OWNER)
    while file_clock_ns() <= (path / "src" / ".env").stat().st_ctime_ns:
        time.sleep(0.001)  # older than what comes, by the clock of files, which ticks seldom
    return path


def git(where: Path, *words: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", *words],
        cwd=where, check=True, capture_output=True, timeout=20,
        env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"},
    )  # fmt: skip


async def shell(kernel: Kernel, id: str, script: str) -> str:
    result = await kernel.run(id, ["sh", "-ec", script], ProcessOptions())
    assert result.status.exit_code == 0, result
    return result.stdout.decode()


@pytest.mark.parametrize("engine", ["native", "runc", "crun", "gvisor"])
async def test_at_the_same_path(
    kernel: Kernel, project: Path, engine: str, need_engine: Callable[[str], Awaitable[None]]
) -> None:
    """In /tmp, which on other engines than ours is a file system of the runtime's."""
    await need_engine(engine)
    spec = SandboxSpec(workspace=str(project), workspace_path="same", backend=engine)
    id = (await kernel.create(spec)).id
    script = "pwd; stat -c %u . README; ls -A . src; test ! -e /workspace; echo two >> README"
    found = (await shell(kernel, id, script)).split()
    assert found == [str(project), "0", "0", ".:", "README", "src", "src:"]
    # Those above it are root's, as directories are, and what else is there outside is not.
    owner, mode = (await shell(kernel, id, f"stat -c '%u %a' {project.parent}")).split()
    assert owner == "0" and int(mode, 8) & 0o777 == 0o755
    assert await shell(kernel, id, f"ls {project.parent}") == "project\n"
    assert (project / "README").read_text() == "one\n"
    changed = await kernel.workspaces.diff(id)
    assert [change.path for change in changed.changes] == ["README"]
    await kernel.workspaces.apply(id)
    assert (project / "README").read_text() == "one\ntwo\n"


@pytest.mark.parametrize("path", ["/home/dev/shop", "/usr/src/app", "/srv", "/tmp/x/y/"])
async def test_at_a_path_of_choice(kernel: Kernel, project: Path, path: str) -> None:
    for mode, script in (
        ("cow", "echo two >> README; cat README"),
        ("ro", "! touch x; cat README"),
    ):
        spec = SandboxSpec(workspace=f"{project}:{mode}", workspace_path=path)
        known = await kernel.create(spec)
        found = await shell(kernel, known.id, f"pwd; {script} 2>/dev/null; ls -A src")
        wanted = "one\ntwo\n" if mode == "cow" else "one\n"
        assert found == f"{path.rstrip('/')}\n{wanted}"
        lines = {line.what: line.value for line in (await kernel.known(known.id)).effective}
        assert lines["workspace"].endswith(f", at {path.rstrip('/')}")
        await kernel.remove(known.id)


async def test_the_directory_itself_there(kernel: Kernel, project: Path) -> None:
    spec = SandboxSpec(workspace=f"{project}:rw", workspace_path="/home/dev/x")
    id = (await kernel.create(spec)).id
    assert await shell(kernel, id, "echo two > README; cat src/.env; pwd") == "/home/dev/x\n"
    assert (project / "README").read_text() == "two\n"
    assert (project / "src" / ".env").read_text() == "TOKEN=hidden\n"


async def test_of_a_kept_one(kernel: Kernel, project: Path) -> None:
    """It is where it was after a stop and a start, and a guest who puts a link on the way to it
    keeps his own sandbox from starting, and no more."""
    spec = SandboxSpec(
        workspace=str(project), workspace_path="/home/dev/a/shop", ephemeral=False, image="host"
    )
    id = (await kernel.create(spec)).id
    await shell(kernel, id, "echo two >> README")
    await kernel.stop(id)
    await kernel.start(id)
    assert await shell(kernel, id, "pwd; cat README") == "/home/dev/a/shop\none\ntwo\n"
    changed = await kernel.workspaces.diff(id)
    assert [change.path for change in changed.changes] == ["README"]
    await shell(kernel, id, "cd /; mv /home/dev/a /home/dev/b; ln -s /etc /home/dev/a")
    await kernel.stop(id)
    with pytest.raises(LaunchError, match="link") as caught:
        await kernel.start(id)
    assert "/workspace" in (caught.value.hint or "")
    assert [change.path for change in (await kernel.workspaces.diff(id)).changes] == ["README"]


@pytest.mark.parametrize("user", ["root", "1000"])
async def test_a_link_of_the_image_on_the_way(
    kernel: Kernel, project: Path, tmp_path: Path, user: str
) -> None:
    """The mount follows no link: not out of the image, nor elsewhere in it."""
    outside = tmp_path / "outside"
    (outside / "dev").mkdir(parents=True)
    image = tmp_path / "image"
    for name in ("proc", "dev", "sys", "tmp", "run", "etc", "mnt", "bin"):
        (image / name).mkdir(parents=True)
    (image / "bin" / "sh").write_text("no program")
    (image / "home").symlink_to(outside)
    (image / "inside").symlink_to("etc")
    # The control: who follows it is outside.
    assert (image / "home" / "dev").samefile(outside / "dev")

    def spec(path: str | None) -> SandboxSpec:
        return SandboxSpec(
            image=str(image), workspace=f"{project}:ro", user=user, workspace_path=path
        )

    for path in ("/home/dev", "/home/new/x", "/inside/dev"):
        with pytest.raises(LaunchError, match="link"):
            await kernel.create(spec(path))
    assert os.listdir(outside) == ["dev"] and os.listdir(image / "etc") == []
    # The control: without a link there is no refusal.
    for place in (None, "/mnt/home/dev"):
        known = await kernel.create(spec(place))
        async with kernel.files(known.id) as files:
            assert await files.read(f"{place or '/workspace'}/README") == b"one\n"


async def test_a_branch_of_its_own_there(kernel: Kernel, tmp_path: Path) -> None:
    """Its checkout lies over the repository's own path, and git still finds the objects."""
    project = tmp_path / "repo"
    project.mkdir()

    git(project, "init", "-q", "-b", "main", ".")
    git(project, "commit", "-q", "--allow-empty", "-m", "first")
    git(project, "branch", "feat")
    (project / "README").write_text("one\n")
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "second")
    for branch, commits, path in (
        ("feat", "1", "same"),
        ("main", "2", "same"),
        ("feat", "1", "/x"),
    ):
        spec = SandboxSpec(
            workspace=str(project), workspace_branch=branch, workspace_path=path, ephemeral=False
        )
        id = (await kernel.create(spec)).id
        found = await shell(
            kernel,
            id,
            "pwd; GIT_OPTIONAL_LOCKS=0 git status --short; git log --oneline | wc -l; echo x > new",
        )
        assert found.split() == [str(project) if path == "same" else path, commits]
        changed = await kernel.workspaces.diff(id)
        assert [change.path for change in changed.changes] == ["new"]
        await kernel.remove(id)


async def test_what_is_in_the_way(kernel: Kernel, project: Path) -> None:
    async def refused(words: str, path: str, *volumes: str) -> None:
        spec = SandboxSpec(workspace=str(project), workspace_path=path, volumes=list(volumes))
        with pytest.raises(InvalidInputError, match=words) as caught:
            await kernel.create(spec)
        assert caught.value.hint

    await refused("cover the workspace", "/data/x", "cache:/data")
    await refused("cover the workspace", "/data", "cache:/data")
    for path in ("/", "/etc/x", "/opt/agentkernel/claude", "/usr", "/tmp", "x/y", "/a/../b"):
        await refused("can't be at", path)
    assert await kernel.volumes.list() == [] and (await kernel.list()).records == []
    spec = SandboxSpec(workspace=str(project), workspace_path="/data", volumes=["cache:/data/v"])
    id = (await kernel.create(spec)).id
    assert await shell(kernel, id, "touch v/x; ls") == "README\nsrc\nv\n"


async def test_below_what_is_read_only(kernel: Kernel, tmp_path: Path) -> None:
    """A worktree's repository is shown at its own path, where nothing can be made."""
    main, tree = tmp_path / "main", tmp_path / "tree"
    main.mkdir()
    git(main, "init", "-q", ".")
    git(main, "commit", "-q", "--allow-empty", "-m", "first")
    git(main, "worktree", "add", "-q", str(tree))
    for path, why in (
        (f"{tmp_path}/main/.git/x", "is read-only inside"),
        (f"{tmp_path}/main", "it would cover"),
    ):
        with pytest.raises(InvalidInputError, match=why):
            await kernel.create(SandboxSpec(workspace=str(tree), workspace_path=path))
    id = (await kernel.create(SandboxSpec(workspace=str(tree), workspace_path="same"))).id
    assert await shell(kernel, id, "pwd; git log --format=%s") == f"{tree}\nfirst\n"
