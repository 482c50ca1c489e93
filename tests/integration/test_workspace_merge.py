"""Both sides change one file: both changes are made, or neither side is lost."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentkernel.guest.processes import ProcessOptions
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.workspaces.applying import AppliedFile
from agentkernel.workspaces.model import file_clock_ns

NAME = "merged"
TEXT = "".join(f"line {n}\n" for n in range(30))


def git(project: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", *words],
        cwd=project, check=True, capture_output=True, timeout=20, text=True,
        env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"},
    )  # fmt: skip
    return done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with files that git has as they are, and others."""
    path = tmp_path / "project"
    (path / "src").mkdir(parents=True)
    for name in ("clean", "dirty", "touched", "removed", "tool", "src/deep", "big"):
        (path / name).write_text(TEXT)
    (path / "link").symlink_to("clean")
    (path / "binary").write_bytes(b"\0" + TEXT.encode())
    git(path, "init", "-q")
    git(path, "add", ".")
    git(path, "commit", "-q", "-m", "first")
    (path / "dirty").write_text(TEXT.replace("line 9\n", "line nine, not added\n"))
    (path / "untracked").write_text(TEXT)
    os.utime(path / ".git" / "index")
    # Older than the sandbox, by the clock of files, which ticks seldom.
    newest = max(entry.lstat().st_ctime_ns for entry in path.rglob("*"))
    while file_clock_ns() <= newest:
        time.sleep(0.001)
    return path


@pytest.fixture
async def kernel(own_state: Path, project: Path) -> AsyncIterator[Kernel]:
    async with Kernel(own_state) as kernel:
        spec = SandboxSpec(workspace=str(project), ephemeral=False)
        # What the host changes before it is written down is a conflict.
        await kernel.workspaces.bases.done((await kernel.create(spec, name=NAME)).id)
        yield kernel
        await kernel.remove(NAME)


async def shell(kernel: Kernel, script: str) -> None:
    result = await kernel.run(NAME, ["sh", "-ec", script], ProcessOptions())
    assert result.status.exit_code == 0, result


async def apply(kernel: Kernel, *, mark_conflicts: bool = False) -> dict[str, str]:
    done = await kernel.workspaces.apply(NAME, mark_conflicts=mark_conflicts)
    return {file.path: file.outcome for file in done.files}


def edit(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text().replace(f"{old}\n", f"{new}\n"))


FILES = ("clean", "dirty", "untracked", "src/deep")


async def test_changes_of_different_lines_are_both_made(kernel: Kernel, project: Path) -> None:
    before = {name: (project / name).read_text() for name in FILES}
    await shell(kernel, f"for f in {' '.join(FILES)}; do sed -i 's/line 20$/inside/' $f; done")
    for name in FILES:
        edit(project / name, "line 3", "outside")
    # As people do it: what is added to git later is no base.
    git(project, "add", "clean")
    assert await apply(kernel) == dict.fromkeys(FILES, "merged")
    for name in FILES:
        wanted = before[name].replace("line 3\n", "outside\n").replace("line 20\n", "inside\n")
        assert (project / name).read_text() == wanted, name

    # Again nothing is to do; later changes begin with what was merged.
    assert set((await apply(kernel)).values()) == {"merged"}
    edit(project / "clean", "line 5", "outside again")
    await shell(kernel, "sed -i 's/inside/inside again/' clean dirty")
    assert (await apply(kernel))["clean"] == "merged"
    lines = (project / "clean").read_text().split("\n")
    assert (lines[3], lines[5], lines[20]) == ("outside", "outside again", "inside again")
    assert "outside\n" in (project / "dirty").read_text()


async def test_the_same_lines_are_a_conflict(kernel: Kernel, project: Path) -> None:
    script = "sed -i 's/line 20$/inside/; s/line 3$/inside/' clean untracked; echo x >> binary"
    await shell(kernel, script)
    for name in ("clean", "untracked", "binary"):
        (project / name).write_bytes((project / name).read_bytes().replace(b"line 3\n", b"out\n"))
    before = {name: (project / name).read_bytes() for name in ("clean", "untracked", "binary")}
    assert await apply(kernel) == dict.fromkeys(before, "conflict")
    assert {name: (project / name).read_bytes() for name in before} == before
    await shell(kernel, "test $(grep -c inside clean) = 2")
    # Asked for, both stand in the file, and what did not meet is merged.
    assert await apply(kernel, mark_conflicts=True) == dict.fromkeys(before, "conflict")
    text = (project / "clean").read_text()
    assert "<<<<<<< here\nout\n=======\ninside\n>>>>>>> the sandbox\n" in text
    assert text.count("<<<<<<<") == 1 and text.split("\n")[24] == "inside"
    assert (project / "binary").read_bytes() == before["binary"]
    # Once they are resolved here, that is it.
    (project / "clean").write_text("resolved\n")
    assert (await apply(kernel))["clean"] == "merged"
    assert (project / "clean").read_text() == "resolved\n"


async def test_modes_links_and_what_is_gone(kernel: Kernel, project: Path) -> None:
    script = "chmod +x tool; sed -i s/29/inside/ tool; ln -sfn src link; echo x >> removed; rm big"
    await shell(kernel, f"{script}; sed -i s/29/inside/ touched")
    edit(project / "tool", "line 3", "outside")
    os.utime(project / "touched")
    (project / "removed").unlink()
    (project / "link").unlink()
    (project / "link").symlink_to("dirty")
    edit(project / "big", "line 3", "outside")
    assert await apply(kernel) == {
        "tool": "merged", "touched": "applied", "link": "conflict", "removed": "conflict",
        "big": "conflict",
    }  # fmt: skip
    assert (project / "tool").stat().st_mode & 0o777 == 0o755
    assert os.readlink(project / "link") == "dirty" and not (project / "removed").exists()
    assert "outside" in (project / "big").read_text()


async def test_a_staged_change_after_the_beginning_is_no_base(
    kernel: Kernel, project: Path
) -> None:
    """Else the host's own change would count as what both have begun with, and be undone."""
    await shell(kernel, "sed -i 's/line 20$/inside/' clean")
    edit(project / "clean", "line 3", "outside")
    git(project, "commit", "-qam", "second")
    assert await apply(kernel) == {"clean": "merged"}
    assert "outside\n" in (project / "clean").read_text()


async def test_what_was_applied_is_the_base_of_what_comes(kernel: Kernel, project: Path) -> None:
    await shell(kernel, "rm removed; sed -i 's/line 20$/inside/' clean")
    assert await apply(kernel) == {"removed": "applied", "clean": "applied"}
    edit(project / "clean", "line 3", "outside")
    await shell(kernel, "echo anew > removed; sed -i 's/inside/line 20/' clean")
    assert await apply(kernel) == {"removed": "applied", "clean": "merged"}
    assert (project / "clean").read_text() == TEXT.replace("line 3\n", "outside\n")


@pytest.mark.parametrize("way", ["rewritten", "replaced"])
async def test_the_host_writes_while_it_is_applied(kernel: Kernel, project: Path, way: str) -> None:
    """Whatever the host has written last is there at the end."""
    path, stop, count = project / "clean", threading.Event(), 0

    def write() -> None:
        nonlocal count
        while not stop.is_set():
            lines = path.read_text().split("\n")
            if len(lines) < 30:
                continue  # it would be our own half
            lines[3] = f"outside {count + 1}"
            if way == "rewritten":
                path.write_text("\n".join(lines))
            else:
                other = project / "clean.swp"
                other.write_text("\n".join(lines))
                other.rename(path)
            count += 1

    await shell(kernel, "sed -i '21s/.*/inside/' clean")  # from now on the sandbox's is its own
    writer = threading.Thread(target=write)
    writer.start()
    try:
        outcomes: list[AppliedFile] = []
        for number in range(25):
            await shell(kernel, f"sed -i '21s/.*/inside {number}/' clean")
            outcomes += (await kernel.workspaces.apply(NAME, ["clean"])).files
    finally:
        stop.set()
        await asyncio.to_thread(writer.join)
    assert path.read_text().split("\n")[3] == f"outside {count}"
    assert {file.outcome for file in outcomes} <= {"merged", "conflict", "applied"}
    # The control: once the host is quiet, both are there. (It may have written over what was
    # merged before, as an editor does whose text is older.)
    path.write_text(path.read_text().replace(path.read_text().split("\n")[20], "inside 24"))
    await shell(kernel, "sed -i '26s/.*/at last/' clean")
    assert await apply(kernel) == {"clean": "merged"}
    lines = path.read_text().split("\n")
    assert (lines[3], lines[25]) == (f"outside {count}", "at last")
    assert not any(name.startswith(".agentkernel") for name in os.listdir(project))


async def test_a_hostile_guest_merges_nothing_else(kernel: Kernel, project: Path) -> None:
    """Files, directories and links that changed places, and names that lead anywhere: where both
    sides have a word, nothing of the host's is lost, and nothing outside is touched."""
    beside = project.parent / "beside"
    beside.write_text("secret\n")
    os.utime(beside, (1, 1))
    for name in ("clean", "src/deep", "tool"):
        edit(project / name, "line 3", "outside")
    before = {name: (project / name).read_bytes() for name in ("clean", "src/deep", "tool")}
    await shell(
        kernel,
        f"""
        rm -r src; ln -s {project.parent} src || true
        rm clean; mkdir clean; echo x > clean/x
        rm tool; ln -s {beside} tool
        mkdir -p .git/hooks; echo x > .git/hooks/pre-commit; echo '* merge=bad' > .gitattributes
        """,
    )
    outcomes = await apply(kernel)
    assert {outcomes[name] for name in ("clean", "src/deep", "tool")} <= {"conflict", "held"}
    assert outcomes[".git/hooks/pre-commit"] == outcomes[".gitattributes"] == "held"
    assert "merged" not in outcomes.values()
    assert {name: (project / name).read_bytes() for name in before} == before
    assert beside.read_text() == "secret\n" and not (project / ".gitattributes").exists()
    # The control: a guest that changes lines gets them in.
    await shell(kernel, "rm -rf clean tool; sed 's/line 20$/inside/' dirty > clean")
    edit(project / "dirty", "line 4", "outside")
    await shell(kernel, "sed -i 's/line 20$/inside/' dirty")
    assert (await apply(kernel))["dirty"] == "merged"


async def test_links_that_come_while_it_is_merged(kernel: Kernel, project: Path) -> None:
    """A guest that turns the file that is merged into a link all the time gets nothing out."""
    (project.parent / "beside").write_text("secret\n")
    swap = (
        "import os\n"
        "while True:\n"
        f"    os.rename('clean', 'aside'); os.symlink('{project.parent}/beside', 'clean')\n"
        "    os.unlink('clean'); os.rename('aside', 'clean')\n"
        "    os.rename('src', 'srcs'); os.symlink('..', 'src'); os.unlink('src')\n"
        "    os.rename('srcs', 'src')\n"
    )
    await shell(kernel, "sed -i 's/line 20$/inside/' clean src/deep")
    job = await kernel.jobs.start(NAME, ["python3", "-c", swap], ProcessOptions())
    try:
        for number in range(20):
            edit(project / "clean", f"line {number}", f"outside {number}")
            await apply(kernel, mark_conflicts=True)
            assert "secret" not in (project / "clean").read_text()
            assert f"outside {number}\n" in (project / "clean").read_text()
    finally:
        await kernel.jobs.kill(job.id)
    assert (project.parent / "beside").read_text() == "secret\n"


async def test_texts_that_take_long_to_compare(kernel: Kernel, project: Path) -> None:
    """Of both sides a hundred thousand lines of two kinds: told in bounded time, and merged or not,
    the host's is still there."""
    lines = "".join(f"{n * 7919 % 3}\n" for n in range(100_000))
    (project / "big").write_text("first, of the host\n" + lines)
    await shell(
        kernel,
        "python3 -c \"open('big', 'w').write(''.join(f'{n * 104729 % 3}\\n' "
        'for n in range(100_000)))"',
    )
    spent = time.process_time()
    outcomes = await apply(kernel)
    await kernel.workspaces.diff(NAME)
    assert outcomes == {"big": "conflict"} and time.process_time() - spent < 60
    assert (project / "big").read_text().startswith("first, of the host\n")
