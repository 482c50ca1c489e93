"""How a kit is made: a definition's steps in one sandbox, a look at what came of them in another.

The first has the empty kit, package registries, hosts that the definition names and this machine's
programs: what a package runs while it is installed reaches nothing else. The second has the kit
read-only and no network; what is looked at there is looked at before anything of the kit is run.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import hashlib
import shlex
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from agentkernel import faults
from agentkernel.agents.commands import (
    Fill,
    check_command,
    install_environment,
    install_path,
    install_steps,
    path_entries,
)
from agentkernel.agents.definition import AgentDefinition
from agentkernel.backends.base import VolumeMount
from agentkernel.errors import AgentInstallError, NotFoundError, SandboxUnavailableError
from agentkernel.guest.processes import ExitStatus, Outcome, ProcessOptions
from agentkernel.kernel.agents.kit_model import KITS, KitLock
from agentkernel.kernel.building.model import (
    BuildNote,
    BuildOutput,
    BuildStarted,
    BuildStep,
    BuildStepDone,
    Report,
)
from agentkernel.kernel.building.running import LastLines, ending, while_space
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.kernel.volumes import OURS
from agentkernel.network.policy.presets import NONE
from agentkernel.network.policy.request import NetworkRequest

if TYPE_CHECKING:
    from agentkernel.kernel.kernel import Kernel

LABEL: Final = "agentkernel.kit"
HOME: Final = "/root"
STEP_SECONDS: Final = 900.0
CHECK_SECONDS: Final = 120.0
_MISSING: Final = 'for word do command -v "$word" >/dev/null || echo "$word"; done'
_WITH_PATH: Final = 'PATH="$0:$PATH" exec "$@"'
# Lock files at the top, and what each installed package says of itself.
_LOCKS: Final = (
    'cd "$0" && find . -xdev -type f \\( '
    "-name .package-lock.json -o -name package-lock.json -o -name uv.lock "
    '-o -path "*/node_modules/*/package.json" -o -path "*.dist-info/RECORD" '
    "\\) -print0 | LC_ALL=C sort -z | xargs -0r sha256sum"
)
_KINDS: Final = {
    "/package.json": "node_modules/*/package.json",
    ".dist-info/RECORD": "*.dist-info/RECORD",
}
_MAX_LOCKS: Final = 32
# Of a script its beginning is shown.
_MAX_TEXT: Final = 160
# The last line of every npm that fails, about a file that is gone with the sandbox.
_LOG: Final = "A complete log of this run"


async def install(
    kernel: Kernel,
    definition: AgentDefinition,
    mount: VolumeMount,
    host_env: Mapping[str, str],
    report: Report,
) -> list[KitLock]:
    """Fills the volume of `mount`. Raises AgentInstallError; then there is nothing to be used."""
    place = f"{KITS}/{definition.name}"
    fill = Fill(kit=place, version=definition.version, home=HOME, workspace=HOME)
    kit = msgspec.structs.replace(mount, path=place)
    work = _Work(kernel, definition, fill, host_env, report)
    await work.carry_out(kit)
    faults.point("kit.filled")
    locks = await work.look(msgspec.structs.replace(kit, read_only=True))
    faults.point("kit.checked")
    return locks


class _Work:
    """One installation."""

    def __init__(
        self,
        kernel: Kernel,
        definition: AgentDefinition,
        fill: Fill,
        host_env: Mapping[str, str],
        report: Report,
    ) -> None:
        self._kernel = kernel
        self._definition = definition
        self._fill = fill
        self._host_env = dict(host_env)
        self._report = report
        self._steps = install_steps(definition, fill)
        self._check = check_command(definition, fill)
        self._environment = install_environment(definition, fill)
        self._count = len(self._steps) + bool(self._check)

    async def carry_out(self, kit: VolumeMount) -> None:
        await self._report(BuildStarted(steps=self._count))
        if not self._steps:
            return
        reach = NetworkRequest(presets=["registries"], allow=list(self._definition.install.hosts))
        async with self._sandbox(kit, reach) as id:
            await self._refuse_missing(id)
            entries = install_path(self._definition, self._fill)
            for number, words in enumerate(self._steps, 1):
                work = self._step(id, number, words, entries, STEP_SECONDS)
                await while_space(self._kernel, work)

    async def look(self, kit: VolumeMount) -> list[KitLock]:
        async with self._sandbox(kit, NetworkRequest(presets=[NONE])) as id:
            locks = await self._locks(id)
            if self._check:
                entries = path_entries(self._definition, self._fill)
                await self._step(id, self._count, self._check, entries, CHECK_SECONDS)
            return locks

    @contextlib.asynccontextmanager
    async def _sandbox(self, kit: VolumeMount, network: NetworkRequest) -> AsyncIterator[str]:
        """It ends with this process. Nobody but us finds it, so nobody adds to the kit."""
        spec = SandboxSpec(
            host_env=self._host_env,
            network=network,
            unlimited_disk=True,
        )
        record = await self._kernel.create(
            spec, owner=OURS, labels={LABEL: self._definition.name}, owned=True, mounts=[kit]
        )
        try:
            yield record.id
        finally:
            with contextlib.suppress(NotFoundError):
                await asyncio.shield(self._kernel.remove(record.id, reason="its kit is done"))

    async def _refuse_missing(self, id: str) -> None:
        needs = self._definition.install.needs
        if not needs:
            return
        done = await self._kernel.run(id, ["sh", "-c", _MISSING, "sh", *needs])
        missing = done.stdout.decode(errors="replace").split()
        if missing:
            name = self._definition.name
            raise AgentInstallError(
                f"{name} can't be installed: this machine has no {', '.join(missing)}",
                hint=self._definition.install.needs_hint
                or f"install {' and '.join(missing)}, then: agentkernel agent install {name}",
                agent=name,
                missing=missing,
            )

    async def _step(
        self, id: str, number: int, words: Sequence[str], path: Sequence[str], seconds: float
    ) -> None:
        """`path`: directories that stand first in PATH."""
        text = " ".join(shlex.join(words).split())
        await self._report(BuildStep(number=number, steps=self._count, text=text[:_MAX_TEXT]))
        began = time.monotonic()
        last, decoder = LastLines(), codecs.getincrementaldecoder("utf-8")("replace")
        options = ProcessOptions(
            env={"HOME": HOME, **self._environment}, cwd=HOME, timeout_seconds=seconds
        )
        argv = ["sh", "-c", _WITH_PATH, ":".join(path), *words] if path else words
        async with self._kernel.exec(id, argv, options) as process:
            with contextlib.suppress(SandboxUnavailableError):
                while (part := await process.output()) is not None:
                    if piece := decoder.decode(part.data):
                        last.add(piece)
                        await self._report(BuildOutput(number=number, text=piece))
            status = await self._kernel.judge(id, process.status)
        if status.outcome is not Outcome.EXITED or status.exit_code != 0:
            raise self._failure(number, text, status, last.lines())
        took = round(time.monotonic() - began, 3)
        await self._report(BuildStepDone(number=number, seconds=took))

    def _failure(
        self, number: int, text: str, status: ExitStatus, output: list[str]
    ) -> AgentInstallError:
        name = self._definition.name
        lines = [line.strip() for line in output if line.strip() and _LOG not in line]
        said = " | ".join(lines[-4:])
        what = (
            f"{name} is installed but does not work"
            if number > len(self._steps)
            else f"{name} can't be installed: step {number} of {len(self._steps)}"
        )
        return AgentInstallError(
            f"{what}: {ending(status)}: {text[:80]}" + (f": {said[:400]}" if said else ""),
            hint=f"all that it wrote: agentkernel agent install {name}; what it may reach while it "
            "is installed are the package registries that this machine's own clients use",
            agent=name,
            step=text[:1000],
            exit_code=status.exit_code,
            output=output,
        )

    async def _locks(self, id: str) -> list[KitLock]:
        done = await self._kernel.run(
            id, ["sh", "-c", _LOCKS, self._fill.kit], ProcessOptions(timeout_seconds=CHECK_SECONDS)
        )
        if done.status.exit_code != 0 or done.truncated:
            await self._report(BuildNote(text="which packages it has could not be looked at"))
            return []
        return _locks_of(done.stdout)


def _locks_of(listing: bytes) -> list[KitLock]:
    """From lines `HASH  ./PATH`; a name that is no plain one has a backslash before its line."""
    locks: list[KitLock] = []
    kinds: dict[str, list[bytes]] = {}
    for line in listing.splitlines():
        digest, _, name = line.lstrip(b"\\").partition(b"  ./")
        path = name.decode(errors="replace")
        kind = next((shown for end, shown in _KINDS.items() if path.endswith(end)), None)
        if kind is not None:
            kinds.setdefault(kind, []).append(line)
        elif path.count("/") <= 2 and len(locks) < _MAX_LOCKS:
            locks.append(KitLock(path=path[:200], sha256=digest.decode(errors="replace")[:64]))
    for kind, lines in kinds.items():
        digest_of_all = hashlib.sha256(b"\n".join(lines)).hexdigest()
        locks.append(KitLock(path=kind, sha256=digest_of_all, files=len(lines)))
    return locks
