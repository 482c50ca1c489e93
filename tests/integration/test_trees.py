"""Read-only trees of the host: shown, and no way out."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from agentkernel.backends.local import rootfs
from agentkernel.images.model import RootFilesystem, Tree
from agentkernel.images.resolve import resolve_image
from agentkernel.kernel.runs import Runs
from agentkernel.kernel.spec import SandboxSpec

CONNECT = (
    "import socket, sys\n"
    "s = socket.socket(socket.AF_UNIX)\n"
    "try:\n    s.connect(sys.argv[1])\nexcept OSError as e:\n    print(type(e).__name__)\n"
    "else:\n    print('connected')\n"
)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of the host that every sandbox of this test shows, with a file it hides."""
    path = tmp_path / "tool"
    path.mkdir(mode=0o755)
    (path / "program").write_text("content")
    (path / "credentials").write_text("secret")
    (path / "private").mkdir()
    (path / "private" / "key").write_text("secret")

    def with_tree(reference: str, **options: object) -> RootFilesystem:
        root = resolve_image(reference, **options)  # type: ignore[arg-type]
        hidden = (f"{path}/credentials", f"{path}/private")
        own = Tree(str(path), "test", hidden)
        return RootFilesystem(
            root.reference, root.stacks, (*root.trees, own), root.environment, root.notes
        )

    monkeypatch.setattr(rootfs, "resolve_image", with_tree)
    return path


async def test_tree_is_readable_and_its_secrets_are_not(runs: Runs, tree: Path) -> None:
    sandbox = await runs.create(SandboxSpec())
    script = f"cat {tree}/program; cat {tree}/credentials; ls -A {tree}/private; touch {tree}/x"
    result = await runs.run(sandbox, ["sh", "-c", script])
    assert result.stdout == b"content"
    assert b"Read-only file system" in result.stderr
    assert any(line.value == str(tree) for line in sandbox.effective)


async def test_socket_in_a_tree_can_not_be_reached(runs: Runs, tree: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as control:
        server.bind(str(tree / "s"))
        (tree / "s").chmod(0o777)
        server.listen()
        control.connect(str(tree / "s"))  # from outside it can
        sandbox = await runs.create(SandboxSpec())
        result = await runs.run(sandbox, ["python3", "-c", CONNECT, str(tree / "s")])
    assert result.stdout == b"ConnectionRefusedError\n", result.stderr
