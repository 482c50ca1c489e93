"""Templates: built in sandboxes, kept as images, started and waited for."""

from __future__ import annotations

import http.server
import io
import os
import shutil
import subprocess
import tarfile
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agentkernel.errors import (
    ConflictError,
    ImageBuildError,
    InvalidInputError,
    NotFoundError,
    NotReadyError,
    UnsupportedError,
)
from agentkernel.guest.processes import ProcessOptions
from agentkernel.kernel.building.model import BuildEvent, BuildNote, BuildRequest, BuildStepDone
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.kernel.template_model import (
    Copied,
    ReadyCheck,
    Template,
    TemplateSpec,
    TemplateStep,
)
from agentkernel.kernel.template_sources import Source, SourceRequest
from agentkernel.network.policy.request import NetworkRequest
from tests.oci_images import add_image, busybox_layer, link

pytestmark = pytest.mark.anyio
BASE = "localhost/base:1"
MORE = "nc printf grep sed wc"


@pytest.fixture
async def kernel(own_state: Path) -> AsyncIterator[Kernel]:
    async with Kernel(own_state) as kernel:
        layer = busybox_layer() | {f"bin/{name}": link("busybox") for name in MORE.split()}
        layer["tmp/.keep"] = b""
        add_image(kernel.images.store, BASE, [layer], Env=["PATH=/bin"])
        yield kernel
        for record in (await kernel.list()).records:
            await kernel.remove(record.id)


class Told(list[BuildEvent]):
    async def __call__(self, event: BuildEvent) -> None:
        self.append(event)

    @property
    def cached(self) -> list[bool]:
        return [event.cached for event in self if isinstance(event, BuildStepDone)]


async def build(
    kernel: Kernel, name: str, spec: TemplateSpec, **files: str
) -> tuple[Template, Told]:
    told = Told()
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path, text in files.items():
            info = tarfile.TarInfo(path)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    with kernel.builds.context() as context:
        context.feed(archive.getvalue())
        context.finish()
        made = await kernel.templates.build(name, spec, context, BuildRequest(), report=told)
    return made, told


async def output(kernel: Kernel, sandbox: str, command: str) -> str:
    done = await kernel.run(sandbox, ["sh", "-c", command], ProcessOptions())
    assert done.status.exit_code == 0, done
    return done.stdout.decode()


ABSENT = Copied(source="absent", target="/")
STEPS = [
    TemplateStep(env={"GREETING": 'costs $5 "and" \\more', "EMPTY": ""}),
    TemplateStep(workdir="/app"),
    TemplateStep(copy=Copied(source="notes", target="/app/notes")),
    TemplateStep(run='printf "%s\\n" "$GREETING" > made\nwc -l < notes >> made'),
    TemplateStep(user="1234"),
]


async def test_steps_and_the_second_time(kernel: Kernel) -> None:
    spec = TemplateSpec(base=BASE, steps=STEPS, description="a first one")
    made, _ = await build(kernel, "first", spec, notes="one\ntwo\n")
    assert (made.name, made.image, made.base) == ("first", "localhost/template/first:latest", BASE)
    assert made.steps == STEPS and made.description == "a first one" and made.size_bytes > 0
    record = await kernel.create(SandboxSpec(template="first"))
    assert record.blueprint["image"].endswith(made.digest)
    assert await output(kernel, record.id, "cat made; id -u; pwd") == (
        'costs $5 "and" \\more\n2\n1234\n/app\n'
    )
    again, told = await build(kernel, "first", spec, notes="one\ntwo\n")
    assert again.digest == made.digest and told.cached[3:5] == [True, True]
    assert "first" in [template.name for template in await kernel.templates.list()]
    with pytest.raises(ConflictError, match="sandboxes were made from it"):
        await kernel.templates.remove("first")
    await kernel.templates.remove("first", force=True)
    with pytest.raises(NotFoundError, match="no template first"):
        await kernel.templates.get("first")
    assert await output(kernel, record.id, "cat notes") == "one\ntwo\n"


@pytest.mark.parametrize(
    "ready",
    [
        ReadyCheck(port=8000),
        ReadyCheck(command="test -e /tmp/up"),
        ReadyCheck(log="it is up"),
    ],
    ids=["port", "command", "log"],
)
async def test_ready(kernel: Kernel, ready: ReadyCheck) -> None:
    """Every start runs the command, and is over when the check passes."""
    start = "sleep 0.3; touch /tmp/up; echo it is; echo up it is up; nc -l -p 8000; sleep 1000"
    spec = TemplateSpec(base=BASE, start=start, ready=ready)
    await build(kernel, "served", spec)
    record = await kernel.create(SandboxSpec(template="served", ephemeral=False))
    (job,) = await kernel.jobs.list(record.id)
    assert job.state == "running" and job.argv == ["sh", "-c", start]
    assert await output(kernel, record.id, "ls /tmp/up") == "/tmp/up\n"
    await kernel.stop(record.id, grace_seconds=0)
    await kernel.start(record.id)
    jobs = await kernel.jobs.list(record.id)
    assert sorted(job.state for job in jobs) == ["lost", "running"]
    # One that runs is left as it is.
    await kernel.start(record.id)
    assert len(await kernel.jobs.list(record.id)) == 2


@pytest.mark.parametrize(
    ("start", "ready", "reason"),
    [
        ("echo broken >&2; exit 3", ReadyCheck(port=8000), "ended: status 3"),
        ("echo broken; sleep 60", ReadyCheck(port=8000, seconds=0.5), "not ready within 0.5 s"),
        ("echo broken", ReadyCheck(log="never"), "without writing 'never'"),
        ("echo broken; sleep 60", ReadyCheck(command="false", seconds=0.5), "within 0.5 s"),
    ],
)
async def test_what_does_not_get_ready(
    kernel: Kernel, start: str, ready: ReadyCheck, reason: str
) -> None:
    await build(kernel, "broken", TemplateSpec(base=BASE, start=start, ready=ready))
    with pytest.raises(NotReadyError, match=reason) as raised:
        await kernel.create(SandboxSpec(template="broken"))
    assert raised.value.details["output"] == ["broken"]
    assert not (await kernel.list()).records, "it left its sandbox"


async def test_a_template_on_a_template_does_not_start_while_it_is_built(kernel: Kernel) -> None:
    await build(kernel, "below", TemplateSpec(base=BASE, start="touch /started; sleep 1000"))
    spec = TemplateSpec(base="localhost/template/below", steps=[TemplateStep(run="ls / > /seen")])
    await build(kernel, "above", spec)
    record = await kernel.create(SandboxSpec(template="above"))
    assert "started" not in await output(kernel, record.id, "cat /seen")
    assert await kernel.jobs.list(record.id) == []


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        (TemplateSpec(base="host"), UnsupportedError),
        (TemplateSpec(base="/srv"), UnsupportedError),
        (TemplateSpec(base="Not A Name"), InvalidInputError),
        (TemplateSpec(base=BASE, steps=[TemplateStep()]), InvalidInputError),
        (TemplateSpec(base=BASE, steps=[TemplateStep(run="x", user="y")]), InvalidInputError),
        (TemplateSpec(base=BASE, ready=ReadyCheck()), InvalidInputError),
        (TemplateSpec(base=BASE, ready=ReadyCheck(log="x")), InvalidInputError),
        (TemplateSpec(base=BASE, ready=ReadyCheck(port=1, command="x")), InvalidInputError),
        (TemplateSpec(base=BASE, steps=[TemplateStep(run="exit 7")]), ImageBuildError),
        (TemplateSpec(base=BASE, steps=[TemplateStep(copy=ABSENT)]), ImageBuildError),
    ],
)  # fmt: skip
async def test_what_is_no_template(
    kernel: Kernel, spec: TemplateSpec, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await build(kernel, "wrong", spec)
    assert "wrong" not in [template.name for template in await kernel.templates.list()]
    with pytest.raises(InvalidInputError):
        await kernel.create(SandboxSpec(template="A B"))
    with pytest.raises(InvalidInputError, match="not both"):
        await kernel.create(SandboxSpec(template="a", image="debian:12"))
    with pytest.raises(NotFoundError):
        await kernel.create(SandboxSpec(template="absent"))


# -- of repositories -----------------------------------------------------------------------------


class _Served(http.server.BaseHTTPRequestHandler):
    """git's own server, which speaks CGI."""

    root = ""

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        size = int(self.headers.get("Content-Length") or 0)
        environment = {
            "PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": self.root, "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path, "QUERY_STRING": query, "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""), "CONTENT_LENGTH": str(size),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""), "REMOTE_ADDR": "127.0.0.1",
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_CONFIG_COUNT": "2",
            "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*",
            "GIT_CONFIG_KEY_1": "uploadpack.allowAnySHA1InWant", "GIT_CONFIG_VALUE_1": "true",
        }  # fmt: skip
        done = subprocess.run(
            ["git", "http-backend"], input=self.rfile.read(size), env=environment,
            capture_output=True, timeout=20, check=False,
        )  # fmt: skip
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        lines = [line.partition(": ") for line in head.decode().split("\r\n")]
        status = next((value for name, _, value in lines if name == "Status"), "200 OK")
        self.send_response(int(status.split()[0]))
        for name, _, value in lines:
            if name and name != "Status":
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A repository, and where git serves it."""
    if not shutil.which("git"):
        pytest.skip("git is not installed")
    path = tmp_path / "repositories" / "shop"
    path.mkdir(parents=True)
    handler = type("Served", (_Served,), {"root": str(path.parent)})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield path, f"http://127.0.0.1:{server.server_port}/shop/.git"
        server.shutdown()
        thread.join()


def committed(path: Path) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    if not (path / ".git").exists():
        subprocess.run(["git", "init", "-q", "-b", "main", path], check=True)
    for words in (["add", "-A"], ["commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run(["git", "-C", path, *identity, *words], check=True)
    found = subprocess.run(
        ["git", "-C", path, "rev-parse", "HEAD"], check=True, capture_output=True
    )
    return found.stdout.decode().strip()


async def test_a_repository(kernel: Kernel, repository: tuple[Path, str]) -> None:
    path, url = repository
    (path / "requirements.txt").write_text("")
    (path / ".python-version").write_text("3.12\n")
    (path / "app.py").write_text("print(1)\n")
    (path / "leading-out").symlink_to("/etc/passwd")
    first = committed(path)
    (path / "app.py").write_text("print(2)\n")
    committed(path)
    told = Told()
    wanted = SourceRequest(source=f"{url}@{first}", base=BASE, run=["ls -A > /listed"])
    made = await kernel.templates.build_source("shop", wanted, report=told)
    assert made.source == f"{url}@{first}"
    notes = [event.text for event in told if isinstance(event, BuildNote)]
    assert any(".python-version makes it a project in Python and asks for 3.12" in n for n in notes)
    record = await kernel.create(SandboxSpec(template="shop"))
    shown = await output(kernel, record.id, "cat app.py /listed; readlink leading-out")
    assert shown.splitlines() == [
        "print(1)",
        ".python-version",
        "app.py",
        "leading-out",
        "requirements.txt",
        "/etc/passwd",
    ]
    newest = await kernel.templates.build_source(
        "shop", SourceRequest(source=url, base=BASE, run=[]), report=told
    )
    assert newest.digest != made.digest
    assert not [r for r in (await kernel.list()).records if r.id != record.id]


async def test_a_repository_that_is_not_there(kernel: Kernel, repository: tuple[Path, str]) -> None:
    path, url = repository
    committed(path)
    for source in (f"{url}@no-such-branch", url.replace("/shop", "/none")):
        wanted = SourceRequest(source=source, base=BASE)
        with pytest.raises(ImageBuildError, match="can't be cloned"):
            await kernel.templates.build_source("shop", wanted, report=Told())
    with pytest.raises(NotFoundError, match="nothing in the repository tells"):
        await kernel.templates.build_source("shop", SourceRequest(source=url), report=Told())
    assert not (await kernel.list()).records


async def test_a_repository_reaches_its_host_alone(
    kernel: Kernel, repository: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control is `test_a_repository`, which clones from the same server."""
    path, url = repository
    committed(path)
    monkeypatch.setattr(
        Source, "network", lambda self: NetworkRequest(presets=[], allow=["127.0.0.1:1"])
    )
    with pytest.raises(ImageBuildError, match="can't be cloned"):
        await kernel.templates.build_source(
            "shop", SourceRequest(source=url, base=BASE), report=Told()
        )


@pytest.mark.parametrize(
    "text",
    ["", "shop", "git://h/x", "ssh://h/x", "file:///etc", "/srv/git/x", "https://h", "https://u:p@h/x",
     "https://h:x/y", "https://h/x@-upload-pack=y", "https://h/x@a..b", "ext::sh -c x",
     "https://h/x y", "--upload-pack=x", "https://h/\x1b[x", "https://u@h/x@main"],
)  # fmt: skip
def test_sources_that_are_none(text: str) -> None:
    with pytest.raises(InvalidInputError):
        Source.parse(text)


def test_sources() -> None:
    assert Source.parse("https://h.example/a/b.git@v1.2") == (
        "https://h.example/a/b.git", "v1.2", "h.example", 443
    )  # fmt: skip
    assert Source.parse("http://127.0.0.1:9/x").reference == "HEAD"
    assert Source.parse("http://[2001:db8::1]:8080/x").network().allow == ["[2001:db8::1]:8080"]
    here = Source.parse("http://127.0.0.1:8080/x@y")
    assert here.inside == "http://host.agentkernel.internal:8080/x"
    assert here.network().allow == ["host.agentkernel.internal:8080"]
