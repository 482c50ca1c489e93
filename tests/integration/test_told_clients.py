"""cargo and apt read what sandboxes are told, at the places where it is told.

Their registries are a server on the sandbox's own loopback, since a daemon for tests can't be given
another /etc/apt or another home with a toolchain. tests/network has the other clients.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from agentkernel.backends.base import Sandbox
from agentkernel.backends.local.idmaps import find_subids, is_host_root
from agentkernel.guest.processes import ProcessOptions
from agentkernel.kernel.commands import ExecResult, start_command
from agentkernel.kernel.runs import Runs
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.network.guest_files.paths import BUNDLE
from agentkernel.network.guest_files.setup import network_setup
from agentkernel.network.intercept.authority import open_authority
from agentkernel.network.intercept.leaves import mint
from agentkernel.network.policy.model import NetworkSetup
from agentkernel.network.registries.machine import distribution_of
from agentkernel.network.registries.model import Credential, Machine, Registry

PORT = 8765
SERVER = Path(__file__).with_name("small_registry.py")
LOG = "/tmp/asked"
STAND_IN = "stand-in"


TOKEN = Credential(
    reference="registry-cargo",
    host="127.0.0.1",
    port=PORT + 1,
    kind="bearer",
    source="here",
    value="never told",
)


def registry(path: str, role: str, name: str, credential: Credential | None) -> Registry:
    return Registry(
        ecosystem="cargo",
        url=f"sparse+https://127.0.0.1:{PORT + 1}{path}",
        host="127.0.0.1",
        port=PORT + 1,
        source="here",
        role=role,
        name=name,
        credential=credential,
    )


SOURCES = f"""\
Types: deb
URIs: http://127.0.0.1:{PORT}/apt
Suites: stable
Components: main
"""


def machine() -> Machine:
    release = Path("/etc/os-release")
    return Machine(
        registries=(
            registry("/crates/", "index", "mirror", None),
            registry("/private/own/", "registry", "my-own", TOKEN),
        ),
        settings={"apt": {"/etc/apt/sources.list.d/here.sources": SOURCES}},
        distribution=distribution_of(release.read_text()) if release.exists() else "",
    )


def signed(place: Path) -> tuple[str, str]:
    """An authority's certificate; a key with a certificate for the server."""
    authority = open_authority(str(place))
    key = ec.generate_private_key(ec.SECP256R1())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    leaf = mint(authority, key.public_key(), "127.0.0.1")
    return authority.pem, (private + leaf.public_bytes(serialization.Encoding.PEM)).decode()


class Inside:
    """A sandbox that was told, with the server."""

    def __init__(self, runs: Runs, sandbox: Sandbox, setup: NetworkSetup) -> None:
        self.runs = runs
        self.sandbox = sandbox
        self.environment = setup.environment

    async def __call__(self, command: str, *, stdin: bytes = b"") -> ExecResult:
        options = ProcessOptions(env=self.environment, timeout_seconds=40)
        return await self.runs.run(self.sandbox, ["sh", "-c", command], options, stdin=stdin)

    async def need(self, program: str) -> None:
        if (await self(f"command -v {program}")).status.exit_code != 0:
            pytest.skip(f"this machine has no {program}")

    async def asked(self, start: str) -> list[tuple[str, str, str]]:
        """Method, path and Authorization of the requests whose path begins so."""
        lines = (await self(f"cat {LOG}")).stdout.decode().splitlines()
        return [(a, b, c) for a, b, c in map(json.loads, lines) if b.startswith(start)]


@pytest.fixture(scope="module")
async def inside(
    state_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Inside]:
    authority, certificate = signed(tmp_path_factory.mktemp("authority"))
    setup = network_setup(machine(), authority, placeholder=lambda reference, value: STAND_IN)
    files = {
        **setup.files,
        "/srv/server.py": SERVER.read_text(),
        "/srv/certificate.pem": certificate,
        BUNDLE: authority,
    }
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path, text in files.items():
            info = tarfile.TarInfo(path.lstrip("/"))
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    async with Runs(state_dir) as runs:
        it = Inside(runs, await runs.create(SandboxSpec()), setup)
        made = await it("tar -x -C / --no-same-owner", stdin=archive.getvalue())
        assert made.status.exit_code == 0, made.stderr
        words = ["python3", "/srv/server.py", str(PORT), LOG, "/srv/certificate.pem"]
        server = start_command(it.sandbox, words, ProcessOptions())
        ready = await server.output()
        assert ready is not None
        assert ready.data == b"ready\n"
        yield it
        server.kill()


async def test_cargo_fetches_from_both_registries(inside: Inside) -> None:
    await inside.need("cargo")
    manifest = (
        '[package]\nname = "here"\nversion = "1.0.0"\n[dependencies]\ntiny = "1"\n'
        'other = { package = "tiny", version = "1", registry = "my-own" }\n'
    )
    result = await inside(
        "export CARGO_HOME=/tmp/cargo-home; mkdir -p /tmp/cargo/src && cd /tmp/cargo && "
        "cat >Cargo.toml && touch src/lib.rs && cargo fetch",
        stdin=manifest.encode(),
    )
    assert result.status.exit_code == 0, result.stderr
    assert ("GET", "/crates/dl/tiny/1.0.0/download", "") in await inside.asked("/crates/")
    own = await inside.asked("/private/own/dl/")
    assert own == [("GET", "/private/own/dl/tiny/1.0.0/download", STAND_IN)]


async def test_apt_asks_the_machines_source(inside: Inside) -> None:
    await inside.need("apt-get")
    if not is_host_root() and find_subids() is None:
        pytest.skip("apt changes its user id, which a sandbox of one id can't")
    if not machine().distribution:
        pytest.skip("this machine's system has no name for its version")
    result = await inside("apt-get update; apt-config dump Acquire::https::CAInfo")
    assert BUNDLE in result.stdout.decode()
    assert [path for _, path, _ in await inside.asked("/apt/")][:1] == [
        "/apt/dists/stable/InRelease"
    ]
