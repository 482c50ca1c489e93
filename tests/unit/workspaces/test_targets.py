"""Where a workspace may be inside."""

from __future__ import annotations

import pytest

from agentkernel.errors import InvalidInputError
from agentkernel.workspaces.targets import workspace_target


@pytest.mark.parametrize(
    ("wanted", "path", "target"),
    [
        (None, "/etc/anything", "/workspace"),
        ("same", "/root/x", "/root/x"),
        ("same", "/home/u/x", "/home/u/x"),
        ("same", "/tmp/x", "/tmp/x"),
        ("/usr/src/app", "/p", "/usr/src/app"),
        ("//srv///shop/", "/p", "/srv/shop"),
        ("/workspace", "/p", "/workspace"),
        ("/etcetera", "/p", "/etcetera"),
    ],
)
def test_where_it_is(wanted: str | None, path: str, target: str) -> None:
    assert workspace_target(wanted, path) == target


@pytest.mark.parametrize(
    "path",
    [
        "/", "//", "/proc", "/proc/1", "/dev/shm", "/sys/fs", "/run", "/run/agentkernel/x", "/etc",
        "/etc/ssl", "/usr", "/usr/bin", "/usr/src", "/usr/local/src", "/usr/localsrc", "/bin/x",
        "/lib64", "/sbin", "/boot/x", "/tmp", "/tmp/", "/home", "/root", "/opt", "/var", "/var/lib",
        "/opt/agentkernel", "/opt/agentkernel/claude/x", "/var/lib/agentkernel/objects", "relative",
        "", "~", "/a/../etc", "/a/./b", "/a\nb", "/a\0b", "/\u202eb", "/" + "x" * 256,
        "/é" + "é" * 127, "/x" * 600,
    ],
)  # fmt: skip
def test_where_it_can_not_be(path: str) -> None:
    for wanted, host in ((path, "/p"), ("same", path)):
        with pytest.raises(InvalidInputError) as caught:
            workspace_target(wanted, host)
        assert caught.value.hint
