"""A git branch as a workspace, and a sandbox's work as commits on a ref."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentkernel.errors import ConflictError, InvalidInputError, NotFoundError
from agentkernel.guest.processes import ProcessOptions
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.workspaces.applying import WorkspaceApplied
from agentkernel.workspaces.model import file_clock_ns

TEXT = "".join(f"line {n}\n" for n in range(30))


def git(project: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", *words],
        cwd=project, check=True, capture_output=True, timeout=20, text=True, errors="replace",
        env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"},
    )  # fmt: skip
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """On `main`, with a branch `feat` that has a file more."""
    path = tmp_path / "project"
    (path / "src").mkdir(parents=True)
    git(tmp_path, "init", "-q", "-b", "main", "project")
    (path / "README").write_text(TEXT)
    (path / "src" / "a.py").write_text("a\n")
    (path / ".gitignore").write_text("*.o\n")
    git(path, "add", ".")
    git(path, "commit", "-q", "-m", "first")
    git(path, "checkout", "-q", "-b", "feat")
    (path / "feature").write_text("of the branch\n")
    git(path, "add", ".")
    git(path, "commit", "-q", "-m", "second")
    git(path, "checkout", "-q", "main")
    return path


@pytest.fixture
async def kernel(own_state: Path) -> AsyncIterator[Kernel]:
    async with Kernel(own_state) as kernel:
        yield kernel
        for record in (await kernel.list())[0]:
            await kernel.remove(record.id)


def past(directory: Path) -> None:
    """Until whatever was done there is older than what comes, by the clock of files."""
    newest = max(path.lstat().st_ctime_ns for path in directory.rglob("*"))
    while file_clock_ns() <= newest:
        time.sleep(0.001)


async def make(kernel: Kernel, project: Path, branch: str | None, name: str = "it") -> None:
    past(project.parent)
    spec = SandboxSpec(workspace=str(project), workspace_branch=branch, ephemeral=False)
    record = await kernel.create(spec, name=name)
    await kernel.workspaces.bases.done(record.id)


async def shell(kernel: Kernel, script: str, name: str = "it") -> str:
    result = await kernel.run(name, ["sh", "-ec", script], ProcessOptions())
    assert result.status.exit_code == 0, result
    return result.stdout.decode()


async def commit(kernel: Kernel, message: str = "work", **options: bool) -> WorkspaceApplied:
    return await kernel.workspaces.apply(
        "it", commit=message, allow_risky=options.get("allow_risky", False)
    )


def outcomes(done: WorkspaceApplied) -> dict[str, str]:
    return {file.path: file.outcome for file in done.files}


def state_of(project: Path) -> tuple[str, bytes, dict[str, bytes]]:
    """All that a commit must leave as it is."""
    files = {
        str(path.relative_to(project)): path.read_bytes()
        for path in sorted(project.rglob("*"))
        if path.is_file() and ".git" not in path.relative_to(project).parts
    }
    return git(project, "rev-parse", "HEAD"), (project / ".git" / "index").read_bytes(), files


async def test_a_branch_that_is_checked_out_nowhere(kernel: Kernel, project: Path) -> None:
    before = state_of(project)
    await make(kernel, project, "feat")
    assert await shell(kernel, "cat feature; git status --short; git log --oneline | wc -l") == (
        "of the branch\n2\n"
    )
    await shell(
        kernel,
        "echo new > new.py; rm src/a.py; chmod +x feature; sed -i 's/line 20$/inside/' README; "
        "ln -s README link; echo x > made.o; printf 'odd' > 'a\nb'; "
        "git -c user.name=g -c user.email=g@example.org commit -qam inside",
    )
    with pytest.raises(ConflictError, match="not checked out"):
        await kernel.workspaces.apply("it")
    was = git(project, "rev-parse", "feat")
    done = await commit(kernel, "the work\n\nof a sandbox")
    assert done.ref == "refs/heads/feat" and done.parent == was, done
    assert set(outcomes(done).values()) == {"applied"} and "made.o" not in outcomes(done)
    assert done.commit == git(project, "rev-parse", "feat") != was
    assert git(project, "rev-parse", "feat^") == was
    assert git(project, "log", "-1", "--format=%B%an", "feat").startswith(
        "the work\n\nof a sandbox"
    )
    tree = git(project, "ls-tree", "-r", "-z", "feat").split("\0")
    modes = {line.split("\t")[1]: line.split()[0] for line in tree if line}
    assert modes == {
        ".gitignore": "100644", "README": "100644", "a\nb": "100644", "feature": "100755",
        "link": "120000", "new.py": "100644",
    }  # fmt: skip
    assert "inside\n" in git(project, "show", "feat:README")
    assert state_of(project) == before and done.complete
    git(project, "fsck", "--strict")

    # Again there is nothing to commit; later work goes on top, also of others'.
    assert (await commit(kernel)).commit is None
    git(project, "worktree", "add", "-q", "../other", "feat")
    other = project.parent / "other"
    (other / "README").write_text((other / "README").read_text().replace("line 3\n", "outside\n"))
    git(other, "commit", "-qam", "of somebody else")
    git(project, "worktree", "remove", "--force", "../other")
    await shell(kernel, "sed -i 's/line 10$/inside again/' README")
    done = await commit(kernel)
    assert outcomes(done)["README"] == "merged"
    lines = git(project, "show", "feat:README").split("\n")
    assert (lines[3], lines[10], lines[20]) == ("outside", "inside again", "inside")
    await shell(kernel, "sed -i 's/line 3$/inside as well/; s/line 28$/inside/' README")
    done = await commit(kernel)
    assert outcomes(done)["README"] == "conflict" and done.commit is None
    # Neither is it hidden the next time.
    assert outcomes(await commit(kernel))["README"] == "conflict"


async def test_a_new_branch_and_one_that_is_checked_out(kernel: Kernel, project: Path) -> None:
    await make(kernel, project, "brand/new")
    assert await shell(kernel, "git rev-parse --abbrev-ref HEAD; ls") == (
        "brand/new\nREADME\nsrc\n"
    )
    await shell(kernel, "echo x > x")
    assert (await commit(kernel)).ref == "refs/heads/brand/new"
    assert git(project, "show", "brand/new:x") == "x"
    assert git(project, "rev-parse", "brand/new^") == git(project, "rev-parse", "main")

    git(project, "worktree", "add", "-q", "../wt", "feat")
    await make(kernel, project, "feat", "second")
    assert (await shell(kernel, "ls feature", "second")).strip() == "feature"
    await shell(kernel, "echo y > y; echo z >> feature", "second")
    was = git(project, "rev-parse", "feat")
    done = await kernel.workspaces.apply("second", commit="")
    assert done.ref == "refs/agentkernel/second" and done.complete, done
    assert git(project, "rev-parse", "feat") == was == git(project, "rev-parse", f"{done.ref}^")
    assert git(project.parent / "wt", "status", "--short") == ""
    assert git(project, "log", "-1", "--format=%s", done.ref) == "Changes of the sandbox second"
    # Its files can be changed, too: they are the worktree's.
    assert (await kernel.workspaces.apply("second")).complete
    assert (project.parent / "wt" / "y").read_text() == "y\n"


async def test_commits_of_a_project_with_work_under_way(kernel: Kernel, project: Path) -> None:
    """What the user has not committed is the base of the guest's work, and no part of it."""
    (project / "README").write_text(TEXT.replace("line 3\n", "not committed\n"))
    before = state_of(project)
    await make(kernel, project, None)
    await shell(kernel, "sed -i 's/line 20$/inside/' README; echo x > made.o; echo x > new")
    done = await commit(kernel)
    assert outcomes(done) == {"README": "merged", "new": "applied"}, done
    assert done.ref == "refs/agentkernel/it"
    assert (
        git(project, "show", f"{done.ref}:README") == TEXT.replace("line 20\n", "inside\n").strip()
    )
    assert state_of(project) == before


async def test_what_others_changed_is_not_lost_with_its_directory(
    kernel: Kernel, project: Path
) -> None:
    """A file in the place of a directory in which somebody else has changed something."""
    await make(kernel, project, "feat")
    await shell(kernel, "rm -r src; echo x > src; rm README; mkdir README; echo y > README/y")
    git(project, "worktree", "add", "-q", "../other", "feat")
    other = project.parent / "other"
    for name in ("src/a.py", "README"):
        (other / name).write_text("of somebody else\n")
    git(other, "commit", "-qam", "of somebody else")
    git(project, "worktree", "remove", "--force", "../other")
    assert outcomes(await commit(kernel)) == dict.fromkeys(
        ("src", "src/a.py", "README", "README/y"), "conflict"
    )
    assert git(project, "show", "feat:src/a.py") == "of somebody else"
    # The control: without that both are there.
    git(project, "update-ref", "refs/heads/feat", git(project, "rev-parse", "feat^"))
    assert (await commit(kernel)).complete
    assert git(project, "show", "feat:src") == "x" and git(project, "show", "feat:README/y") == "y"


async def test_only_a_directory_of_the_repository(kernel: Kernel, project: Path) -> None:
    await make(kernel, project / "src", None)
    await shell(kernel, "echo b > b.py; echo a >> a.py; echo x > b.o")
    done = await commit(kernel)
    assert outcomes(done) == {"a.py": "applied", "b.py": "applied"}
    assert git(project, "show", f"{done.ref}:src/a.py") == "a\na"
    assert git(project, "diff", "--name-only", "main", done.ref or "") == "src/a.py\nsrc/b.py"


async def test_refused(kernel: Kernel, project: Path, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    for directory, branch, kind in (
        (tmp_path / "plain", "feat", NotFoundError),
        (project, "a..b", InvalidInputError),
        (project, "-x", InvalidInputError),
        (project, "../../x", InvalidInputError),
        (project, "a b", InvalidInputError),
    ):
        with pytest.raises(kind):
            await make(kernel, directory, branch)
    for workspace in (None, f"{project}:rw"):
        with pytest.raises(InvalidInputError, match="branch needs"):
            await kernel.create(SandboxSpec(workspace=workspace, workspace_branch="feat"))
    await make(kernel, tmp_path / "plain", None)
    with pytest.raises(ConflictError, match="no git repository"):
        await commit(kernel)
    found = (kernel.state_dir / "sandboxes").glob("*/*")
    assert {path.name for path in found} >= {"base"} and "tree" not in {path.name for path in found}


async def test_a_hostile_guest_commits_nothing_else(kernel: Kernel, project: Path) -> None:
    """Neither hooks nor filters run, no path leads out, and git's own names stay out."""
    mark = project.parent / "ran"
    program = project.parent / "program"
    program.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    program.chmod(0o755)
    for hook in ("reference-transaction", "post-commit", "pre-commit", "post-checkout"):
        (project / ".git" / "hooks" / hook).write_text(f"#!/bin/sh\ntouch {mark}\n")
        (project / ".git" / "hooks" / hook).chmod(0o755)
    for name in ("filter.bad.clean", "filter.bad.smudge", "core.fsmonitor", "diff.bad.textconv"):
        git(project, "config", name, str(program))
    mark.unlink(missing_ok=True)
    before = state_of(project)
    refs = git(project, "for-each-ref", "refs/heads/main", "refs/tags")
    mark.unlink(missing_ok=True)
    await make(kernel, project, "feat")
    await shell(
        kernel,
        """
        echo '* filter=bad diff=bad' > .gitattributes; echo '*' > .gitignore
        mkdir .git/hooks; echo x > .git/hooks/pre-commit; echo bad > .git/config
        mkdir -p sub/.GIT/hooks; echo x > sub/.GIT/hooks/post-commit; echo x > ok
        rm -r src; ln -s /etc src; rm README; mkdir README; echo x > README/x
        mkfifo fifo; ln -s ../../../up up
        python3 - <<'END'
import os
open(b"bad\\xff\\nM 100644 inline x\\n", "w").write("data 3\\nfoo\\ndone\\n")
os.truncate(os.open("huge", os.O_CREAT | os.O_WRONLY), 1 << 40)
END
        """,
    )
    done = await commit(kernel)
    found = outcomes(done)
    assert found["huge"] == found["fifo"] == "skipped"
    assert {
        found[name] for name in (".gitattributes", "src", "up", "sub/.GIT/hooks/post-commit")
    } == {"held"}
    assert found["README/x"] == found["ok"] == "applied"
    tree = git(project, "ls-tree", "-r", "--name-only", "-z", "feat").split("\0")
    assert {"README/x", "ok"} <= set(tree) and not any("GIT" in name for name in tree)
    assert "README" not in tree and "x" not in tree
    assert not mark.exists() and state_of(project) == before
    assert git(project, "for-each-ref", "refs/heads/main", "refs/tags") == refs
    git(project, "fsck", "--strict")
    # The control: git itself runs what the repository says.
    git(project, "commit", "-q", "--allow-empty", "-m", "control")
    assert mark.exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root has a daemon for repositories of others")
async def test_what_is_written_belongs_to_the_repositorys_owner(kernel: Kernel) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        os.chmod(scratch, 0o755)
        project = Path(scratch) / "project"
        project.mkdir()
        git(project, "init", "-q", "-b", "main")
        (project / "file").write_text("one\n")
        git(project, "add", ".")
        git(project, "commit", "-q", "-m", "first")
        for path in (project, *project.rglob("*")):
            os.chown(path, 1001, 1001, follow_symlinks=False)
        await make(kernel, project, "feat")
        await shell(kernel, "echo two >> file; for i in $(seq 200); do echo $i > $i; done")
        done = await commit(kernel)
        assert done.complete and done.commit
        assert (project / ".git" / "refs" / "heads" / "feat").read_text().strip() == done.commit
        owners = {path.lstat().st_uid for path in project.rglob("*")}
        assert owners == {1001}
