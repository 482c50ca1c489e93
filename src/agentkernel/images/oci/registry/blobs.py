"""One blob on its way: gone on with where an earlier try ended, hashed while it comes, kept when it
is whole and what it should be.

What must hold: never more bytes than the manifest said; whoever is cancelled or killed leaves a
beginning that is right, for the next; of two who want the same blob one fetches it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import re
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import httpx2

from agentkernel.errors import (
    AgentKernelError,
    ImageInvalidError,
    NotFoundError,
    RateLimitedError,
    RegistryError,
    ResourceExhaustedError,
    StateError,
)
from agentkernel.images.oci.model import Descriptor
from agentkernel.images.oci.progress import PullProgress, Report, State
from agentkernel.images.oci.registry.client import RegistryClient, pause
from agentkernel.images.oci.registry.failures import Lost, broken
from agentkernel.images.oci.registry.settings import RegistrySettings
from agentkernel.images.oci.store import ImageStore, NewBlob

_BLOCK = 1 << 20
_SLOWEST = 4 << 10
_LOOK_SECONDS = 0.2
_REPORT_SECONDS = 0.1
# A try that brought as much was a good one: the tries are counted anew.
_GOOD_TRY = 1 << 20
_RANGE = re.compile(r"bytes ([0-9]{1,16})-([0-9]{1,16})/([0-9]{1,16}|\*)\Z")

T = TypeVar("T")


async def in_thread(call: Callable[[], T]) -> T:
    """As asyncio.to_thread, but it is done when this ends, even by being cancelled: no file is
    closed under a thread that writes to it."""
    future = asyncio.get_running_loop().run_in_executor(None, call)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([future])
        if not future.cancelled():
            future.exception()  # looked at: nobody else will
        raise


class Fetch:
    """One layer, for one pull."""

    def __init__(
        self,
        store: ImageStore,
        layer: Descriptor,
        settings: RegistrySettings,
        report: Report | None = None,
    ) -> None:
        self._store = store
        self._layer = layer
        self._settings = settings
        self._report = report
        self._reported = float("-inf")
        self.came = 0
        """Bytes that came over the network, those of broken tries included."""

    def tell(self, state: State, done: int) -> None:
        if self._report is not None:
            self._reported = time.monotonic()
            self._report(PullProgress(self._layer.digest, state, done, self._layer.size))

    async def run(self, clients: Sequence[RegistryClient]) -> None:
        """Raises typed errors only."""
        digest = self._layer.digest
        while not self._store.has_blob(digest):
            with self._store.partial_blob(digest) as blob:
                if blob is not None:
                    if self._store.has_blob(digest):  # the one we waited for was done meanwhile
                        blob.path.unlink()
                        break
                    await _Transfer(self, blob, clients).run()
                    break
                self.tell("elsewhere", self._others_size())
            await asyncio.sleep(_LOOK_SECONDS)
        require_size(self._store, self._layer)
        self.tell("fetched", self._layer.size)

    def _others_size(self) -> int:
        path = self._store.partial_path(self._layer.digest)
        with contextlib.suppress(OSError):
            return min(path.stat().st_size, self._layer.size)
        return 0

    def tell_bytes(self, done: int) -> None:
        if time.monotonic() - self._reported > _REPORT_SECONDS:
            self.tell("fetching", done)

    @property
    def layer(self) -> Descriptor:
        return self._layer

    @property
    def settings(self) -> RegistrySettings:
        return self._settings


class _Transfer:
    """The lock on the blob is held."""

    def __init__(self, fetch: Fetch, blob: NewBlob, clients: Sequence[RegistryClient]) -> None:
        self._fetch = fetch
        self._blob = blob
        self._clients = list(clients)
        self._size = fetch.layer.size
        self._digest = fetch.layer.digest
        self._hash = hashlib.sha256()
        self._written = 0
        self._resumed = False

    async def run(self) -> None:
        await in_thread(self._resume)
        self._fetch.tell("fetching", self._written)
        tries = 0
        while True:
            before = self._fetch.came
            try:
                if self._written == self._size:
                    await in_thread(self._keep)
                    return
                await self._try(self._clients[0])
            except Lost as lost:
                tries = 1 if self._fetch.came - before >= _GOOD_TRY else tries + 1
                pace = self._fetch.settings.pace
                if tries < pace.tries and (lost.wait or 0) <= pace.longest_pause:
                    await asyncio.sleep(pause(self._fetch.settings, tries, lost))
                    continue
                self._go_elsewhere(lost.error)
                tries = 0
            except ImageInvalidError as error:
                # A beginning that a power cut has spoiled must not stop every pull after it.
                await in_thread(self._restart)
                if self._resumed:
                    self._resumed = False
                else:
                    self._go_elsewhere(error)
                    tries = 0
            except (RegistryError, NotFoundError, RateLimitedError) as error:
                self._go_elsewhere(error)
                tries = 0

    def _go_elsewhere(self, error: AgentKernelError) -> None:
        """To the next place that may have it, as long as there is one."""
        if len(self._clients) == 1:
            if isinstance(error, NotFoundError):
                raise RegistryError(
                    f"{error.message}, though its manifest names it",
                    hint="the image is not complete there; push it again",
                ) from None
            raise error from None
        del self._clients[0]

    async def _try(self, client: RegistryClient) -> None:
        async with client.blob(self._digest, self._written) as response:
            if self._written and not self._goes_on(response):
                await in_thread(self._restart)
                if response.status_code != 200:
                    return
            left = self._size - self._written
            said = response.headers.get("content-length")
            if said is not None and said != str(left):
                raise self._wrong_size()
            await self._receive(response)
        if self._written < self._size:
            raise Lost(broken(client.endpoint.registry, "the layer ended too early"))

    def _goes_on(self, response: httpx2.Response) -> bool:
        """Whether it is just what is missing."""
        if response.status_code != 206:
            return False
        found = _RANGE.match(response.headers.get("content-range", ""))
        if found is None:
            return False
        first, last, whole = found.groups()
        return (int(first), int(last)) == (self._written, self._size - 1) and whole in (
            "*",
            str(self._size),
        )

    async def _receive(self, response: httpx2.Response) -> None:
        """Reads on while a thread hashes and writes what came before."""
        stall = self._fetch.settings.pace.stall
        window, in_window = time.monotonic(), 0
        block = bytearray()
        writing: asyncio.Task[None] | None = None
        try:
            async with contextlib.aclosing(response.aiter_raw()) as chunks:
                async for chunk in chunks:
                    block += chunk
                    self._fetch.came += len(chunk)
                    in_window += len(chunk)
                    now = time.monotonic()
                    if now - window > stall:
                        if in_window < _SLOWEST:
                            raise httpx2.ReadTimeout("it has all but stopped")
                        window, in_window = now, 0
                    if len(block) >= _BLOCK or len(block) + self._written > self._size:
                        if writing is not None:
                            await writing
                        writing = self._start_writing(block)
                        block = bytearray()
                    self._fetch.tell_bytes(min(self._written + len(block), self._size))
        finally:
            if writing is not None:
                await _finish(writing)
            if block:
                await _finish(self._start_writing(block))

    def _start_writing(self, block: bytearray) -> asyncio.Task[None]:
        return asyncio.ensure_future(in_thread(lambda: self._write(block)))

    def _write(self, block: bytearray) -> None:
        if self._written + len(block) > self._size:
            raise self._wrong_size()
        try:
            self._blob.write(memoryview(block))
        except OSError as error:
            # What of the block got there is unknown: not hashed, so not there.
            os.ftruncate(self._blob.fd, self._written)
            os.lseek(self._blob.fd, self._written, os.SEEK_SET)
            raise _disk(error) from None
        self._hash.update(block)
        self._written += len(block)

    def _resume(self) -> None:
        """What an earlier try has left is hashed, and gone on behind."""
        if self._blob.size() > self._size:
            self._restart()
        position = 0
        while data := os.pread(self._blob.fd, _BLOCK, position):
            self._hash.update(data)
            position += len(data)
        os.lseek(self._blob.fd, position, os.SEEK_SET)
        self._written = position
        self._resumed = position > 0

    def _restart(self) -> None:
        self._blob.truncate()
        self._hash = hashlib.sha256()
        self._written = 0

    def _keep(self) -> None:
        try:
            self._blob.keep(self._digest, actual=f"sha256:{self._hash.hexdigest()}")
        except OSError as error:
            raise _disk(error) from None

    def _wrong_size(self) -> ImageInvalidError:
        return ImageInvalidError(
            f"the layer {self._digest} comes with another size than the {self._size} bytes that its"
            " manifest says",
            hint="the registry, a mirror or something on the way changed it: do not trust it",
        )


async def _finish(task: asyncio.Task[None]) -> None:
    """Waits for it, though somebody cancels us meanwhile; then its error comes, or the cancel."""
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        task.exception()
        raise asyncio.CancelledError
    task.result()


def require_size(store: ImageStore, layer: Descriptor) -> None:
    """Raises ImageInvalidError: a manifest can say of a blob that is here that it is another."""
    size = store.blob_path(layer.digest).stat().st_size
    if size != layer.size:
        raise ImageInvalidError(
            f"the layer {layer.digest} has {size} bytes, and its manifest says {layer.size}"
        )


def _disk(error: OSError) -> AgentKernelError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ResourceExhaustedError(
            "the disk is full: the image was not fetched",
            hint="make room (agentkernel system prune), then pull again: what has come is kept",
        )
    return StateError(f"the image can't be written: {error.strerror}")
