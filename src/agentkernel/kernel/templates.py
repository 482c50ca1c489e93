"""Templates: `kernel.templates`. Built as images are, kept as images, started by themselves.

Like images they belong to nobody: who may manage sandboxes may build and remove them.
"""

from __future__ import annotations

import contextlib
from builtins import list as List
from typing import TYPE_CHECKING

import msgspec

from agentkernel.audit.trail import Trail, audited
from agentkernel.errors import AgentKernelError, ImageInvalidError, NotFoundError
from agentkernel.images.building.context import Context
from agentkernel.kernel.building.model import BuildNote, BuildRequest, Report
from agentkernel.kernel.store import SandboxRecord
from agentkernel.kernel.template_model import (
    Kept,
    Template,
    TemplateSpec,
    as_build,
    is_template,
    kept_in,
    reference_of,
    templates_of,
)
from agentkernel.kernel.threads import in_thread
from agentkernel.network.policy.request import NetworkRequest

if TYPE_CHECKING:
    from agentkernel.kernel.kernel import Kernel
    from agentkernel.kernel.template_sources import SourceRequest


class Templates:
    """See the module."""

    def __init__(self, kernel: Kernel, trail: Trail) -> None:
        self._kernel = kernel
        self.trail = trail

    @audited("template.build")
    async def build(
        self,
        name: str,
        template: TemplateSpec,
        context: Context,
        wanted: BuildRequest,
        *,
        report: Report,
        source: str = "",
        owner: str = "local",
    ) -> Template:
        """Its steps are carried out in sandboxes, as those of a Dockerfile; what was built before
        is taken from the cache. One of the same name is replaced: sandboxes that were made from it
        keep what they were made from. Raises ImageBuildError, InvalidInputError, UnsupportedError.
        """
        reference = reference_of(name)
        build = as_build(template, source)
        self.trail.found(None, name)
        await self._kernel.builds.build(
            build,
            context,
            msgspec.structs.replace(wanted, tags=[reference]),
            report=report,
            owner=owner,
        )
        return await self.get(name)

    @audited("template.build")
    async def build_source(
        self,
        name: str,
        repository: SourceRequest,
        *,
        no_cache: bool = False,
        report: Report,
        owner: str = "local",
    ) -> Template:
        """Of a git repository: cloned in a sandbox, its runtime found out, its dependencies
        installed. Raises ImageBuildError, InvalidInputError, NotFoundError."""
        from agentkernel.kernel.template_sources import Source, fetch, spec_for

        reference_of(name)
        source = Source.parse(repository.source)
        self.trail.found(None, name)
        with self._kernel.builds.context() as context:
            commit, files = await fetch(self._kernel, source, context, report, owner)
            spec, found = spec_for(repository, files)
            if found is not None:
                await report(BuildNote(text=f"{found.why}; on {spec.base}"))
            return await self.build(
                name,
                spec,
                context,
                # Dependencies come from registries, and often from where the project is.
                BuildRequest(
                    no_cache=no_cache, network=NetworkRequest(allow=source.network().allow)
                ),
                report=report,
                source=f"{source.url}@{commit}",
                owner=owner,
            )

    async def list(self) -> List[Template]:
        """By name."""
        store = self._kernel.images.store

        def look() -> List[Template]:
            found: List[Template] = []
            for image in store.images():
                with contextlib.suppress(ImageInvalidError):
                    found += templates_of(image)
            return sorted(found, key=lambda template: template.name)

        return await in_thread(look)

    async def get(self, name: str) -> Template:
        """Raises NotFoundError."""
        reference, store = reference_of(name), self._kernel.images.store

        def look() -> Template | None:
            digest = store.find_digest(reference)
            found = [] if digest is None else templates_of(store.image(digest))
            return next((template for template in found if template.name == name), None)

        found = await in_thread(look)
        if found is None:
            raise NotFoundError(
                f"there is no template {name}", hint="`agentkernel template list` shows all"
            )
        return found

    @audited("template.remove")
    async def remove(self, name: str, *, force: bool = False, owner: str | None = None) -> None:
        """ConflictError while sandboxes stand on it; `force` takes the name away, and they keep
        what they need."""
        template = await self.get(name)
        self.trail.found(None, name)
        await self._kernel.images.remove(template.image, force=force, owner=owner)

    # -- sandboxes -------------------------------------------------------------------------------

    async def begin(self, record: SandboxRecord, *, new: bool) -> SandboxRecord:
        """Runs the start command of a sandbox that was made from a template, and returns when it is
        ready. Raises NotReadyError; a new sandbox is gone then, another one runs on."""
        kept = await self._kept_of(record)
        if kept is None or (kept.start is None and kept.ready is None):
            return record
        from agentkernel.kernel.template_starting import start_and_wait

        try:
            await start_and_wait(self._kernel, record, kept)
        except BaseException:
            if new:
                with contextlib.suppress(AgentKernelError):
                    await self._kernel.remove(record.id, reason="it did not get ready")
            raise
        return record

    async def _kept_of(self, record: SandboxRecord) -> Kept | None:
        image = str(record.blueprint.get("image", ""))
        if not is_template(image):
            return None
        store = self._kernel.images.store
        return await in_thread(lambda: kept_in(store.image(image.rpartition("@")[2])))
