"""One RUN: a sandbox on the stage's layers, the command in it, what it has changed as a layer."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from agentkernel import faults
from agentkernel.backends.base import Sandbox
from agentkernel.errors import ImageBuildError, NotFoundError, SandboxUnavailableError
from agentkernel.guest.processes import ExitStatus, Outcome, ProcessOptions
from agentkernel.images.building.writing import Layer
from agentkernel.images.oci.new_layer import add_layer
from agentkernel.images.oci.store import ImageStore
from agentkernel.images.oci.work import LayerWorker, Packed
from agentkernel.kernel.building.cleaning import EXCLUDED, clean_upper
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.kernel.threads import in_thread

if TYPE_CHECKING:
    from agentkernel.kernel.kernel import Kernel

LABEL = "agentkernel.build"
# In memory, so that it is no part of the layer.
SCRIPT = "/dev/shm/agentkernel-heredoc"
_LAST_LINES = 20
_LAST_BYTES = 4096
# How often it is looked how much room a RUN has left.
_LOOK_SECONDS = 0.5

Write = Callable[[str], Awaitable[None]]


@dataclass(frozen=True)
class Task:
    """A command of a stage. `image`: what it runs on, as a sandbox's image is written."""

    image: str
    words: Sequence[str]
    script: str
    environment: dict[str, str]
    user: str
    workdir: str
    spec: SandboxSpec
    name: str
    line: int
    build: str


class Below:
    """What a layer is made on top of, as far as cleaning has to know."""

    def __init__(
        self, is_below: Callable[[str], bool], content: Callable[[str], bytes | None]
    ) -> None:
        self.is_below = is_below
        self.content = content


async def run_task(
    kernel: Kernel,
    store: ImageStore,
    worker: LayerWorker,
    task: Task,
    below: Callable[[], Below],
    write: Write,
    notes: list[str],
    progress: Callable[[str], None],
    owner: str,
) -> Layer:
    """Raises ImageBuildError where the command fails. Whatever happens, no sandbox is left."""
    record = await kernel.create(
        task.spec,
        owner=owner,
        labels={LABEL: task.build},
        owned=True,
        building=True,
        progress=progress,
    )
    made: list[Layer] = []
    try:
        await while_space(kernel, _carry_out(kernel, record.id, task, write))
        faults.point("build.ran")

        async def take(sandbox: Sandbox) -> None:
            made.append(await in_thread(_layer, kernel, sandbox, store, worker, below, notes))

        await kernel.remove(record.id, reason="its step is done", taking=take)
    finally:
        # Of one that is removed already there is nothing to be found.
        with contextlib.suppress(NotFoundError):
            await asyncio.shield(kernel.remove(record.id, reason="its step failed"))
    return made[0]


async def while_space(kernel: Kernel, work: Coroutine[Any, Any, None]) -> None:
    """A RUN's files have no bound of their own: it ends before it takes what must stay free. Raises
    ResourceExhaustedError."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait((task,), timeout=_LOOK_SECONDS))[0]:
            kernel.system.require_space()
        task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))


def _layer(
    kernel: Kernel,
    sandbox: Sandbox,
    store: ImageStore,
    worker: LayerWorker,
    below: Callable[[], Below],
    notes: list[str],
) -> Layer:
    """Blocking. Preconditions: nothing runs in it any more, and its files are still there."""
    image = below()
    upper = kernel.backends[sandbox.backend].changed_files(sandbox.blueprint)
    network = sandbox.blueprint.network
    notes += clean_upper(
        upper,
        network.files if network else {},
        network.authority if network else "",
        image.is_below,
        image.content,
    )

    def pack(output: BinaryIO) -> Packed:
        return worker.pack(upper, output, exclude=EXCLUDED)

    return Layer(*add_layer(store, pack))


async def _carry_out(kernel: Kernel, id: str, task: Task, write: Write) -> None:
    async with kernel.files(id, user="root") as files:
        if task.workdir != "/":
            await files.mkdir(task.workdir, parents=True)
        if task.script:
            await files.write(SCRIPT, task.script.encode(), mode=0o755)
    words = list(task.words) or _interpreter(task.script)
    options = ProcessOptions(env=task.environment, cwd=task.workdir, user=task.user or None)
    last = LastLines()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    async with kernel.exec(id, words, options) as process:
        with contextlib.suppress(SandboxUnavailableError):
            while (part := await process.output()) is not None:
                text = decoder.decode(part.data)
                last.add(text)
                if text:
                    await write(text)
        status = await kernel.judge(id, process.status)
    if status.outcome is Outcome.EXITED and status.exit_code == 0:
        return
    raise ImageBuildError(
        f"line {task.line}: {ending(status)}: {task.name[:200]}"
        if task.line
        else f"{ending(status)}: {task.name[:200]}",
        hint=_hint(status),
        step=task.name[:1000],
        line=task.line,
        exit_code=status.exit_code,
        output=last.lines(),
    )


def _interpreter(script: str) -> list[str]:
    """The words of a `#!` line, as the kernel reads it: a program and at most one word."""
    first = script.partition("\n")[0].removeprefix("#!").strip()
    return [*first.split(None, 1), SCRIPT]


def ending(status: ExitStatus) -> str:
    if status.outcome is Outcome.EXITED:
        return f"the command ended with status {status.exit_code}"
    if status.outcome is Outcome.OOM:
        return "the command needed more memory than it may have"
    if status.outcome is Outcome.NOT_STARTED:
        return f"the command could not be started: {status.errno or 'no such program'}"
    if status.outcome is Outcome.SIGNALED:
        return f"the command was ended by signal {status.signal}"
    return f"the command was {status.outcome.value}"


def _hint(status: ExitStatus) -> str | None:
    if status.outcome is Outcome.OOM:
        return "give it more: --memory 8G"
    return None


class LastLines:
    """The end of what was written."""

    def __init__(self) -> None:
        self._parts: deque[str] = deque()
        self._size = 0

    def add(self, text: str) -> None:
        self._parts.append(text)
        self._size += len(text)
        while self._size - len(self._parts[0]) > _LAST_BYTES:
            self._size -= len(self._parts.popleft())

    def lines(self) -> list[str]:
        return "".join(self._parts)[-_LAST_BYTES:].splitlines()[-_LAST_LINES:]
