"""Where a guest's files go, and the exact reason where a bound can't be had."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.backends.base import Blueprint
from agentkernel.backends.local import uppers
from agentkernel.backends.local.directory import SandboxDirectory
from agentkernel.backends.local.uppers import choose_upper
from agentkernel.kernel.spec import SandboxSpec, expand


def blueprint(**spec: object) -> Blueprint:
    return expand(SandboxSpec(**spec), owned=False)  # type: ignore[arg-type]


@pytest.fixture
def directory(tmp_path: Path) -> SandboxDirectory:
    return SandboxDirectory(tmp_path)


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root of a machine that has all it takes."""
    monkeypatch.setattr(uppers, "is_host_root", lambda: True)
    monkeypatch.setattr(uppers, "_mkfs", lambda: "/sbin/mkfs.ext4")
    monkeypatch.setattr(uppers, "LOOP_CONTROL", "/dev/null")


def test_ephemeral_files_are_in_memory(
    directory: SandboxDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uppers, "kernel_version", lambda: (6, 6))
    assert choose_upper(blueprint(disk_bytes=1 << 30), directory).kind == "memory"
    assert choose_upper(blueprint(unlimited_disk=True), directory).kind == "directory"
    monkeypatch.setattr(uppers, "kernel_version", lambda: (6, 1))
    upper = choose_upper(blueprint(), directory)
    assert (upper.kind, upper.reason) == ("directory", "files in memory need Linux 6.6")
    assert upper.remedy


@pytest.mark.usefixtures("root")
def test_kept_files_with_a_bound_are_in_an_image(directory: SandboxDirectory) -> None:
    bounded = blueprint(ephemeral=False, disk_bytes=1 << 30)
    assert choose_upper(blueprint(ephemeral=False), directory).kind == "directory"
    assert choose_upper(bounded, directory).kind == "image"
    directory.make_upper()
    assert "without a bound" in choose_upper(bounded, directory).reason
    directory.image.touch()
    assert choose_upper(blueprint(ephemeral=False), directory).kind == "image", "it is there"


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    ("name", "value", "reason", "remedy"),
    [
        ("is_host_root", lambda: False, "only root", "run as root"),
        ("_mkfs", lambda: None, "mkfs.ext4 is not installed", "e2fsprogs"),
        ("LOOP_CONTROL", "/nowhere", "/nowhere: No such file", "loop"),
    ],
)
def test_what_an_image_needs(
    directory: SandboxDirectory,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: object,
    reason: str,
    remedy: str,
) -> None:
    monkeypatch.setattr(uppers, name, value)
    upper = choose_upper(blueprint(ephemeral=False, disk_bytes=1 << 30), directory)
    assert (upper.kind, upper.is_bounded) == ("directory", False)
    assert reason in upper.reason and remedy in upper.remedy
