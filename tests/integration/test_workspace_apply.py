"""A sandbox's changes, made in the host's directory: exactly those, and nothing else."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentkernel.backends.local import uppers
from agentkernel.errors import (
    ConflictError,
    InvalidInputError,
    ResourceExhaustedError,
    UnsupportedError,
)
from agentkernel.guest.processes import ProcessOptions
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.spec import SandboxSpec

NAME = "applied"
OWNER = 1001


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "outer" / "project"
    (path / "src").mkdir(parents=True)
    (path / "README").write_text("one\n")
    (path / "src" / "old.py").write_text("print(1)\n")
    (path / "src" / "moved.py").write_text("print('a longer one')\n")
    (path / "tool").write_text("#!/bin/sh\n")
    (path / "picture").write_bytes(bytes(range(256)))
    (path / "link").symlink_to("README")
    (path / "gone" / "deep").mkdir(parents=True)
    (path / "gone" / "deep" / "a").write_text("a\n")
    (path / "kept").mkdir()
    (path / "kept" / ".env").write_text("TOKEN=1\n")
    (path / "kept" / "b").write_text("b\n")
    (path.parent / "beside").write_text("beside\n")
    if os.getuid() == 0:
        for entry in (path, *path.rglob("*")):
            os.chown(entry, OWNER, OWNER, follow_symlinks=False)
    return path


KEPT = {"ephemeral": False}


@pytest.fixture
async def kernel(
    own_state: Path, project: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Kernel]:
    """With a sandbox `applied` over the project; kept, unless a test says otherwise."""
    async with Kernel(own_state) as kernel:
        more = getattr(request, "param", KEPT)
        if more.get("disk_bytes") and not more["ephemeral"] and uppers.no_image()[0]:
            pytest.skip(f"no disk of its own here: {uppers.no_image()[0]}")
        await kernel.create(SandboxSpec(workspace=str(project), **more), name=NAME)
        yield kernel
        await kernel.remove(NAME)


# Where the sandbox's own files are: a directory here, memory, a disk of its own.
PLACES = pytest.mark.parametrize(
    "kernel",
    [KEPT, {"ephemeral": True}, {"ephemeral": False, "disk_bytes": 64 << 20}],
    ids=["directory", "memory", "disk"],
    indirect=True,
)


async def shell(kernel: Kernel, script: str) -> None:
    result = await kernel.run(NAME, ["sh", "-ec", script], ProcessOptions())
    assert result.status.exit_code == 0, result


async def apply(kernel: Kernel, *paths: str, allow_risky: bool = False) -> dict[str, str]:
    """What became of each path."""
    done = await kernel.workspaces.apply(NAME, paths, allow_risky=allow_risky)
    assert done.complete == all(file.outcome == "applied" for file in done.files)
    return {file.path: file.outcome for file in done.files}


def listing(path: Path) -> dict[str, tuple[str, int, bytes]]:
    found = {}
    for entry in sorted(path.rglob("*")):
        mode = entry.lstat().st_mode
        content = b""
        if stat.S_ISLNK(mode):
            content = os.fsencode(os.readlink(entry))
        elif stat.S_ISREG(mode):
            content = entry.read_bytes()
        found[str(entry.relative_to(path))] = (stat.filemode(mode), entry.lstat().st_uid, content)
    return found


EVERYTHING = """
echo two >> README
rm src/old.py
mv src/moved.py src/elsewhere.py
chmod 751 tool
printf '\\000\\377' >> picture
ln -sfn src link
mkdir -p new/deep; printf 'no newline' > new/deep/file; chmod 700 new
rm -r gone; echo now a file > gone
"""


@PLACES
async def test_exactly_what_was_changed(kernel: Kernel, project: Path) -> None:
    before = listing(project.parent)
    await shell(kernel, EVERYTHING)
    assert listing(project.parent) == before
    outcomes = await apply(kernel)
    assert set(outcomes.values()) == {"applied"}, outcomes
    owner = OWNER if os.getuid() == 0 else os.getuid()
    top = "project/"
    for gone in ("src/old.py", "src/moved.py", "gone/deep/a", "gone/deep"):
        del before[top + gone]
    python = b"print('a longer one')\n"
    wanted = before | {
        top + "README": ("-rw-r--r--", owner, b"one\ntwo\n"),
        top + "src/elsewhere.py": ("-rw-r--r--", owner, python),
        top + "tool": ("-rwxr-x--x", owner, b"#!/bin/sh\n"),
        top + "picture": ("-rw-r--r--", owner, bytes(range(256)) + b"\x00\xff"),
        top + "link": ("lrwxrwxrwx", owner, b"src"),
        top + "new": ("drwx------", owner, b""),
        top + "new/deep": ("drwxr-xr-x", owner, b""),
        top + "new/deep/file": ("-rw-r--r--", owner, b"no newline"),
        top + "gone": ("-rw-r--r--", owner, b"now a file\n"),
    }
    assert listing(project.parent) == wanted
    # Again there is nothing to do; and what is changed later is no conflict with ourselves.
    assert await apply(kernel) == {}
    await shell(kernel, "echo three >> README")
    assert await apply(kernel) == {"README": "applied"}
    assert (project / "README").read_text() == "one\ntwo\nthree\n"


async def test_only_some_paths(kernel: Kernel, project: Path) -> None:
    await shell(kernel, "echo two >> README; echo x > src/x; echo y > src2")
    assert await apply(kernel, "src/") == {"src/x": "applied"}
    assert (project / "README").read_text() == "one\n" and not (project / "src2").exists()
    for path in ("missing", "../beside", "/etc"):
        with pytest.raises(InvalidInputError, match="nothing at"):
            await apply(kernel, path)


async def test_both_sides_changed_one_file(kernel: Kernel, project: Path) -> None:
    await shell(kernel, "echo inside >> README; rm tool; echo inside > both; echo same > same")
    with open(project / "README", "a") as file:  # noqa: ASYNC230
        file.write("outside\n")
    (project / "tool").write_text("outside\n")
    (project / "both").write_text("outside\n")
    (project / "same").write_text("same\n")
    outcomes = await apply(kernel)
    assert outcomes == {"README": "conflict", "tool": "conflict", "both": "conflict"}
    # Neither side is lost.
    assert (project / "README").read_text() == "one\noutside\n"
    assert (project / "tool").read_text() == (project / "both").read_text() == "outside\n"
    await shell(kernel, "grep inside README; grep inside both; test ! -e tool")


@PLACES
async def test_what_was_not_shown_is_not_deleted(kernel: Kernel, project: Path) -> None:
    await shell(kernel, "rm -r kept")
    await shell(kernel, "mkdir kept; echo 1 > kept/.env")
    outcomes = await apply(kernel)
    assert outcomes["kept/b"] == "applied" and outcomes["kept/.env"] == "conflict"
    assert (project / "kept" / ".env").read_text() == "TOKEN=1\n"


async def test_what_makes_others_run_something(kernel: Kernel, project: Path) -> None:
    paths = (
        ".git/hooks/pre-commit", ".GIT/config", "sub/.git/config", ".vscode/tasks.json",
        ".idea/x", ".envrc", ".github/workflows/ci.yml", ".claude/settings.json", ".mcp.json",
        ".codex/config", ".gemini/settings.json", ".bashrc", "agentkernel.toml",
    )  # fmt: skip
    made = "; ".join(f"mkdir -p $(dirname {path}); echo x > {path}" for path in paths)
    await shell(
        kernel, f"{made}; ln -s /etc/passwd out; ln -s ../../up src/up; ln -s ../tool src/in"
    )
    outcomes = await apply(kernel)
    assert {outcomes[path] for path in (*paths, "out", "src/up")} == {"held"}
    assert outcomes["src/in"] == "applied" and (project / "src" / "in").read_text() == "#!/bin/sh\n"
    assert not {*paths, "out", "src/up"} & listing(project).keys()
    # The control: with the user's word they are all there.
    outcomes = await apply(kernel, allow_risky=True)
    assert set(outcomes.values()) == {"applied"}
    assert all((project / path).read_text() == "x\n" for path in paths)


async def test_links_in_the_way_are_not_followed(kernel: Kernel, project: Path) -> None:
    """The guest's directory is a link here by now, or its file; or the other way round."""
    outside = project.parent / "outside"
    outside.mkdir()
    (outside / "old.py").write_text("outside\n")
    await shell(kernel, "echo x > src/new; echo x > src/old.py; rm src/moved.py; echo x > README")
    (project / "src").rename(project / "src-was")
    (project / "src").symlink_to(outside)
    (project / "README").unlink()
    (project / "README").symlink_to(project.parent / "beside")
    before = listing(project.parent)
    outcomes = await apply(kernel)
    assert "applied" not in outcomes.values(), outcomes
    assert listing(project.parent) == before
    # The control: without the links it is applied.
    (project / "src").unlink()
    (project / "src-was").rename(project / "src")
    assert (await apply(kernel, "src/new")) == {"src/new": "applied"}
    assert (project / "src" / "new").read_text() == "x\n"


@pytest.mark.parametrize(
    "kernel", [KEPT, {"ephemeral": True}], ids=["directory", "memory"], indirect=True
)
async def test_a_hostile_guest(kernel: Kernel, project: Path) -> None:
    before = listing(project.parent)
    await shell(
        kernel,
        """
        mkfifo fifo; ln README hard; ln -sfn / src || true; rm -rf src; ln -s .. src
        python3 - <<'END'
import os
os.truncate(os.open("huge", os.O_CREAT | os.O_WRONLY), 1 << 40)
open(b"bad\\xff\\nname", "w").write("x")
open("setuid", "w").write("x"); os.chmod("setuid", 0o6755)
END
        """,
    )
    if (await kernel.get(NAME)).ephemeral:
        with pytest.raises(ResourceExhaustedError, match="256 MiB"):
            await apply(kernel)
        await shell(kernel, "rm huge; mkfifo huge")
    outcomes = await apply(kernel)
    assert outcomes["fifo"] == outcomes["huge"] == "skipped" and outcomes["src"] == "held"
    after = listing(project.parent)
    assert os.stat(project / "setuid").st_mode & 0o7777 == 0o755
    assert after["beside"] == before["beside"] and set(os.listdir(project.parent)) == {
        "project", "beside",
    }  # fmt: skip
    assert (project / os.fsdecode(b"bad\xff\nname")).read_text() == "x"
    assert not any(".part" in name for name in after)


async def test_swapping_while_it_is_applied(kernel: Kernel, project: Path) -> None:
    """A guest that turns its directories and files into links all the time gets nothing out."""
    (project.parent / "beside").write_text("secret\n")
    swap = (
        "import os\nos.mkdir('d')\nopen('d/f', 'w').write('mine')\nopen('g', 'w').write('mine')\n"
        "while True:\n"
        "    for a, b in (('d', 'e'), ('g', 'h')):\n"
        f"        os.rename(a, b); os.symlink('{project.parent}/beside', a)\n"
        "        os.unlink(a); os.rename(b, a)\n"
    )
    job = await kernel.jobs.start(NAME, ["python3", "-c", swap], ProcessOptions())
    try:
        for _ in range(30):
            await apply(kernel, allow_risky=True)
            for path, (mode, _, content) in listing(project).items():
                assert mode.startswith("l") or b"secret" not in content, path
    finally:
        await kernel.jobs.kill(job.id)
    assert (project.parent / "beside").read_text() == "secret\n"


@pytest.mark.parametrize("kernel", [{"ephemeral": True}], indirect=True)
async def test_in_memory(kernel: Kernel, project: Path) -> None:
    """It is looked at from inside; what is left of that is nothing."""
    await shell(kernel, "echo two >> README; rm -r gone; mkdir -m 700 new; touch -d @0 tool")
    found = await kernel.workspaces.diff(NAME)
    assert {change.path: change.kind for change in found.changes} == {
        "README": "modified", "gone": "deleted", "gone/deep": "deleted", "gone/deep/a": "deleted",
        "new": "added",
    }  # fmt: skip
    assert "+two\n" in found.patch
    with pytest.raises(UnsupportedError):
        await kernel.workspaces.discard(NAME)
    (directory,) = (kernel.state_dir / "sandboxes").iterdir()
    assert not (directory / "view").exists()


async def test_discarded(kernel: Kernel, project: Path) -> None:
    await shell(kernel, "echo two >> README; mkdir -m 000 locked; rm tool")
    with pytest.raises(ConflictError, match="runs"):
        await kernel.workspaces.discard(NAME)
    await kernel.stop(NAME)
    await kernel.workspaces.discard(NAME)
    (project / "README").write_text("changed here\n")
    await kernel.start(NAME)
    await shell(kernel, "test -e tool; test ! -e locked; grep 'changed here' README")
    assert (await kernel.workspaces.diff(NAME)).changes == []
