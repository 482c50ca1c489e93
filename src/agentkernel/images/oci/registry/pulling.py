"""An image from a registry: index, manifest, config, layers; then it has its name.

Nothing has a name before all of it is here and verified. What is here is not fetched again, and of
a digest that is here whole nobody is asked at all.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace

from agentkernel.errors import (
    AgentKernelError,
    ImageInvalidError,
    NotFoundError,
    RateLimitedError,
    RegistryError,
)
from agentkernel.images.oci.kinds import decode_document
from agentkernel.images.oci.model import (
    Descriptor,
    ImageConfig,
    Index,
    Manifest,
    Platform,
    choose,
    decode_config,
    this_platform,
)
from agentkernel.images.oci.progress import Report
from agentkernel.images.oci.reference import Reference
from agentkernel.images.oci.registry.blobs import Fetch, in_thread, require_size
from agentkernel.images.oci.registry.client import RegistryClient, require_digest
from agentkernel.images.oci.registry.hosts import endpoints
from agentkernel.images.oci.registry.settings import RegistrySettings, user_settings
from agentkernel.images.oci.store import ImageStore
from agentkernel.space import require_space

Prepare = Callable[[str], Awaitable[None]]
_Ask = Callable[[RegistryClient], Awaitable[tuple[bytes, str]]]


@dataclass(frozen=True)
class Pulled:
    """`digest` is that of the manifest for this machine, `source` that of the index it was chosen
    from, `name` what it is now called here, `registry` who gave it."""

    digest: str
    name: str
    source: str
    registry: str
    platform: str
    layers: int
    layers_present: int
    downloaded_bytes: int


async def pull(
    store: ImageStore,
    reference: Reference,
    *,
    platform: Platform | None = None,
    progress: Report | None = None,
    prepare: Prepare | None = None,
    settings: RegistrySettings | None = None,
) -> Pulled:
    """`prepare` is called with the manifest's digest when all is here, before it has a name.
    Settings that are not given are the user's.

    Raises NotFoundError, RegistryError, RegistryDeniedError, RateLimitedError,
    ImageInvalidError, ResourceExhaustedError, InvalidInputError. Cancelled or killed it leaves what
    has come, and the next pull goes on with it."""
    if settings is None:
        settings = await in_thread(user_settings)
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(_adding(store))
        clients = [
            await stack.enter_async_context(RegistryClient(endpoint, settings))
            for endpoint in endpoints(reference, settings)
        ]
        return await _Pull(store, reference, platform, progress, settings, clients).run(prepare)


class _Pull:
    def __init__(
        self,
        store: ImageStore,
        reference: Reference,
        platform: Platform | None,
        progress: Report | None,
        settings: RegistrySettings,
        clients: list[RegistryClient],
    ) -> None:
        self._store = store
        self._reference = reference
        self._platform = platform or this_platform()
        self._progress = progress
        self._settings = settings
        # The one that had the manifest comes first; the others may have what it lacks.
        self._clients = clients

    async def run(self, prepare: Prepare | None) -> Pulled:
        what = f"image {self._reference.familiar}"
        digest, document, said = await self._named(what)
        source = ""
        found = decode_document(document, said)
        for nested in (False, True):
            if isinstance(found, Manifest):
                break
            source = source or digest
            entry = choose(found, self._platform)
            digest, document, said = await self._described(entry, f"the manifest of {what}")
            found = decode_document(document, said)
            if nested and isinstance(found, Index):
                raise ImageInvalidError("the image is an index of indexes of indexes")
        assert isinstance(found, Manifest)
        config = await self._config(found, what)
        self._require_platform(config)
        layers = {layer.digest: layer for layer in found.layers}
        present = {each for each in layers if self._store.has_blob(each)}
        came = await self._layers(list(layers.values()), present)
        if prepare is not None:
            await prepare(digest)
        name = self._name()
        await in_thread(lambda: self._store.tag(name, digest, source=source))
        return Pulled(
            digest=digest,
            name=name,
            source=source,
            registry=self._clients[0].endpoint.registry,
            platform=Platform(config.architecture, config.os, config.variant).words,
            layers=len(layers),
            layers_present=len(present),
            downloaded_bytes=came,
        )

    def _name(self) -> str:
        """Of a digest its own: whether a tag that stands beside it means the same, nobody said."""
        reference = self._reference
        return str(replace(reference, tag="")) if reference.digest else reference.name

    # -- documents -------------------------------------------------------------------------------

    async def _named(self, what: str) -> tuple[str, bytes, str]:
        """Digest, bytes and media type of what the reference names."""
        wanted = self._reference.digest
        if wanted and (here := await self._stored(wanted)) is not None:
            return wanted, here, ""
        document, said = await self._from_any(
            lambda client: _fetched(client, wanted or self._reference.tag, wanted, what)
        )
        return await in_thread(lambda: self._store.put_document(document)), document, said

    async def _described(
        self, entry: Descriptor, what: str, *, blob: bool = False
    ) -> tuple[str, bytes, str]:
        if (here := await self._stored(entry.digest)) is not None and len(here) == entry.size:
            return entry.digest, here, ""
        document, said = await self._from_any(
            lambda client: client.verified_document(entry, what=what, blob=blob)
        )
        return await in_thread(lambda: self._store.put_document(document)), document, said

    async def _stored(self, digest: str) -> bytes | None:
        """None also for one that is damaged: it is fetched anew."""
        if not self._store.has_blob(digest):
            return None
        with contextlib.suppress(ImageInvalidError):
            return await in_thread(lambda: self._store.read_document(digest))
        return None

    async def _from_any(self, ask: _Ask) -> tuple[bytes, str]:
        """From the first place that has it. Of the errors that of the last one counts: it is the
        registry itself, the others are mirrors."""
        for client in list(self._clients):
            try:
                found = await ask(client)
            except (RegistryError, NotFoundError, RateLimitedError, ImageInvalidError):
                if client is self._clients[-1]:
                    raise
                continue
            self._clients.sort(key=lambda each: each is not client)
            return found
        raise AssertionError("a reference has at least one endpoint")

    async def _config(self, manifest: Manifest, what: str) -> ImageConfig:
        _, document, _ = await self._described(manifest.config, f"the config of {what}", blob=True)
        return decode_config(document, manifest)

    def _require_platform(self, config: ImageConfig) -> None:
        wanted = self._platform
        # Some tools leave both empty.
        if config.os not in ("", wanted.os) or config.architecture not in ("", wanted.architecture):
            words = Platform(config.architecture, config.os, config.variant).words
            raise ImageInvalidError(
                f"the image is for {words}, not for {wanted.words}",
                hint="choose another tag; --platform says for which machine an image is fetched",
            )

    # -- layers ----------------------------------------------------------------------------------

    async def _layers(self, layers: list[Descriptor], present: set[str]) -> int:
        """How many bytes came."""
        fetches = []
        for layer in layers:
            fetch = Fetch(self._store, layer, self._settings, self._progress)
            if layer.digest in present:
                require_size(self._store, layer)
                fetch.tell("present", layer.size)
            else:
                fetch.tell("waiting", 0)
                fetches.append(fetch)
        self._require_space([fetch.layer for fetch in fetches])
        free = asyncio.Semaphore(self._settings.parallel)

        async def one(fetch: Fetch) -> None:
            async with free:
                await fetch.run(self._clients)

        try:
            async with asyncio.TaskGroup() as group:
                for fetch in fetches:
                    group.create_task(one(fetch))
        except BaseExceptionGroup as errors:
            raise _first(errors) from None
        return sum(fetch.came for fetch in fetches)

    def _require_space(self, layers: list[Descriptor]) -> None:
        """Before anything is fetched that could not be kept."""
        needed = 0
        for layer in layers:
            path = self._store.partial_path(layer.digest)
            here = path.stat().st_size if path.exists() else 0
            needed += max(0, layer.size - here)
        if needed:
            require_space(self._store.directory, needed)


async def _fetched(client: RegistryClient, name: str, wanted: str, what: str) -> tuple[bytes, str]:
    document, said = await client.document(name, what=what)
    if wanted:
        require_digest(document, wanted, what)
    return document, said


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one that ended the others."""
    for error in errors.exceptions:
        if isinstance(error, AgentKernelError):
            return error
    found = errors.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found


@contextlib.asynccontextmanager
async def _adding(store: ImageStore) -> AsyncIterator[None]:
    holding = store.adding()
    held = False

    def enter() -> None:
        nonlocal held
        holding.__enter__()
        held = True

    try:
        await in_thread(enter)
        yield
    finally:
        if held:
            holding.__exit__(None, None, None)
