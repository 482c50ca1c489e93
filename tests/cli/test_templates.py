"""Templates on the command line and in the SDK, over a daemon."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import agentkernel
from agentkernel.client._async.host import AsyncHost
from agentkernel.client._async.transport import AsyncTransport
from agentkernel.client._sync.host import Host
from agentkernel.client._sync.transport import Transport
from agentkernel.errors import ImageBuildError, InvalidInputError, NotReadyError
from agentkernel.images.oci.store import ImageStore
from tests.cli.conftest import Cli, Json
from tests.oci_images import add_image, busybox_layer, link

pytestmark = pytest.mark.usefixtures("daemon_dir")
BASE = "localhost/template-base:1"
FILE = """\
[template]
name = "shop"
base = "localhost/template-base:1"
description = "a shop"
start = "echo up; sleep 1000"
ready = { log = "up", seconds = 20 }
steps = [
    { workdir = "/app" },
    { env = { MODE = "test $HOME" } },
    { copy = ["notes", "/app/"] },
    { run = "echo $MODE > made" },
]
"""


@pytest.fixture(scope="module")
def base(daemon_state: Path) -> str:
    layer = busybox_layer() | {"bin/grep": link("busybox")}
    store = ImageStore(daemon_state / "images")
    with store.adding():
        add_image(store, BASE, [layer], Env=["PATH=/bin"])
    return BASE


@pytest.fixture
def project(tmp_path: Path, base: str) -> Path:
    (tmp_path / "agentkernel.toml").write_text(FILE)
    (tmp_path / "notes").write_text("one\n")
    (tmp_path / "left-out").write_text("x")
    (tmp_path / ".dockerignore").write_text("left-out\n")
    return tmp_path


def test_build_run_show_remove(cli: Cli, ask: Json, project: Path) -> None:
    done = cli("template", "build", cwd=project)
    assert (done.returncode, done.stdout) == (0, b"shop\n"), done.stderr
    assert b"RUN echo $MODE > made" in done.stderr
    done = cli(
        "run",
        "--workspace",
        "none",
        "--template",
        "shop",
        "--",
        "sh",
        "-c",
        "cat made notes; ls; pwd",
        cwd=project,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"test $HOME\none\nmade\nnotes\n/app\n"
    (listed,) = ask("template", "list")
    assert (listed["name"], listed["base"]) == ("shop", BASE)
    shown = cli("template", "show", "shop").stdout.decode()
    assert (
        "start        echo up; sleep 1000" in shown and "ready        log up, within 20 s" in shown
    )
    assert cli("sandbox", "create", "made-of-it", "--template", "shop").returncode == 0
    assert ask("job", "list", "made-of-it")["jobs"][0]["argv"] == [
        "sh",
        "-c",
        "echo up; sleep 1000",
    ]
    assert cli("template", "remove", "shop").returncode == 125
    assert cli("sandbox", "remove", "made-of-it").returncode == 0
    assert ask("template", "remove", "shop")
    assert cli("template", "show", "shop").returncode == 125
    assert ask("template", "list") == []


def test_a_file_with_a_template_is_a_file_like_any_other(cli: Cli, project: Path) -> None:
    done = cli("run", "-q", "--workspace", "none", "--", "echo", "1", cwd=project)
    assert (done.returncode, done.stdout) == (0, b"1\n"), done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[template]\nstart = 'x'", "no base"),
        ("[template]\nbase = 'x'\nsteps = [{ sprint = 'x' }]", "step 1"),
        ("[template]\nbase = 'x'\nsteps = [{ copy = 'x' }]", "copy must be"),
        ("[template]\nbase = 'x'\nready = { port = 8000, log = 'x' }", "one of command"),
        ("[template]\nbase = 'x'\nready = { port = true }", "ready.port"),
        ("[template]\nbase = 'x'\ncolour = 'x'", "template.colour"),
        ("[limits]\nmemory = '1G'", "no section"),
    ],
)
def test_files_that_are_wrong(cli: Cli, tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "agentkernel.toml").write_text(text)
    done = cli("template", "build", "x", cwd=tmp_path)
    assert done.returncode == 125 and words in done.stderr.decode(), done


@pytest.fixture
def host(daemon_dir: Path, base: str) -> Iterator[Host]:
    transport = Transport(str(daemon_dir))
    host = Host(transport=transport)
    yield host
    for entry in host.templates.list():
        host.templates.remove(entry["name"], force=True)
    transport.close()


def test_the_builder(host: Host, project: Path) -> None:
    start = agentkernel.Template().base(BASE).workdir("/app").copy("notes", "/app/")
    first = start.run("cat notes > copy").env(A="b c").user("1000").start("exit 3").ready(port=80)
    told: list[str] = []
    made = host.templates.build(
        "first", first, context=project, progress=lambda kind, body: told.append(kind)
    )
    assert made["start"] == "exit 3" and made["ready"]["port"] == 80
    assert told[0] == "started" and "step" in told and "done" in told
    # One that begins the same way is another, and shares what is built.
    second = start.run("cat notes > copy").description("quiet")
    assert host.templates.build("second", second, context=project)["start"] is None
    assert [entry["name"] for entry in host.templates.list()] == ["first", "second"]
    with pytest.raises(NotReadyError, match="status 3"):
        agentkernel.Sandbox.create(template="first", transport=host._transport)
    with pytest.raises(InvalidInputError, match="no base"):
        agentkernel.Template().run("x").to_dict()
    with pytest.raises(InvalidInputError, match="one of"):
        start.ready("x", port=1)
    with pytest.raises(ImageBuildError, match="status 7"):
        host.templates.build("third", start.run("exit 7"), context=project)
    with pytest.raises(InvalidInputError):
        host.templates.build_source("third", "ssh://h/x")
    assert len(host.templates.list()) == 2


@pytest.mark.anyio
async def test_the_builder_without_blocking(daemon_dir: Path, base: str) -> None:
    transport = AsyncTransport(str(daemon_dir))
    try:
        templates = AsyncHost(transport=transport).templates
        made = await templates.build("calm", {"base": BASE, "steps": [{"run": "echo 1 > /one"}]})
        assert made["image"] == "localhost/template/calm:latest"
        assert (await templates.get("calm"))["digest"] == made["digest"]
        await templates.remove("calm")
        assert await templates.list() == []
    finally:
        transport.close()


def test_json_events(cli: Cli, project: Path) -> None:
    done = cli("template", "build", "told", "--json", cwd=project)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[0]["event"] == "started" and events[-1]["event"] == "template"
    assert cli("template", "remove", "told").returncode == 0
