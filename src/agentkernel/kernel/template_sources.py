"""A template of a git repository: its runtime found out, its dependencies installed.

The repository is hostile. So git runs in a sandbox that reaches that one host and nothing else; its
files come out as an archive whose names are checked, are looked at without being run, and go into
the image by the builder; what installs dependencies runs in a build's sandbox, as any RUN.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, NamedTuple
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from agentkernel.detection.containers import CONTAINER_FILES
from agentkernel.detection.detecting import Detection, detect
from agentkernel.detection.files import MAX_BYTES, GivenFiles
from agentkernel.detection.readers import PROJECT_READERS, SUFFIX_READERS, VERSION_FILES
from agentkernel.errors import GuestFileError, ImageBuildError, InvalidInputError, NotFoundError
from agentkernel.guest.processes import Outcome, ProcessOptions
from agentkernel.images.building.context import Context
from agentkernel.kernel.building.model import BuildNote, Report
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.kernel.template_model import (
    Copied,
    ReadyCheck,
    Script,
    TemplateSpec,
    TemplateStep,
    Text,
)
from agentkernel.kernel.threads import in_thread
from agentkernel.network.policy.model import THIS_MACHINE
from agentkernel.network.policy.request import NetworkRequest
from agentkernel.trees.entries import FileType, TreeEntry, TreeSummary
from agentkernel.trees.tar_writer import TarWriter

if TYPE_CHECKING:
    from agentkernel.kernel.kernel import Kernel

CLONE_SECONDS = 600.0
_PLACE = "/src/project"
_TARGET = "/workspace"
_REFERENCE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,199}\Z")
_PORTS = {"https": 443, "http": 80}
_HERE = ("localhost", "127.0.0.1", "::1")
_MOST_NAMES = 4096
_CHUNK = 1 << 20
# Nothing of ours, and nothing that asks: a repository that wants a password can't be cloned.
_GIT = {
    "GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ASKPASS": "true", "GIT_ALLOW_PROTOCOL": "https:http", "GIT_LFS_SKIP_SMUDGE": "1",
}  # fmt: skip
_FETCH = (
    'set -e; git init -q "$1"; cd "$1"; git fetch -q --depth 1 --no-tags -- "$2" "$3"; '
    "git checkout -q --detach FETCH_HEAD; git rev-parse HEAD; rm -rf .git"
)


class SourceRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`source`: URL[@REF], a branch, tag or commit. `base`: an image in place of the one that the
    project asks for. `run`: in place of what usually installs dependencies."""

    source: Annotated[str, Meta(min_length=1, max_length=2048)]
    base: Text | None = None
    run: Annotated[list[Script], Meta(max_length=64)] | None = None
    start: Script | None = None
    ready: ReadyCheck | None = None


class Source(NamedTuple):
    """Where a repository is."""

    url: str
    reference: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Source:
        """Raises InvalidInputError."""
        url, at, reference = text.rpartition("@")
        if not at or "/" not in url.partition("://")[2]:
            url, reference = text, "HEAD"
        if not _REFERENCE.match(reference) or ".." in reference:
            raise InvalidInputError(f"{reference[:100]!r} can't be a branch, a tag or a commit")
        parts = urlsplit(url) if url.isascii() and url.isprintable() and " " not in url else None
        try:
            port = None if parts is None else parts.port or _PORTS.get(parts.scheme)
        except ValueError:
            port = None
        if parts is None or port is None or not parts.hostname or not parts.path.strip("/"):
            raise InvalidInputError(
                f"{url[:200]!r} is no repository that can be cloned",
                hint="write https://HOST/PATH or http://HOST/PATH, and @REF for another than HEAD",
            )
        if parts.username is not None or parts.password is not None:
            raise InvalidInputError(
                "a name or a password in the URL would be kept with the template",
                hint="clone it yourself, and build the template with a file: [template]",
            )
        return cls(url, reference, parts.hostname, port)

    @property
    def inside(self) -> str:
        """The URL as it is written in a sandbox, to which `localhost` is the sandbox itself."""
        if self.host not in _HERE:
            return self.url
        parts = urlsplit(self.url)
        return parts._replace(netloc=f"{THIS_MACHINE}:{self.port}").geturl()

    def network(self) -> NetworkRequest:
        """That host and nothing else."""
        host = THIS_MACHINE if self.host in _HERE else self.host
        host = f"[{host}]" if ":" in host else host
        return NetworkRequest(presets=[], allow=[f"{host}:{self.port}"])


# What installs the dependencies of a runtime, by a file that must be there; the first that fits.
_INSTALLS: dict[str, tuple[tuple[str, str], ...]] = {
    "python": (
        ("requirements.txt", "pip install --no-cache-dir -r requirements.txt"),
        ("Pipfile", "pip install --no-cache-dir pipenv && pipenv install --system"),
        ("pyproject.toml", "pip install --no-cache-dir ."),
        ("setup.py", "pip install --no-cache-dir ."),
    ),
    "node": (
        ("yarn.lock", "yarn install --frozen-lockfile"),
        ("package-lock.json", "npm ci"),
        ("package.json", "npm install"),
    ),
    "deno": (("deno.json", "deno install"), ("deno.jsonc", "deno install")),
    "bun": (("package.json", "bun install"),),
    "go": (("go.mod", "go mod download"),),
    "rust": (("Cargo.toml", "cargo fetch"),),
    "java": (("pom.xml", "mvn -q -B dependency:go-offline"),),
    "ruby": (("Gemfile", "bundle install"),),
    "php": (("composer.json", "composer install --no-interaction"),),
    "dotnet": (("", "dotnet restore"),),
    "elixir": (("mix.exs", "mix local.hex --force && mix local.rebar --force && mix deps.get"),),
    "terraform": (("", "terraform init -backend=false -input=false"),),
}  # fmt: skip
# Those need an image with their tool in it.
_COMMANDS = {
    "composer.json": ("composer", "install"), "pom.xml": ("mvn", "package"),
    "build.gradle": ("gradle", "build"), "build.gradle.kts": ("gradle", "build"),
}  # fmt: skip


async def fetch(
    kernel: Kernel, source: Source, context: Context, report: Report, owner: str
) -> tuple[str, GivenFiles]:
    """Clones into `context`: the commit, and the files that detection reads. Raises
    ImageBuildError for a repository that can't be cloned."""
    await report(BuildNote(text=f"cloning {source.url} ({source.reference}) in a sandbox"))
    spec = SandboxSpec(network=source.network(), user="root")
    record = await kernel.create(spec, owner=owner, labels={"agentkernel.source": ""}, owned=True)
    try:
        async with kernel.files(record.id) as files:
            await files.mkdir("/src", parents=True)
        done = await kernel.run(
            record.id,
            ["sh", "-c", _FETCH, "sh", _PLACE, source.inside, source.reference],
            ProcessOptions(env=_GIT, timeout_seconds=CLONE_SECONDS),
        )
        if done.status.outcome is not Outcome.EXITED or done.status.exit_code != 0:
            lines = done.stderr.decode("utf-8", "replace").split("\n")
            lines = [line for line in lines if line.strip()][-20:]
            missing = "git: not found" in " ".join(lines)
            raise ImageBuildError(
                f"{source.url} can't be cloned: {lines[-1][:300] if lines else 'no reason given'}",
                hint="this machine has no git: install it" if missing else None,
                output=lines,
            )
        commit = done.stdout.decode("ascii", "replace").strip()[-40:]
        async with kernel.files(record.id) as files:
            entries = await files.list(_PLACE, max_entries=_MOST_NAMES)
            names = frozenset(entry.name for entry in entries)
            content: dict[str, bytes] = {}
            for name in _wanted(names):
                try:
                    found = await files.read(f"{_PLACE}/{name}", max_bytes=MAX_BYTES)
                except GuestFileError:
                    continue
                content[name] = found
            await _archive(files.tree_read(_PLACE), context)
    finally:
        await kernel.remove(record.id, reason="the repository is cloned")
    return commit, GivenFiles(content, names)


def _wanted(names: frozenset[str]) -> list[str]:
    known = {*VERSION_FILES, *PROJECT_READERS, *CONTAINER_FILES}
    suffixes = tuple(SUFFIX_READERS)
    return sorted(
        name
        for name in {*known, *(name for name in names if name.endswith(suffixes))}
        if name in names or "/" in name
    )[:256]


async def _archive(
    parts: AsyncGenerator[TreeEntry | bytes | TreeSummary, None], context: Context
) -> None:
    """Through the reader that takes archives of any client, which trusts none."""
    writer = TarWriter()
    buffer = bytearray()
    async with aclosing(parts):
        async for part in parts:
            if isinstance(part, TreeSummary):
                buffer += writer.end(TreeEntry(".", FileType.DIRECTORY, mode=0o755), part)
            else:
                buffer += writer.feed(part)
            if len(buffer) >= _CHUNK:
                await in_thread(context.feed, bytes(buffer))
                buffer.clear()
    await in_thread(context.feed, bytes(buffer))
    await in_thread(context.finish)


def spec_for(wanted: SourceRequest, files: GivenFiles) -> tuple[TemplateSpec, Detection | None]:
    """What is to be built. Raises NotFoundError where nothing tells, and no base is given."""
    names = files.names()
    command = next((words for name, words in _COMMANDS.items() if name in names), ())
    found = detect(command, files=files)
    base = wanted.base or (found.image if found else None)
    if base is None:
        what = "nothing in the repository tells its runtime"
        if found is not None:
            what = f"{found.why}, and there is no official image of {found.label}"
        raise NotFoundError(what, hint="name an image: --base IMAGE")
    runs = wanted.run
    if runs is None:
        runs = [] if found is None else _installs(found, names.__contains__)
    steps = [
        TemplateStep(workdir=_TARGET),
        TemplateStep(copy=Copied(source=".", target=f"{_TARGET}/")),
        *(TemplateStep(run=text) for text in runs),
    ]
    return TemplateSpec(base=base, steps=steps, start=wanted.start, ready=wanted.ready), found


def _installs(found: Detection, has: Callable[[str], bool]) -> list[str]:
    for name, command in _INSTALLS.get(found.versions, ()):
        if not name or has(name):
            return [command]
    return []
