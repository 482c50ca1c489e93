"""The real clients read what sandboxes are told, at the places where it is told.

The registries are a server on the sandbox's own loopback: nothing leaves it.
"""

from __future__ import annotations

import base64
import io
import json
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from agentkernel.backends.base import Sandbox
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
from agentkernel.network.registries.model import Credential, Ecosystem, Machine, Registry

PORT = 8765
SERVER = Path(__file__).with_name("small_registries.py")
LOG = "/tmp/asked"
STAND_IN = "stand-in"


def registry(
    ecosystem: Ecosystem, path: str, *, role: str = "index", name: str = "", kind: str = ""
) -> Registry:
    port = PORT if ecosystem == "maven" else PORT + 1  # Java has a trust store of its own
    scheme = "http" if ecosystem == "maven" else "https"
    prefix = "sparse+" if ecosystem == "cargo" else ""
    credential = None
    if kind:
        credential = Credential(
            reference=f"registry-{ecosystem}",
            host="127.0.0.1",
            port=port,
            kind="basic" if kind == "basic" else "bearer",
            source="here",
            value="never told",
            username="me" if kind == "basic" else "",
        )
    return Registry(
        ecosystem=ecosystem,
        url=f"{prefix}{scheme}://127.0.0.1:{port}{path}",
        host="127.0.0.1",
        port=port,
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
            registry("pip", "/private/simple", kind="basic"),
            registry("npm", "/private/npm/", kind="bearer"),
            registry("cargo", "/crates/", name="mirror"),
            registry("cargo", "/private/own/", role="registry", name="my-own", kind="bearer"),
            registry("go", "/private/go", kind="basic"),
            registry("maven", "/private/maven", role="mirror", name="m", kind="basic"),
        ),
        settings={
            "go": {"GOPROXY": f"https://127.0.0.1:{PORT + 1}/private/go", "GOSUMDB": "off"},
            "maven": {"m": "*"},
            "apt": {"/etc/apt/sources.list.d/here.sources": SOURCES},
        },
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


def basic(name: str = "me", password: str = STAND_IN) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


async def test_pip_installs(inside: Inside) -> None:
    await inside.need("pip")
    result = await inside(
        "pip install --no-cache-dir --target /tmp/pip tiny && ls /tmp/pip/tiny.py"
    )
    assert result.status.exit_code == 0, result.stderr
    asked = await inside.asked("/private/simple/")
    assert ("GET", "/private/simple/tiny/", basic()) in asked


async def test_npm_installs_although_nothing_may_be_posted(inside: Inside) -> None:
    await inside.need("npm")
    result = await inside(
        "mkdir /tmp/npm && cd /tmp/npm && npm install --audit tiny && ls node_modules/tiny"
    )
    assert result.status.exit_code == 0, result.stderr
    asked = await inside.asked("/private/npm/")
    assert ("GET", "/private/npm/tiny", f"Bearer {STAND_IN}") in asked
    assert any(method == "POST" for method, _, _ in asked), "the audit was tried, and refused"


async def test_go_downloads(inside: Inside) -> None:
    await inside.need("go")
    result = await inside(
        "mkdir /tmp/go && cd /tmp/go && go mod init here && go mod download example.com/tiny@latest"
    )
    assert result.status.exit_code == 0, result.stderr
    asked = await inside.asked("/private/go/")
    assert ("GET", "/private/go/example.com/tiny/@v/v1.0.0.zip", basic()) in asked


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


async def test_maven_asks_the_mirror(inside: Inside) -> None:
    await inside.need("mvn")
    result = await inside("mvn -B -q dependency:get -Dartifact=example:tiny:1.0")
    assert result.status.exit_code != 0, "the mirror has no plugin"
    asked = await inside.asked("/private/maven/org/apache/maven/plugins/")
    assert basic() in {who for _, _, who in asked}


async def test_apt_asks_the_machines_source(inside: Inside) -> None:
    await inside.need("apt-get")
    if not machine().distribution:
        pytest.skip("this machine's system has no name for its version")
    result = await inside("apt-get update; apt-config dump Acquire::https::CAInfo")
    assert BUNDLE in result.stdout.decode()
    assert [path for _, path, _ in await inside.asked("/apt/")][:1] == [
        "/apt/dists/stable/InRelease"
    ]
