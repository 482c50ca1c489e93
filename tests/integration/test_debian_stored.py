"""Debian as a stored image, with the network that every sandbox has: apt-get installs inside, for
root, for a user with subuids and for one with a single id.

The packages come from this machine's own mirror, by way of the gateway.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from agentkernel.images.oci.store import ImageStore
from agentkernel.network.registries.machine import read_machine

from ..oci_images import add_image, debian_tar
from .conftest import Cli

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def debian(daemon_state: Path) -> str:
    for registry in read_machine(os.environ, Path.home()).of("apt"):
        try:
            socket.create_connection((registry.host, registry.port), 5).close()
        except OSError as exc:
            pytest.skip(f"this machine's apt mirror can't be reached: {exc}")
    name = "localhost/tests/debian:12"
    add_image(ImageStore(daemon_state / "images"), name, [debian_tar()], Cmd=["bash"])
    return name


def test_apt_get_installs(cli: Cli, debian: str) -> None:
    script = "apt-get update && apt-get install -y jq && jq --version"
    done = cli("run", "-q", "--image", debian, "--", "sh", "-c", script)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.endswith(b"jq-1.6\n")


def test_accounts_are_made(cli: Cli, debian: str) -> None:
    """Whether they can be told apart is a matter of ids; that installers go on is not."""
    script = (
        "useradd -m dev && install -d -o dev -g dev /srv/dev && chown -R man:root /srv/dev"
        " && su dev -c true && getent passwd dev"
    )
    done = cli("run", "-q", "--image", debian, "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"dev:x:1000:")


def test_its_own_command_is_run(cli: Cli, debian: str) -> None:
    done = cli("run", "-q", "--image", debian, input=b"echo from $0\n")
    assert done.stdout == b"from bash\n", done.stderr
