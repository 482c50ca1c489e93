"""A Debian directory image: packages install inside, as root and as a user with subuids.

The image is made by mmdebstrap, with the package in its cache because a sandbox has no network.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentkernel.backends.local import idmaps
from agentkernel.backends.local.launcher import remove_upper
from agentkernel.backends.local.plan import LaunchPlan
from agentkernel.guest.binary import agentd_path

from .conftest import Cli

PACKAGE = "jq"


@pytest.fixture(scope="module")
def debian() -> Iterator[Path]:
    if not shutil.which("mmdebstrap"):
        pytest.skip("mmdebstrap is not installed")
    if os.getuid() != 0 and idmaps.find_subids() is None:
        pytest.skip("this user has no subuids: a Debian image has more than one owner")
    mode = "root" if os.getuid() == 0 else "unshare"
    # Not below pytest's private directory: mmdebstrap works as another id than ours.
    parent = Path(tempfile.mkdtemp(prefix="agentkernel-debian-", dir="/var/tmp"))
    parent.chmod(0o777)
    image = parent / "root"
    done = subprocess.run(
        [
            "mmdebstrap", f"--mode={mode}", "--variant=apt", "--format=directory", "--quiet",
            "--skip=cleanup/apt,cleanup/reproducible",
            f'--customize-hook=chroot "$1" apt-get install -y -q --download-only {PACKAGE}',
            "bookworm", str(image),
        ],
        capture_output=True, timeout=280, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert done.returncode == 0, done.stderr.decode()[-1000:]
        yield image
    finally:
        _remove(image)
        parent.rmdir()


def _remove(image: Path) -> None:
    """The image belongs to our subuids: only a user namespace of ours may remove it."""
    maps = idmaps.range_maps(0) if os.getuid() == 0 else None
    if maps is None and (subids := idmaps.find_subids()):
        maps = idmaps.subuid_maps(*subids, image_owner=None)
    assert maps is not None
    plan = LaunchPlan(maps, "", "", "", frozenset(), b"")
    plan.source(str(image), writable=True)
    asyncio.run(remove_upper(str(agentd_path()), plan.encode()))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_apt_get_installs(cli: Cli, debian: Path) -> None:
    script = f"apt-get install -y {PACKAGE} && echo '[1,2]' | {PACKAGE} -c 'map(.+1)'"
    done = cli("run", "-q", "--image", str(debian), "--", "sh", "-c", script)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.endswith(b"[2,3]\n")
    assert not (debian / "usr/bin/jq").exists()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_owners_and_accounts_work(cli: Cli, debian: Path) -> None:
    script = (
        "useradd -m dev && touch /tmp/f && chown dev /tmp/f && stat -c %U /tmp/f"
        " && chown 33:33 /tmp/f && stat -c %u /tmp/f && su dev -c 'id -un'"
    )
    done = cli("run", "-q", "--image", str(debian), "--", "sh", "-c", script)
    assert done.stdout.split() == [b"dev", b"33", b"dev"], done.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_files_on_disk_are_removed(cli: Cli, debian: Path, daemon_dir: Path) -> None:
    """Owned by other ids, in a directory of mode 000, a thousand levels deep."""
    script = (
        "mkdir -m 0755 /d && touch /d/f && chown -R 33:33 /d && chmod 000 /d; cd /home;"
        " i=0; while [ $i -lt 1500 ]; do mkdir d && cd d || exit 1; i=$((i+1)); done"
    )
    done = cli("run", "-q", "--disk", "unlimited", "--image", str(debian), "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    deadline = time.monotonic() + 60
    while os.listdir(daemon_dir / "runs"):  # the daemon does it after the command's end is told
        assert time.monotonic() < deadline, "files are left"
        time.sleep(0.05)
