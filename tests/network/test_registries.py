"""A machine with private registries: its clients work inside, its credentials stay outside."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .world.boxes import Box, WorldDaemon
from .world.everything import World
from .world.packages import PACKAGE
from .world.web import Answer, Request

PASSWORD = "correct-horse-battery-staple"
TOKEN = "npm_correctHorseBatteryStaple0123456789"
CLIENTS = ("PIP_", "UV_", "NPM_CONFIG_", "GO", "CARGO_REGISTRIES_", "NETRC")


class MirroredDaemon(WorldDaemon):
    """A daemon of a user whose clients are configured, by files alone."""

    def __init__(self, place: Path, world: World) -> None:
        super().__init__(place, world)
        self.home = place / "home"
        self.home.mkdir()
        self.index = f"index.test:{world.tls.port}"
        self.set_password(PASSWORD)
        (self.home / ".npmrc").write_text(
            f"registry=https://{self.index}/npm/\n//{self.index}/npm/:_authToken={TOKEN}\n"
        )

        go = self.config_home / "go" / "env"
        go.parent.mkdir()
        go.write_text(
            f"GOPROXY=https://me:{PASSWORD}@{self.index}/go\nGOSUMDB=off\nGOTOOLCHAIN=local\n"
        )
        maven = self.home / ".m2" / "settings.xml"
        maven.parent.mkdir()
        maven.write_text(
            "<settings><mirrors><mirror><id>m</id><mirrorOf>*</mirrorOf>"
            f"<url>https://{self.index}/maven</url></mirror></mirrors><servers><server><id>m</id>"
            f"<username>me</username><password>{PASSWORD}</password></server></servers></settings>"
        )

    def set_password(self, password: str) -> None:
        pip = self.config_home / "pip" / "pip.conf"
        pip.parent.mkdir(exist_ok=True)
        pip.write_text(f"[global]\nindex-url = https://me:{password}@{self.index}/simple/\n")

    def environment(self) -> dict[str, str]:
        inherited = super().environment().items()
        kept = {name: value for name, value in inherited if not name.upper().startswith(CLIENTS)}
        return {**kept, "HOME": str(self.home)}


def go_proxy(request: Request) -> Answer:
    """One module, for whoever has the password."""
    module = f"module example.test/{PACKAGE}\n"
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr(f"example.test/{PACKAGE}@v1.0.0/go.mod", module)
    answers = {
        "v1.0.0.info": b'{"Version": "v1.0.0", "Time": "2026-01-01T00:00:00Z"}',
        "v1.0.0.mod": module.encode(),
        "v1.0.0.zip": archive.getvalue(),
    }
    if request.headers.get("authorization") != basic(PASSWORD):
        return Answer(401)
    body = answers.get(request.path.rpartition("/")[2], b"")
    return Answer(200 if body else 404, body)


def maven_repository(request: Request) -> Answer:
    """Nothing, for whoever has the password."""
    if request.headers.get("authorization") != basic(PASSWORD):
        return Answer(401, headers={"www-authenticate": 'Basic realm="m"'})
    return Answer(404)


class NpmRegistry:
    """One package, for whoever has the token."""

    def __init__(self, index: str) -> None:
        package = json.dumps({"name": PACKAGE, "version": "1.0.0"}).encode()
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w:gz") as archive:
            info = tarfile.TarInfo("package/package.json")
            info.size = len(package)
            archive.addfile(info, io.BytesIO(package))
        self.archive = made.getvalue()
        dist = {
            "tarball": f"https://{index}/npm/{PACKAGE}/-/{PACKAGE}-1.0.0.tgz",
            "shasum": hashlib.sha1(self.archive).hexdigest(),
        }
        version = {"name": PACKAGE, "version": "1.0.0", "dist": dist}
        document = {
            "name": PACKAGE,
            "dist-tags": {"latest": "1.0.0"},
            "versions": {"1.0.0": version},
        }
        self.document = json.dumps(document).encode()

    def __call__(self, request: Request) -> Answer:
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return Answer(401, b"{}")
        if request.path.endswith(".tgz"):
            return Answer(body=self.archive)
        if request.path == f"/npm/{PACKAGE}":
            return Answer(body=self.document, headers={"content-type": "application/json"})
        return Answer(404, b"{}")


@pytest.fixture(scope="module")
def mirrored(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MirroredDaemon]:
    daemon = MirroredDaemon(tmp_path_factory.mktemp("mirrored"), world)
    world.tls.handlers["/npm/"] = NpmRegistry(daemon.index)
    world.tls.handlers["/go/"] = go_proxy
    world.tls.handlers["/maven/"] = maven_repository
    daemon.start()
    yield daemon
    daemon.remove_all()
    assert daemon.terminate() == 0
    assert "Traceback" not in daemon.log()
    assert PASSWORD not in daemon.log()
    daemon.close()


@pytest.fixture(scope="module")
def client(mirrored: MirroredDaemon) -> Iterator[Box]:
    """A sandbox that was asked nothing of: what the profile gives."""
    box = mirrored.box()
    yield box
    box.remove()


def need(box: Box, program: str) -> None:
    if box.shell(f"command -v {program}")["exit_code"] != 0:
        pytest.skip(f"this machine has no {program}")


def basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"me:{password}".encode()).decode()


def test_pip_installs_from_a_private_index(
    client: Box, mirrored: MirroredDaemon, world: World
) -> None:
    need(client, "pip")
    requests = world.tls.since()
    done = client.shell(f"pip install --no-cache-dir --target /tmp/pip {PACKAGE}")
    assert done["exit_code"] == 0, done["stderr"]
    asked = {(r.path, r.headers.get("authorization")) for r in requests()}
    assert (f"/simple/{PACKAGE}/", basic(PASSWORD)) in asked
    event = client.event("network.allow", host="index.test", path=f"/simple/{PACKAGE}/")
    assert "pip (" in event["source"] and "npm (" in event["source"]


def test_npm_installs_from_a_private_registry_and_posts_nothing(client: Box, world: World) -> None:
    need(client, "npm")
    requests = world.tls.since()
    done = client.shell(f"mkdir /tmp/npm && cd /tmp/npm && npm install --audit {PACKAGE}")
    assert done["exit_code"] == 0, done["stderr"]
    npm = [request for request in requests() if request.path.startswith("/npm/")]
    assert {request.headers.get("authorization") for request in npm} == {f"Bearer {TOKEN}"}
    assert {request.method for request in npm} == {"GET"}
    assert client.event("network.deny", host="index.test", method="POST")


def test_go_downloads_from_a_private_proxy(client: Box) -> None:
    need(client, "go")
    done = client.shell(
        "mkdir /tmp/go && cd /tmp/go && go mod init here && "
        f"go mod download example.test/{PACKAGE}@v1.0.0"
    )
    assert done["exit_code"] == 0, done["stderr"]


def test_java_trusts_what_intercepts(client: Box, world: World) -> None:
    need(client, "mvn")
    requests = world.tls.since()
    client.shell("mvn -B -q dependency:get -Dartifact=example:tiny:1.0")
    maven = [request for request in requests() if request.path.startswith("/maven/")]
    assert basic(PASSWORD) in {request.headers.get("authorization") for request in maven}


def test_the_credentials_are_not_inside(client: Box) -> None:
    found = client.shell(
        "cat /etc/pip.conf $NPM_CONFIG_GLOBALCONFIG; env; "
        "cat /proc/[0-9]*/environ; cat /etc/agentkernel/*; true"
    )["stdout"]
    assert "index-url = https://me:" in found and "_authToken=npm_" in found, "control"
    forms = (PASSWORD, TOKEN, basic(PASSWORD).split()[1])
    assert not [form for form in forms if form in found]


def test_public_registries_are_not_allowed_beside_a_mirror(client: Box) -> None:
    rules = client.network()["phases"]["default"]["rules"]
    hosts = {rule["host"] for rule in rules}
    assert "index.test" in hosts
    assert not hosts & {"pypi.org", "files.pythonhosted.org", "registry.npmjs.org"}
    assert "index.crates.io" in hosts, "cargo is not configured"


def test_a_changed_password_reaches_sandboxes_that_run(
    client: Box, mirrored: MirroredDaemon, world: World
) -> None:
    """With the next sandbox that is made; what stands inside stays the same."""
    need(client, "pip")
    changed = "another-horse-another-staple"
    mirrored.set_password(changed)
    mirrored.box().remove()
    requests = world.tls.since()
    done = client.shell(f"pip download --no-cache-dir -d /tmp/again {PACKAGE}")
    assert done["exit_code"] == 0, done["stderr"]
    sent = {r.headers.get("authorization") for r in requests() if r.path.startswith("/simple/")}
    assert basic(changed) in sent
    assert basic(PASSWORD) not in sent
