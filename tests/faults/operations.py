"""What the tests do to a kernel while something goes wrong.

Each operation has a sandbox of its own, `id`, and says what was acknowledged before: that has to be
there afterwards, whatever happens.
"""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from agentkernel import faults
from agentkernel.agents.definition import AgentDefinition, Commands, Install
from agentkernel.conformance.images import program_of, store_image, tar_of
from agentkernel.guest.processes import ProcessOptions
from agentkernel.images.building.context import Context
from agentkernel.images.dockerfile.model import Build, Command, Copy, Heredoc, Run, Stage
from agentkernel.images.oci.archives.writing import Saved, write_images
from agentkernel.images.oci.store import ImageStore
from agentkernel.kernel.agents.model import AgentRequest
from agentkernel.kernel.building.model import BuildEvent, BuildRequest, Built
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.network.policy.request import NetworkRequest, PhaseRequest

KEPT = "/root/kept"
WRITTEN = "/root/written"
CONTENT = bytes(range(256)) * (12 << 10)
ORPHAN = "o" * 20
IMAGE = "localhost/faults:1"


class Operation(NamedTuple):
    """`before`: what is true when it begins. Both get the kernel and the id."""

    before: Callable[[Kernel, str], Awaitable[object]]
    do: Callable[[Kernel, str], Awaitable[object]]


def spec(backend: str = "native") -> SandboxSpec:
    return SandboxSpec(ephemeral=False, backend=backend)


async def nothing(kernel: Kernel, id: str) -> None:
    """It does not exist."""


async def create(kernel: Kernel, id: str) -> None:
    await kernel.create(spec(), id=id)


async def create_runc(kernel: Kernel, id: str) -> None:
    await kernel.create(spec("runc"), id=id)


async def stored(kernel: Kernel, id: str) -> None:
    """An image that nobody has unpacked is here."""
    layers = [tar_of({"bin/program": b"", "id": id.encode()})]
    store_image(ImageStore(kernel.state_dir / "images"), image_of(id), layers, {})


async def create_of_image(kernel: Kernel, id: str) -> None:
    await kernel.create(SandboxSpec(ephemeral=False, image=image_of(id)), id=id)
    assert await read(kernel, id, "/id") == id.encode(), "half a layer is in use"


async def build(kernel: Kernel, id: str) -> Built:
    """An image of two layers, one of them by a command, under a name of its own."""
    context = Context(cast(BinaryIO, io.BytesIO()))
    steps = (
        Copy((), "/", heredocs=(Heredoc("id", id),)),
        Run(Command(("/bin/program",), is_shell=False)),
    )
    request = BuildRequest(tags=[f"localhost/built-{id}"], network=NetworkRequest(presets=["none"]))

    async def report(event: BuildEvent) -> None:
        pass

    base = f"localhost/base-{id}"
    store = ImageStore(kernel.state_dir / "images")
    store_image(store, base, [tar_of({"bin/program": program_of(b"built\n")})], {})
    return await kernel.builds.build(Build((Stage(base, steps),)), context, request, report=report)


def image_of(id: str) -> str:
    return f"localhost/image-{id}"


async def run_owned(kernel: Kernel, id: str) -> None:
    """As `agentkernel run` does: it ends with this process."""
    await kernel.create(SandboxSpec(), id=id, owned=True)


async def running(kernel: Kernel, id: str) -> None:
    """It runs, and has a file. Its files are in a directory of the host."""
    await kernel.create(SandboxSpec(ephemeral=False, unlimited_disk=True), id=id)
    await write(kernel, id, KEPT, b"acknowledged")


async def stopped(kernel: Kernel, id: str) -> None:
    """It was stopped. Its files are in an image where that is possible."""
    await kernel.create(spec(), id=id)
    await write(kernel, id, KEPT, b"acknowledged")
    await kernel.stop(id, grace_seconds=0)


async def write(kernel: Kernel, id: str, path: str, content: bytes) -> None:
    async with kernel.files(id) as files:
        await files.write(path, content)


async def read(kernel: Kernel, id: str, path: str) -> bytes:
    async with kernel.files(id) as files:
        return await files.read(path)


async def exists(kernel: Kernel, id: str, path: str) -> bool:
    async with kernel.files(id) as files:
        return await files.exists(path)


async def start(kernel: Kernel, id: str) -> None:
    await kernel.start(id)


async def stop(kernel: Kernel, id: str) -> None:
    await kernel.stop(id, grace_seconds=0)


async def remove(kernel: Kernel, id: str) -> None:
    await kernel.remove(id)


async def execute(kernel: Kernel, id: str) -> object:
    return await kernel.run(id, ["sleep", "1000"])


async def job(kernel: Kernel, id: str) -> object:
    return await kernel.jobs.start(id, ["sleep", "1000"])


async def short_job(kernel: Kernel, id: str) -> None:
    """Returns when its end is in its row."""
    started = await kernel.jobs.start(
        id, ["sh", "-c", "read x; exit 3"], ProcessOptions(stdin=True)
    )
    async with kernel.jobs.attach(started.id) as process:
        await process.write(b"\n")
        while await process.output() is not None:
            pass


async def write_file(kernel: Kernel, id: str) -> None:
    await write(kernel, id, WRITTEN, CONTENT)


async def begin_again(kernel: Kernel, id: str) -> None:
    """Another kernel after this one, with something that has no row."""
    state_dir = kernel.state_dir
    await kernel.__aexit__(None, None, None)
    (state_dir / "sandboxes" / ORPHAN).mkdir()
    async with Kernel(state_dir):
        pass


def archive() -> bytes:
    """A tar with a directory and a file of some size in it."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        directory = tarfile.TarInfo("kept")
        directory.type, directory.mode = tarfile.DIRTYPE, 0o700
        tar.addfile(directory)
        file = tarfile.TarInfo("kept/file")
        file.size = len(CONTENT)
        tar.addfile(file, io.BytesIO(CONTENT))
    return stream.getvalue()


async def create_volume(kernel: Kernel, id: str) -> None:
    await kernel.volumes.create(id, owner="local")


async def import_volume(kernel: Kernel, id: str) -> None:
    async def pieces() -> AsyncGenerator[bytes, None]:
        data = archive()
        for at in range(0, len(data), 1 << 16):
            yield data[at : at + (1 << 16)]

    await kernel.volumes.import_archive(id, pieces(), owner="local")


async def remove_volume(kernel: Kernel, id: str) -> None:
    await kernel.volumes.remove(id)


async def load_volumes(kernel: Kernel, id: str) -> None:
    """Another kernel after this one, with a directory that has no row."""
    state_dir = kernel.state_dir
    await kernel.__aexit__(None, None, None)
    (state_dir / "volumes" / ORPHAN).mkdir()
    async with Kernel(state_dir):
        pass


def agent(name: str) -> AgentDefinition:
    """One that has nothing to install, and is looked at all the same."""
    return AgentDefinition(
        name=name,
        title=name,
        version="1",
        install=Install(check=["true"]),
        command=Commands(headless=["true"]),
    )


async def install_kit(kernel: Kernel, id: str) -> None:
    await kernel.agents.kits.ready(agent(id))


async def remove_kit(kernel: Kernel, id: str) -> None:
    await kernel.agents.kits.remove(id)


async def agent_session(kernel: Kernel, id: str) -> None:
    """An agent that ends at once, to its end."""
    asked = AgentRequest(
        agent="ends",
        mode="acp",
        drive=False,
        command=["sh", "-c", "echo said >&2; exit 3"],
        setup=[["true"]],
    )
    session = await kernel.agents.sessions.start(asked)
    async for _ in kernel.agents.sessions.events(session.id):
        pass


async def with_phases(kernel: Kernel, id: str) -> None:
    """It may reach more while something is set up."""
    phases = {"setup": PhaseRequest(allow=["registry.example"])}
    network = NetworkRequest(presets=[], allow=["model.example"], phases=phases)
    await kernel.create(SandboxSpec(ephemeral=False, network=network), id=id)


async def session_inside(kernel: Kernel, id: str) -> None:
    asked = AgentRequest(
        agent="ends", mode="acp", drive=False, sandbox=id, command=["true"], setup=[["true"]]
    )
    await kernel.agents.sessions.start(asked)


def image_archive() -> bytes:
    """A small image, as `docker save` would write it."""
    with tempfile.TemporaryDirectory(prefix="image-") as place:
        store = ImageStore(place)
        store_image(store, IMAGE, [tar_of({"word": b"here"}), tar_of({"other": b"x"})], {})
        return b"".join(write_images(store, [Saved(store.find(IMAGE), (IMAGE,))]))


async def no_image(kernel: Kernel, id: str) -> None:
    await kernel.images.prune(all=True)


async def load_image(kernel: Kernel, id: str) -> None:
    """There is no sandbox `id`, before or after."""

    async def pieces() -> AsyncGenerator[bytes, None]:
        yield image_archive()

    await kernel.images.load(pieces())


OPERATIONS: dict[str, Operation] = {
    "create": Operation(nothing, create),
    "create of an image": Operation(stored, create_of_image),
    "build": Operation(nothing, build),
    "create by runc": Operation(nothing, create_runc),
    "run": Operation(nothing, run_owned),
    "start": Operation(stopped, start),
    "exec": Operation(running, execute),
    "job": Operation(running, job),
    "short job": Operation(running, short_job),
    "file": Operation(running, write_file),
    "stop": Operation(running, stop),
    "remove": Operation(running, remove),
    "remove stopped": Operation(stopped, remove),
    "restart": Operation(running, begin_again),
    "load image": Operation(no_image, load_image),
    "volume create": Operation(nothing, create_volume),
    "volume import": Operation(nothing, import_volume),
    "volume remove": Operation(import_volume, remove_volume),
    "kit install": Operation(nothing, install_kit),
    "kit remove": Operation(install_kit, remove_kit),
    "agent session": Operation(nothing, agent_session),
    "agent session inside": Operation(with_phases, session_inside),
    "volume restart": Operation(import_volume, load_volumes),
}


def arm(points: str, action: Callable[[], None]) -> None:
    """`a>b`: b is armed when a is reached."""
    first, _, rest = points.partition(">")
    faults.arm(first, (lambda: arm(rest, action)) if rest else action)


def die() -> None:
    os.kill(os.getpid(), 9)


async def run_and_die(state_dir: Path, operation: str, points: str, id: str) -> None:
    """What a killed daemon does with its last breath. Returns if the point was never reached."""
    kernel = Kernel(state_dir)
    await kernel.__aenter__()
    before, do = OPERATIONS[operation]
    await before(kernel, id)
    arm(points, die)
    await do(kernel, id)
