"""Programs that people use, as they come: with permission they work, without they fail fast and say
why.

Those that ask a package registry ask this machine's own, which `registries` is read from. A client
that this machine does not have, or whose registry it can't reach itself, is told and left out.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from .world.boxes import Box, WorldDaemon
from .world.everything import World

FETCH_JAVA = """
import java.net.URI;
import java.net.http.*;
public class Fetch {
    public static void main(String[] words) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(words[0])).build();
        var answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        System.out.println(answer.statusCode() + " " + answer.body());
    }
}
"""

# What is run side by side is waited for by whoever asks first.
pytestmark = pytest.mark.timeout(180)


@dataclass(frozen=True)
class Client:
    """`program`: what has to be there. `says`: what its output has when it worked. {tls}, {plain}:
    the world's ports."""

    program: str
    command: str
    says: str


# On the world's servers, whose TLS is intercepted: each has to trust the gateway's authority.
LOCAL = {
    "curl": Client("curl", "curl -sS https://index.test:{tls}/simple/worldly/", "worldly-1.0"),
    "curl, plain": Client(
        "curl", "curl -sS http://index.test:{plain}/simple/worldly/", "worldly-1.0"
    ),
    "wget": Client("wget", "wget -nv -O - https://index.test:{tls}/simple/worldly/", "worldly-1.0"),
    "busybox": Client(
        "busybox", "busybox wget -q -O - http://index.test:{plain}/simple/worldly/", "worldly"
    ),
    "urllib": Client(
        "python3",
        "python3 -c 'import urllib.request as u; "
        'print(u.urlopen("https://index.test:{tls}/simple/worldly/").read())\'',
        "worldly-1.0",
    ),
    "pip, another index": Client(
        "pip",
        "pip download -q --no-deps -d /tmp/wheels --index-url https://index.test:{tls}/simple/ "
        "worldly && ls /tmp/wheels",
        "worldly-1.0",
    ),
    "git": Client(
        "git",
        "rm -rf /tmp/clone && git clone -q https://git.test:{tls}/git/project.git /tmp/clone "
        "&& git -C /tmp/clone log --format=%s",
        "first",
    ),
    "git, pushing": Client(
        "git",
        "rm -rf /tmp/push && git clone -q https://git.test:{tls}/git/project.git /tmp/push && cd "
        "/tmp/push && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m pushed "
        "&& git push -q origin HEAD:refs/heads/new 2>&1 && git ls-remote origin",
        "refs/heads/new",
    ),
    "node": Client(
        "node",
        'node -e \'fetch("https://index.test:{tls}/simple/worldly/").then(r => r.text())'
        ".then(console.log)'",
        "worldly-1.0",
    ),
    "java": Client(
        "java", "java /tmp/Fetch.java https://index.test:{tls}/simple/worldly/", "worldly-1.0"
    ),
}
# On this machine's own registries: small things.
REGISTRIES = {
    "pip": Client(
        "pip", "pip download -q --no-deps --no-cache-dir -d /tmp/six six==1.16.0 && ls /tmp/six",
        "six-1.16.0",
    ),
    "npm": Client("npm", "npm view is-number@7.0.0 version", "7.0.0"),
    "npm, installing": Client(
        "npm",
        "rm -rf /tmp/npm && mkdir /tmp/npm && cd /tmp/npm && npm install --no-audit --no-fund "
        "is-number@7.0.0 && ls node_modules",
        "is-number",
    ),
    "go": Client(
        "go",
        "export GOMODCACHE=/tmp/gomod GOCACHE=/tmp/gocache GOSUMDB=off GOFLAGS=-modcacherw; "
        "go mod download -json github.com/google/uuid@v1.6.0",
        '"Zip"',
    ),
    "cargo": Client(
        "cargo",
        "mkdir -p /tmp/crate/src && cd /tmp/crate && touch src/lib.rs && printf '[package]\\n"
        'name = "a"\\nversion = "1.0.0"\\n[dependencies]\\nitoa = "=1.0.11"\\n\' > Cargo.toml '
        "&& cargo fetch && grep -A1 itoa Cargo.lock",
        "1.0.11",
    ),
    "apt": Client(
        "apt-get",
        "mkdir -p /tmp/lists/partial && apt-get update -o Dir::State::Lists=/tmp/lists "
        "-o Dir::Cache=/tmp -o APT::Sandbox::User=root -o Acquire::Languages=none "
        "-o Acquire::IndexTargets::deb::Packages::DefaultEnabled=false && ls /tmp/lists",
        "_dists_",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def connected(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorldDaemon]:
    """A daemon that resolves names, and goes out, as this machine does."""
    place = tmp_path_factory.mktemp("clients")
    daemon = WorldDaemon(place, world, resolver=None, upstream_proxy="auto")
    daemon.start()
    yield daemon
    daemon.remove_all()
    assert daemon.terminate() == 0
    assert "Traceback" not in daemon.log()
    daemon.close()


@pytest.fixture(scope="module")
def allowed(connected: WorldDaemon, world: World) -> Iterator[Box]:
    ports = [world.plain.port, world.tls.port]
    rules = [
        {"host": "index.test", "ports": ports, "methods": ["GET", "HEAD"], "paths": ["/simple/*"]},
        {"host": "git.test", "ports": ports, "paths": ["/git/*"]},
    ]
    box = connected.box(network={"presets": ["registries"], "rules": rules})
    _write(box, "/tmp/Fetch.java", FETCH_JAVA)
    yield box
    box.remove()


@pytest.fixture(scope="module")
def denied(connected: WorldDaemon) -> Iterator[Box]:
    box = connected.box(network={"presets": [], "allow": ["nothing.test"]})
    _write(box, "/tmp/Fetch.java", FETCH_JAVA)
    yield box
    box.remove()


def _write(box: Box, path: str, text: str) -> None:
    status, body = box.daemon.request(
        "PUT", f"/v1/sandboxes/{box.id}/files?path={path}", text.encode()
    )
    assert status in (200, 201, 204), body


def _run_all(box: Box, world: World, clients: dict[str, Client]) -> dict[str, dict[str, Any]]:
    """Side by side, since each waits for others most of the time."""
    here = {name: client for name, client in clients.items() if shutil.which(client.program)}
    ports = {"{tls}": str(world.tls.port), "{plain}": str(world.plain.port)}

    def run(client: Client) -> dict[str, Any]:
        command = client.command
        for word, port in ports.items():
            command = command.replace(word, port)
        return box.shell(command, timeout_seconds=45)

    with ThreadPoolExecutor(4) as threads:
        return dict(zip(here, threads.map(run, here.values()), strict=True))


@pytest.fixture(scope="module")
def with_permission(allowed: Box, world: World) -> dict[str, dict[str, Any]]:
    return _run_all(allowed, world, {**LOCAL, **REGISTRIES})


@pytest.fixture(scope="module")
def without_permission(denied: Box, world: World) -> dict[str, dict[str, Any]]:
    return _run_all(denied, world, {**LOCAL, **REGISTRIES})


def _outcome(found: dict[str, dict[str, Any]], name: str) -> tuple[Client, dict[str, Any]]:
    client = {**LOCAL, **REGISTRIES}[name]
    if name not in found:
        pytest.skip(f"{client.program} is not on this machine")
    return client, found[name]


@pytest.mark.parametrize("name", LOCAL)
def test_a_client_works_where_it_may(with_permission: dict[str, dict[str, Any]], name: str) -> None:
    client, done = _outcome(with_permission, name)
    assert done["exit_code"] == 0, (done["stdout"][-500:], done["stderr"][-2000:])
    assert client.says in done["stdout"]


@pytest.mark.parametrize("name", REGISTRIES)
def test_a_client_reaches_this_machines_registry(
    with_permission: dict[str, dict[str, Any]], tmp_path: Path, name: str
) -> None:
    client, done = _outcome(with_permission, name)
    if done["exit_code"] != 0:
        outside = subprocess.run(
            ["sh", "-c", client.command.replace("/tmp/", f"{tmp_path}/")],
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
        if outside.returncode:
            pytest.skip(f"{name} reaches no registry from the machine: {outside.stderr[-300:]}")
    assert done["exit_code"] == 0, (done["stdout"][-1000:], done["stderr"][-3000:])
    assert client.says in done["stdout"]


@pytest.mark.parametrize("name", [*LOCAL, *REGISTRIES])
def test_a_client_fails_fast_and_readably(
    without_permission: dict[str, dict[str, Any]], name: str
) -> None:
    """Within seconds, by itself, with words that lead to the reason."""
    client, done = _outcome(without_permission, name)
    assert done["outcome"] == "exited", (name, done["stdout"][-500:], done["stderr"][-2000:])
    said = f"{done['stdout']}\n{done['stderr']}".lower()
    assert client.says not in done["stdout"]
    if name == "curl, plain":
        assert "agentkernel network" in said, "it prints what it is told"
        return
    assert done["exit_code"] != 0, said
    words = ("403", "forbidden", "reset", "closed", "terminated")
    assert any(word in said for word in words), said[-2000:]
