"""A build from its first stage to the image: which stages, which steps, what is there already."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from agentkernel import faults
from agentkernel.errors import (
    AgentKernelError,
    ImageBuildError,
    ImageInvalidError,
    InvalidInputError,
    UnsupportedError,
)
from agentkernel.images.building.cache import BuildCache
from agentkernel.images.building.config import joined
from agentkernel.images.building.context import Context
from agentkernel.images.building.copying import Copying
from agentkernel.images.building.layers import copied_layer, unpacked
from agentkernel.images.building.listing import ImageTree, Listings
from agentkernel.images.building.owners import ids_of
from agentkernel.images.building.writing import Layer
from agentkernel.images.dockerfile.model import SCRATCH, Arg, Build, Copy, Run, Stage, Step, Workdir
from agentkernel.images.dockerfile.variables import Arguments
from agentkernel.images.dockerfile.words import expand_raw
from agentkernel.images.oci.model import MAX_LAYERS, this_platform
from agentkernel.images.oci.store import StoredImage
from agentkernel.images.oci.work import LayerWorker
from agentkernel.kernel.building.model import (
    BuildNote,
    BuildOutput,
    BuildRequest,
    BuildStarted,
    BuildStep,
    BuildStepDone,
    Report,
)
from agentkernel.kernel.building.running import Below, Task, run_task
from agentkernel.kernel.building.stage import State, now_words, state_of, state_on
from agentkernel.kernel.building.stages import needed_stages, target_stage
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.kernel.threads import in_thread
from agentkernel.network.policy.presets import NONE
from agentkernel.network.policy.request import NetworkRequest

if TYPE_CHECKING:
    from agentkernel.kernel.kernel import Kernel

_MAX_KEPT_NOTES = 64
WORKDIR_WORDS = "/bin/sh -c #(nop) WORKDIR"


class Execution:
    """One build. `run` once. Preconditions: the store's `adding` is held as long as it goes on."""

    def __init__(
        self,
        kernel: Kernel,
        worker: LayerWorker,
        id: str,
        build: Build,
        context: Context,
        request: BuildRequest,
        report: Report,
        owner: str,
    ) -> None:
        self._kernel = kernel
        self._store = kernel.images.store
        self._worker = worker
        self._id = id
        self._build = build
        self._context = context
        self._request = request
        self._report = report
        self._owner = owner
        self._cache = BuildCache(self._store)
        self._listings = Listings(self._store, self._cache.lists)
        self._platform = this_platform()
        self._arguments = Arguments(request.build_args, self._platform, build.escape)
        self._done: dict[int, State] = {}
        self._trees: dict[int, tuple[int, ImageTree]] = {}
        self._number = 0
        self._steps = 0
        self.notes = list(build.notes)
        self.layers = 0
        self.cached = 0

    async def run(self) -> State:
        """The last stage, done. Raises ImageBuildError, and what pulls raise."""
        self._arguments.declare(self._build.arguments)
        target = target_stage(self._build, self._request.target)
        wanted = needed_stages(self._build, target)
        self._steps = sum(1 + len(self._build.stages[number].steps) for number in wanted)
        await self._report(BuildStarted(steps=self._steps, notes=self.notes))
        for number in wanted:
            self._done[number] = await self._stage(number, self._build.stages[number])
        state = self._done[target]
        await self._make_workdir(state)
        self._add_labels(state)
        if self._arguments.unused:
            names = ", ".join(sorted(self._arguments.unused))[:500]
            await self._note(f"no ARG asks for these build arguments: {names}")
        return state

    async def _stage(self, number: int, stage: Stage) -> State:
        await self._begin_step(stage.source or f"FROM {stage.base}", stage.line, stage)
        began = time.monotonic()
        try:
            state = await self._from(number, stage)
        except (InvalidInputError, UnsupportedError) as exc:
            raise _failed(exc, stage.source, stage.line) from None
        await self._report(
            BuildStepDone(number=self._number, seconds=round(time.monotonic() - began, 3))
        )
        for step in stage.steps:
            # Others have their turn, also between thousands of steps that wait for nothing.
            await asyncio.sleep(0)
            await self._begin_step(step.source or step.name, step.line, stage)
            began = time.monotonic()
            try:
                done = await self._step(state, step, number)
            except ImageBuildError:
                raise
            except (InvalidInputError, UnsupportedError, ImageInvalidError) as exc:
                raise _failed(exc, step.source, step.line) from None
            await self._report(
                msgspec.structs.replace(
                    done, number=self._number, seconds=round(time.monotonic() - began, 3)
                )
            )
        return state

    async def _begin_step(self, text: str, line: int, stage: Stage) -> None:
        self._number += 1
        await self._report(
            BuildStep(
                number=self._number, steps=self._steps, text=text[:4096], line=line,
                stage=stage.alias,
            )
        )  # fmt: skip

    async def _note(self, text: str) -> None:
        if len(self.notes) < _MAX_KEPT_NOTES:
            self.notes.append(text)
            await self._report(BuildNote(text=text))

    # -- where a stage begins --------------------------------------------------------------------

    async def _from(self, number: int, stage: Stage) -> State:
        for platform in (self._arguments.expand(stage.platform), self._request.platform):
            self._check_platform(platform)
        base = self._arguments.expand(stage.base)
        if not base:
            raise InvalidInputError("FROM names no image")
        if base == SCRATCH:
            return state_on(None, self._arguments, self._platform)
        earlier = self._earlier(base, number)
        if earlier is not None:
            return state_of(self._done[earlier], self._arguments)
        return state_on(await self._image(base), self._arguments, self._platform)

    def _check_platform(self, text: str) -> None:
        ours = self._platform
        if text and text not in (ours.words, f"{ours.os}/{ours.architecture}", ours.architecture):
            raise UnsupportedError(
                f"images for {text[:60]} can't be built here: this machine is {ours.words}",
                hint="leave --platform out, or build on such a machine",
            )

    def _earlier(self, name: str, number: int) -> int | None:
        """The stage before `number` of that name."""
        for index in reversed(range(number)):
            if self._build.stages[index].alias == name.lower():
                return index
        return None

    async def _image(self, name: str) -> StoredImage:
        """An image of elsewhere, here and unpacked, which stays as long as the build goes on."""
        pinned = await self._kernel.images.ready(name)
        return await in_thread(self._store.image, pinned.rpartition("@")[2])

    # -- steps -----------------------------------------------------------------------------------

    async def _step(self, state: State, step: Step, stage: int) -> BuildStepDone:
        if isinstance(step, Run):
            return await self._run(state, step)
        if isinstance(step, Copy):
            return await self._copy(state, step, stage)
        if isinstance(step, Arg):
            state.variables.declare(step)
            names = " ".join(name for name, _ in step.names)
            state.record(f"/bin/sh -c #(nop) ARG {names}", empty=True)
        elif state.changing.apply(step):
            if isinstance(step, Workdir):
                state.pending = state.changing.config.working_dir
                state.record(f"{WORKDIR_WORDS} {state.pending}", empty=True)
            else:
                state.record(f"/bin/sh -c #(nop) {step.source or step.name}", empty=True)
        else:
            raise UnsupportedError(f"{step.name} is no step of a build")
        return BuildStepDone(number=0)

    async def _run(self, state: State, step: Run) -> BuildStepDone:
        config = state.changing.config
        words = [] if step.script else state.changing.words_of(step.command)
        recorded = sorted(state.variables.recorded.items())
        told = " ".join(words) if words else step.script
        shown = f"|{len(recorded)} " + " ".join(f"{k}={v}" for k, v in recorded) + " "
        created_by = ((shown if recorded else "") + told)[:60_000]
        workdir = config.working_dir or "/"
        key = self._cache.key(
            state.diff_ids, "RUN", words, step.script, list(config.env or ()), recorded,
            config.user, workdir,
        )  # fmt: skip

        async def make() -> Layer:
            digest = await in_thread(state.write, self._store)
            task = Task(
                image=f"localhost/build@{digest}",
                words=words,
                script=step.script,
                environment=state.variables.of_a_command,
                user=config.user,
                workdir=workdir,
                spec=self._spec(f"localhost/build@{digest}", step),
                name=step.source or told,
                line=step.line,
                build=self._id,
            )
            notes: list[str] = []
            number = self._number

            async def write(text: str) -> None:
                await self._report(BuildOutput(number=number, text=text))

            layer = await run_task(
                self._kernel, self._store, self._worker, task, lambda: self._below(state), write,
                notes, lambda _: None, self._owner,
            )  # fmt: skip
            for note in notes:
                await self._note(f"line {step.line}: {note}")
            return layer

        return await self._layer(state, key, created_by, make)

    def _spec(self, image: str, step: Run) -> SandboxSpec:
        network = self._request.network
        if step.network == NONE:
            network = NetworkRequest(presets=[NONE])
        return SandboxSpec(
            image=image,
            profile=self._request.profile,
            user="root",
            toolchains=False,
            network=network,
            unlimited_disk=True,
            memory_bytes=self._request.memory_bytes,
            cpus=self._request.cpus,
        )

    def _below(self, state: State) -> Below:
        """Read only where something of ours has to be told from the image's own."""
        tree = self._tree(state)

        def content(path: str) -> bytes | None:
            node = tree.get(path)
            if node is None or node.entry.kind != "file" or node.entry.size > 1 << 20:
                return None
            place = node.entry.content
            if not isinstance(place, tuple):
                return None
            return next((b"".join(pieces()) for _, pieces in tree.contents([place])), None)

        return Below(lambda path: tree.get(path) is not None, content)

    async def _copy(self, state: State, step: Copy, stage: int) -> BuildStepDone:
        variables = state.variables
        sources = [variables.expand(source) for source in step.sources]
        target = variables.expand(step.target)
        if not target or not all(sources):
            raise InvalidInputError(f"{step.name} names nothing")
        files = [
            (one.name, (expand_raw(one.text, variables.all) if one.expands else one.text).encode())
            for one in step.heredocs
        ]
        mode = _mode(variables.expand(step.mode))
        image = await in_thread(self._tree, state)
        copying = Copying(
            source=self._context.tree,
            image=image,
            ids=self._ids(variables.expand(step.owner), image),
            mode=mode,
            now=int(time.time()),
        )
        workdir = state.changing.config.working_dir or "/"
        origin: ImageTree | None = None
        if step.extracts:
            copying.unpack = lambda entry: unpacked(entry, self._context)
        if step.origin:
            origin_ids, origin = await self._origin(step.origin, stage)
            copying.source = origin
            copying.what = step.origin
            copying.keys.append(("from", origin_ids, sources))
        await in_thread(copying.carry_out, sources, files, target, workdir)
        if state.pending:
            copying.keep_directory(joined("/", state.pending))
        hashed = BuildCache.hashed([*copying.keys, sorted(copying.items)])
        key = self._cache.key(state.diff_ids, step.name, hashed, copying.ids, copying.mode)
        words = f"{step.name} multi:{hashed} in {target} "

        async def make() -> Layer:
            return await in_thread(
                copied_layer, self._store, copying.items.values(), self._context, origin
            )

        return await self._layer(state, key, f"/bin/sh -c #(nop) {words}", make)

    async def _origin(self, name: str, stage: int) -> tuple[list[str], ImageTree]:
        """What COPY --from takes from, by its layers: an earlier stage, or an image."""
        earlier = self._earlier(name, stage)
        if earlier is None and name.isascii() and name.isdigit():
            if int(name) >= stage:
                raise InvalidInputError(f"there is no stage {name} before this one")
            earlier = int(name)
        if earlier is not None:
            state = self._done[earlier]
            await self._make_workdir(state)
            return state.diff_ids, await in_thread(self._tree, state)
        image = await self._image(name)
        blobs = [layer.digest for layer in image.manifest.layers]
        return image.config.rootfs.diff_ids, await in_thread(self._listings.tree, blobs)

    def _ids(self, owner: str, image: ImageTree) -> tuple[int, int] | None:
        if not owner:
            return None
        try:
            return ids_of(owner, image.text("etc/passwd"), image.text("etc/group"))
        except LookupError as exc:
            raise InvalidInputError(
                f"--chown={owner[:100]}: the image knows no {str(exc)[:100]}",
                hint="use numbers, or add it in a RUN before",
            ) from None

    # -- layers ----------------------------------------------------------------------------------

    async def _layer(
        self, state: State, key: str, created_by: str, make: Callable[[], Awaitable[Layer]]
    ) -> BuildStepDone:
        """The layer of a step: the one that is there, or a new one."""
        if len(state.layers) >= MAX_LAYERS:
            raise InvalidInputError(f"the image has more than {MAX_LAYERS} layers")
        self.layers += 1
        found = None if self._request.no_cache else await in_thread(self._cache.find, key)
        cached = found is not None
        if found is not None:
            self.cached += 1
            layer, created = found.layer, found.created
        else:
            layer, created = await make(), now_words()
            faults.point("build.layer")
            await in_thread(self._cache.keep, key, layer, created)
        state.add(layer, created_by, created)
        state.pending = ""
        return BuildStepDone(number=0, cached=cached, layer=layer.blob.digest, size=layer.blob.size)

    async def _make_workdir(self, state: State) -> None:
        """A WORKDIR that no step has come to need is there all the same."""
        path, state.pending = state.pending, ""
        if not path or path == "/":
            return
        tree = await in_thread(self._tree, state)
        _, node = tree.resolve(path)
        if node is not None:
            return
        copying = Copying(source=self._context.tree, image=tree, now=0)
        copying.keep_directory(path)
        layer = await in_thread(
            copied_layer, self._store, copying.items.values(), self._context, None
        )
        state.add_to_last(WORKDIR_WORDS, layer)

    def _add_labels(self, state: State) -> None:
        if self._request.labels:
            config = state.changing.config
            labels = {**(config.labels or {}), **self._request.labels}
            state.changing.config = msgspec.structs.replace(config, labels=labels)

    def _tree(self, state: State) -> ImageTree:
        """Blocking. The names of a stage as far as it has come; grown with it."""
        count, tree = self._trees.get(id(state), (0, ImageTree(self._store)))
        for digest in state.blobs[count:]:
            tree.add(digest, self._listings.of(digest))
        self._trees[id(state)] = (len(state.layers), tree)
        return tree


def _mode(text: str) -> int | None:
    if not text:
        return None
    try:
        mode = int(text, 8)
    except ValueError:
        mode = -1
    if not 0 <= mode <= 0o7777:
        raise InvalidInputError(
            f"--chmod={text[:40]} is not supported", hint="write the mode as a number, as in 0755"
        )
    return mode


def _failed(error: AgentKernelError, source: str, line: int) -> ImageBuildError:
    where = f"line {line}: " if line else ""
    return ImageBuildError(
        f"{where}{error.message}", hint=error.hint, step=source[:1000], line=line
    )
