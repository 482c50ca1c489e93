"""What a sandbox has changed in its workspace, seen from outside."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentkernel.errors import ConflictError
from agentkernel.guest.processes import ProcessOptions
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.workspaces.diffing import FileChange

NAME = "changes"
BINARY = bytes(range(256))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    (path / "src").mkdir(parents=True)
    (path / "README").write_text("".join(f"line {n}\n" for n in range(40)))
    (path / "src" / "old.py").write_text("print(1)\n")
    (path / "src" / "moved.py").write_text("print('a longer one')\n")
    (path / "tool").write_text("#!/bin/sh\n")
    (path / "picture").write_bytes(BINARY)
    (path / "link").symlink_to("README")
    (path / "gone").mkdir()
    (path / "gone" / "a").write_text("a\n")
    (path / "gone" / ".env").write_text("TOKEN=never seen\n")
    return path


@pytest.fixture
async def kernel(own_state: Path, project: Path) -> AsyncIterator[Kernel]:
    """With a sandbox `changes` over the project."""
    async with Kernel(own_state) as kernel:
        spec = SandboxSpec(workspace=str(project), ephemeral=False, profile="moderate")
        await kernel.create(spec, name=NAME)
        yield kernel
        await kernel.remove(NAME)


async def shell(kernel: Kernel, script: str) -> None:
    result = await kernel.run(NAME, ["sh", "-ec", script], ProcessOptions())
    assert result.status.exit_code == 0, result


async def changes(kernel: Kernel) -> dict[str, FileChange]:
    found = await kernel.workspaces.diff(NAME)
    assert not found.truncated
    return {change.path: change for change in found.changes}


def git_apply(directory: Path, patch: str) -> None:
    done = subprocess.run(
        ["git", "apply", "-"], cwd=directory, input=patch.encode(), capture_output=True,
        check=False, timeout=20,
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(directory.parent)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


EVERYTHING = """
sed -i 's/line 3$/line three/; s/line 30$/&!/' README
rm src/old.py
mv src/moved.py src/elsewhere.py
chmod +x tool
printf '\\000\\377' >> picture
ln -sfn src link
ln -s README second
mkdir -p new/deep; printf 'no newline' > new/deep/file; : > new/empty
rm -r gone
"""


async def test_everything_is_told(kernel: Kernel, project: Path, tmp_path: Path) -> None:
    assert await changes(kernel) == {}
    await shell(kernel, EVERYTHING)
    found = await changes(kernel)
    kinds = {path: change.kind for path, change in found.items()}
    assert kinds == {
        "README": "modified", "src/old.py": "deleted", "src/elsewhere.py": "renamed",
        "tool": "modified", "picture": "modified", "link": "modified", "second": "added",
        "new": "added", "new/deep": "added", "new/deep/file": "added", "new/empty": "added",
        "gone": "deleted", "gone/a": "deleted",
    }  # fmt: skip
    assert found["src/elsewhere.py"].old_path == "src/moved.py"
    assert (found["README"].added_lines, found["README"].removed_lines) == (2, 2)
    assert found["picture"].binary and found["link"].type == "symlink"
    assert (found["tool"].old_mode, found["tool"].new_mode) == ("0644", "0755")
    assert not any(change.host_changed or change.problem for change in found.values())

    # git itself takes the patch, but for the binary file, and has then what the guest has.
    copy = tmp_path / "copy"
    shutil.copytree(project, copy, symlinks=True)
    patch = (await kernel.workspaces.diff(NAME)).patch
    assert "never seen" not in patch
    text = patch[: patch.index("diff --git a/picture")]
    text += patch[patch.index("diff --git", patch.index("diff --git a/picture") + 5) :]
    git_apply(copy, text)
    assert "line three\n" in (copy / "README").read_text()
    assert (copy / "new" / "deep" / "file").read_text() == "no newline"
    assert os.access(copy / "tool", os.X_OK) and os.readlink(copy / "link") == "src"
    assert (copy / "src" / "elsewhere.py").exists() and not (copy / "src" / "moved.py").exists()


async def test_a_directory_that_was_replaced(kernel: Kernel) -> None:
    await shell(kernel, "rm -r src; mkdir src; echo new > src/new; mv README src.txt; rm -r gone")
    await shell(kernel, "echo now a file > gone; rm tool; mkdir tool; echo x > tool/x")
    kinds = {path: change.kind for path, change in (await changes(kernel)).items()}
    assert kinds == {
        "src/old.py": "deleted", "src/moved.py": "deleted", "src/new": "added",
        "src.txt": "renamed", "gone/a": "deleted", "gone": "added",
        "tool": "added", "tool/x": "added",
    }  # fmt: skip


async def test_the_same_again_is_no_change(kernel: Kernel) -> None:
    await shell(kernel, "cp README r; rm README; mv r README; touch tool; chmod 644 tool")
    assert await changes(kernel) == {}


async def test_what_the_host_changed_too_is_named(kernel: Kernel, project: Path) -> None:
    await shell(kernel, "echo inside >> README; echo inside >> tool; echo i > both")
    await shell(kernel, "rm gone/a")
    for name in ("README", "gone/a"):
        with open(project / name, "a") as file:  # noqa: ASYNC230
            file.write("outside\n")
    (project / "both").write_text("outside\n")
    (project / "only").write_text("outside\n")
    (project / "tool").unlink()
    found = await changes(kernel)
    assert {path for path, change in found.items() if change.host_changed} == {
        "README", "gone/a", "both",
    }  # fmt: skip
    assert "tool" in found and "only" not in found


async def test_what_the_host_deleted_is_named(kernel: Kernel, project: Path) -> None:
    await shell(kernel, "echo inside >> tool; echo new > new")
    (project / "tool").unlink()
    found = await changes(kernel)
    assert found["tool"].host_changed and not found["new"].host_changed


async def test_hostile_files(kernel: Kernel, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("outside\n")
    await shell(
        kernel,
        f"""
        ln -s {tmp_path}/secret out; rm -r src; ln -s / src; mkfifo fifo
        python3 - <<'END'
import os, socket
socket.socket(socket.AF_UNIX).bind("socket")
open(b"bad\\xff\\nname\\x1b[31m", "w").write("x")
os.truncate(os.open("huge", os.O_CREAT | os.O_WRONLY), 1 << 40)
os.mkdir("d")
for n in range(300):
    os.mkdir("d/x"); os.chdir("d"); os.rename("x", "d")
END
        """,
    )
    found = await kernel.workspaces.diff(NAME)
    by_path = {change.path: change for change in found.changes}
    assert by_path["out"].type == "symlink" and by_path["src"].type == "symlink"
    assert by_path["fifo"].type == by_path["socket"].type == "special"
    assert by_path["huge"].binary
    assert any(change.problem == "too many directories deep" for change in found.changes)
    (bad,) = (change for change in found.changes if change.path_b64)
    assert "bad" in bad.path and "\\377\\nname\\033[31m" in found.patch
    assert "\\x1b" not in found.patch.replace("\\033", "") and "outside\n" not in found.patch


async def test_what_has_no_diff(kernel: Kernel, project: Path) -> None:
    for spec, error in (
        (SandboxSpec(), ConflictError),
        (SandboxSpec(workspace=f"{project}:ro", ephemeral=False), ConflictError),
    ):
        record = await kernel.create(spec)
        with pytest.raises(error):
            await kernel.workspaces.diff(record.id)
        await kernel.remove(record.id)
