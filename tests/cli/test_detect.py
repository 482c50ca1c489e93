"""What `run` takes when nobody names an image: one project a language, run by its own tools."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentkernel.images.oci.model import OCI_MANIFEST
from agentkernel.images.oci.store import ImageStore
from tests.cli.conftest import Cli, Json
from tests.oci_images import Node, add_image, busybox_layer

pytestmark = pytest.mark.usefixtures("daemon_dir")

PROJECTS = Path(__file__).parents[1] / "detection" / "projects"
# Project: the command, the tools that have to be here for it, and what it prints.
RUNS: dict[str, tuple[list[str], tuple[str, ...], str]] = {
    "python": (["python3", "main.py"], ("python3",), "hello from Python\n"),
    "node": (["npm", "start", "--silent"], ("node", "npm"), "hello from Node.js\n"),
    "go": (["go", "run", "."], ("go",), ""),
    "rust": (["cargo", "run", "-q", "--offline"], ("cargo",), "hello from Rust\n"),
    "java": (["java", "Main.java"], ("java", "javac"), "hello from Java\n"),
    "ruby": (["ruby", "main.rb"], ("ruby",), "hello from Ruby\n"),
    "php": (["php", "main.php"], ("php",), "hello from PHP\n"),
    "c": (["make", "-s", "run"], ("make", "cc"), "hello from C\n"),
    "cpp": (
        ["sh", "-ec", "g++ -o /tmp/greeting greeting.cpp; /tmp/greeting"],
        ("g++",),
        "hello from C++\n",
    ),
    "lua": (["lua", "main.lua"], ("lua",), "hello from Lua Lua 5.4\n"),
    "shell": (["./build.sh"], ("bash",), "hello from shell\n"),
    "terraform": (
        ["sh", "-ec", "terraform apply -auto-approve -no-color | grep ^words"],
        ("terraform",),
        'words = "hello from Terraform"\n',
    ),
}


# Where installers put toolchains, whether or not this shell's PATH says so.
MORE_PATH = ("/usr/local/go/bin", os.path.expanduser("~/.cargo/bin"))


@pytest.fixture(autouse=True)
def whole_path(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = os.environ["PATH"].split(":")
    more = [place for place in MORE_PATH if os.path.isdir(place) and place not in entries]
    monkeypatch.setenv("PATH", ":".join([*entries, *more]))


def need(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not on this machine")


@pytest.mark.parametrize("name", sorted(RUNS))
def test_projects_run_with_what_is_here(cli: Cli, name: str) -> None:
    command, tools, output = RUNS[name]
    need(*tools)
    project = PROJECTS / name
    done = cli("run", "--network", "none", "--workspace", str(project), "--", *command)
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode() == output
    if name == "go":  # println
        assert b"hello from Go" in done.stderr
    assert not (project / "target").exists() and not (project / "greeting").is_file()


def test_enough_of_them_run() -> None:
    """Where CI says what must work, at least ten languages have to; elsewhere what is here."""
    all_tools = {name: tools for name, (_, tools, _) in RUNS.items()} | {"tsx": ("npm", "npx")}
    here = [name for name, tools in all_tools.items() if all(map(shutil.which, tools))]
    if not os.environ.get("MUST_WORK"):
        pytest.skip(f"only CI must have ten of them; here: {', '.join(here)}")
    assert len(here) >= 10, here


def test_typescript_by_tsx(cli: Cli, tmp_path: Path) -> None:
    """Its tool comes from npm, inside, through the registries' preset."""
    need("node", "npm", "npx")
    try:
        subprocess.run(["npm", "view", "tsx", "name"], capture_output=True, timeout=20, check=True)
    except (subprocess.SubprocessError, OSError) as exc:
        pytest.skip(f"npm reaches no registry: {exc}")
    project = PROJECTS / "tsx"
    script = "npm install --silent --no-audit --no-fund && npx tsx index.ts"
    done = cli("run", "--workspace", str(project), "--", "sh", "-c", script)
    assert (done.returncode, done.stdout) == (0, b"hello from TypeScript\n"), done.stderr
    assert not (project / "node_modules").exists()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    (path / ".python-version").write_text("2.6\n")
    return path


def test_a_version_that_is_not_here_is_said(cli: Cli, project: Path) -> None:
    need("python3")
    done = cli("run", "--", "python3", "-c", "print(1)", cwd=project)
    assert (done.returncode, done.stdout) == (0, b"1\n")
    said = done.stderr.decode()
    assert "image host: python3 runs Python, and .python-version asks for 2.6" in said
    assert "python:2.6-slim is not in reach" in said and "--image" in said
    for flags in (("--quiet",), ("--image", "host")):
        done = cli("run", *flags, "--", "python3", "-c", "print(1)", cwd=project)
        assert (done.returncode, done.stderr) == (0, b"")
    done = cli("run", "--json", "--", "python3", "-c", "print(1)", cwd=project)
    told = json.loads(done.stdout)
    assert told["stdout"] == "1\n" and done.stderr == b""
    assert told["chosen"]["image"] == "host"
    assert told["chosen"]["detected"]["version_from"] == ".python-version"


def test_the_usual_case_says_nothing(cli: Cli, tmp_path: Path) -> None:
    need("python3")
    done = cli("run", "--", "python3", "-c", "print(1)", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"1\n", b"")
    done = cli("run", "--", "no-such-program-anywhere", cwd=tmp_path)
    assert done.returncode == 127


def test_a_runtime_that_is_nowhere(cli: Cli, tmp_path: Path) -> None:
    if shutil.which("dotnet"):
        pytest.skip("dotnet is on this machine")
    done = cli("run", "--", "dotnet", "run", cwd=tmp_path)
    assert done.returncode == 125
    assert b"dotnet is not on this machine" in done.stderr and b"hint: install it" in done.stderr
    # Whoever says which image wants no advice.
    assert cli("run", "--image", "host", "--", "dotnet", cwd=tmp_path).returncode == 127


class _Registry(http.server.BaseHTTPRequestHandler):
    """One image of a store, under one name."""

    store: ImageStore
    digest: str
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        kind, _, name = self.path.removeprefix("/v2/library/ruby/").partition("/")
        content, type = b"", "application/octet-stream"
        if (kind, name) == ("manifests", "9.9-slim") or name == self.digest:
            content, type = self.store.read_document(self.digest), OCI_MANIFEST
        elif kind == "blobs" and self.store.has_blob(name):
            content = self.store.blob_path(name).read_bytes()
        self.send_response(200 if content or self.path == "/v2/" else 404)
        self.send_header("Content-Type", type)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[list[str]]:
    """A mirror of Docker Hub that has ruby:9.9-slim, and what it was asked for."""
    store = ImageStore(tmp_path / "registry")
    layer = busybox_layer() | {
        "bin/ruby": Node(b"#!/bin/sh\necho ruby says $1\n", 0o755),
        "etc/image": b"an image\n",
    }
    digest = add_image(store, "docker.io/library/ruby:9.9-slim", [layer], Env=["PATH=/bin"])
    asked: list[str] = []
    content = {"store": store, "digest": digest, "asked": asked}
    config = Path(os.environ["XDG_CONFIG_HOME"]) / "agentkernel" / "config.toml"
    config.parent.mkdir(exist_ok=True)
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), type("Registry", (_Registry,), content)
    )
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        mirror = f"http://127.0.0.1:{server.server_port}"
        config.write_text(f'[images.mirrors]\n"docker.io" = ["{mirror}"]\n')
        yield asked
        config.unlink()
        server.shutdown()
        thread.join()


def test_an_image_that_is_in_reach(cli: Cli, tmp_path: Path, registry: list[str]) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / ".ruby-version").write_text("9.9.1\n")
    command = ("run", "--workspace", "none", "--", "ruby", "hello")
    done = cli(*command, cwd=project)
    assert (done.returncode, done.stdout) == (0, b"ruby says hello\n"), done.stderr
    said = done.stderr.decode()
    assert "image ruby:9.9-slim: ruby runs Ruby, and .ruby-version asks for 9.9.1" in said
    assert "--image host" in said and registry
    # Offline, the second time: it is here.
    registry.clear()
    done = cli(*command, cwd=project)
    assert (done.returncode, done.stdout) == (0, b"ruby says hello\n"), done.stderr
    assert registry == []
    assert cli("image", "remove", "ruby:9.9-slim").returncode == 0


def test_detect(cli: Cli, ask: Json, project: Path) -> None:
    found = ask("detect", str(project))
    assert found["detected"]["runtime"] == "python" and found["detected"]["version"] == "2.6"
    done = cli("detect", "--json", "--", "make", "all", cwd=project)
    assert json.loads(done.stdout)["detected"]["tools"] == ["make", "python3"]
    done = cli("detect", str(project), "--", "python3", "x.py")
    lines = done.stdout.decode().splitlines()
    assert lines[:3] == [
        "runtime  Python",
        "version  2.6 (.python-version)",
        "image    python:2.6-slim",
    ]
    assert cli("detect", str(project.parent)).returncode == 1
    assert cli("detect", str(project / "absent")).returncode == 125
    assert cli("detect", "a", "b").returncode == 125


def test_a_hostile_project(cli: Cli, tmp_path: Path) -> None:
    """No control character of its making reaches the terminal, and nothing of it is run."""
    (tmp_path / ".python-version").write_text("2.6\n")
    (tmp_path / "pyproject.toml").write_text("a." * 30000)
    (tmp_path / "evil\x1b[31m.csproj").write_text("x")
    for command in (["python3", "-c", ""], ["sh", "-c", "true"], ["dotnet"]):
        done = cli("run", "--", *command, cwd=tmp_path)
        assert b"Traceback" not in done.stderr and b"\x1b" not in done.stderr, done
    assert b"\x1b" not in cli("detect", str(tmp_path)).stdout
