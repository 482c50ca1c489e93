"""The images of this user: blobs by digest, and names for some of them. Files only, no daemon.

images/blobs/sha256/<hex>   manifests, configs and layers as they came; a name that exists is
                            whole and was verified
images/partial/<hex>        a blob on its way; whoever fetches it holds a lock on it, and what a
                            killed fetcher left is gone on with
images/partial/.stage-…/    files of an archive that is being read
images/names/<hash>.json    a name, and the digest of its manifest
images/layers/              layers, unpacked (images/cache.py)
images/lock                 shared while something is added, exclusive while something is
                            removed: nothing goes that somebody is about to use
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from agentkernel.errors import (
    ConflictError,
    ImageInvalidError,
    InvalidInputError,
    NotFoundError,
)
from agentkernel.images.oci.model import (
    MAX_DOCUMENT,
    ImageConfig,
    Manifest,
    decode_config,
    decode_manifest,
)
from agentkernel.images.oci.reference import is_digest, parse_reference
from agentkernel.space import Watched, require_space

_SHORT_ID = re.compile(r"[0-9a-f]{6,64}\Z")
_COPY_BYTES = 1 << 20


class Name(msgspec.Struct, frozen=True, kw_only=True):
    """`name` is a complete reference, `digest` that of the manifest for this machine, `source` that
    of the index it was chosen from, if there was one."""

    name: str
    digest: str
    source: str = ""
    tagged_at: float


@dataclass(frozen=True)
class StoredImage:
    """An image that is here. `names` may be none: then only sandboxes or digests know it."""

    digest: str
    manifest: Manifest
    config: ImageConfig
    names: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """As docker counts: the digest of the config."""
        return self.manifest.config.digest

    @property
    def size(self) -> int:
        """Of its layers as they are kept, compressed."""
        return sum(layer.size for layer in self.manifest.layers)


class ImageStore:
    """See the module. Every call blocks on the disk only."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self._blobs = self.directory / "blobs" / "sha256"
        self._partial = self.directory / "partial"
        self._names = self.directory / "names"

    # -- who may add, who may remove -------------------------------------------------------------

    @contextlib.contextmanager
    def adding(self) -> Iterator[None]:
        """Held from before the first blob of an image is looked for until it has a name."""
        fd = self._open_lock()
        try:
            fcntl.flock(fd, fcntl.LOCK_SH)
            yield
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def removing(self) -> Iterator[None]:
        """Raises ConflictError while somebody adds an image."""
        fd = self._open_lock()
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConflictError(
                    "an image is being fetched or built", hint="try again when it is done"
                ) from None
            yield
        finally:
            os.close(fd)

    def _open_lock(self) -> int:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    # -- blobs -----------------------------------------------------------------------------------

    def blob_path(self, digest: str) -> Path:
        if not is_digest(digest):
            raise InvalidInputError(f"{digest[:100]!r} is no digest")
        return self._blobs / digest.removeprefix("sha256:")

    def has_blob(self, digest: str) -> bool:
        return self.blob_path(digest).is_file()

    def read_document(self, digest: str) -> bytes:
        """A manifest, index or config. Raises ImageInvalidError where it is missing or damaged."""
        try:
            with open(self.blob_path(digest), "rb") as file:
                content = file.read(MAX_DOCUMENT + 1)
        except FileNotFoundError:
            raise _missing(digest) from None
        if digest_of(content) != digest:
            raise ImageInvalidError(
                f"the stored file of {digest} is damaged", hint="remove the image and pull it again"
            )
        return content

    def put_document(self, content: bytes) -> str:
        """Its digest."""
        digest = digest_of(content)
        with self.new_blob() as blob:
            blob.write(content)
            blob.keep(digest)
        return digest

    @contextlib.contextmanager
    def new_blob(self) -> Iterator[NewBlob]:
        """A blob whose digest is not known yet: gone again unless it is kept. Raises
        ResourceExhaustedError where the disk is nearly full."""
        require_space(self.directory)
        self._partial.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._partial / f".new-{os.getpid()}-{os.urandom(6).hex()}"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield NewBlob(self, path, fd)
        finally:
            os.close(fd)
            with contextlib.suppress(FileNotFoundError):
                path.unlink()

    def partial_path(self, digest: str) -> Path:
        return self._partial / self.blob_path(digest).name

    @contextlib.contextmanager
    def partial_blob(self, digest: str) -> Iterator[NewBlob | None]:
        """A blob on its way, with what an earlier try has fetched of it; None: somebody else is
        fetching it this moment. What is not kept stays for the next try."""
        self._partial.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.partial_path(digest)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_this = os.path.samestat(os.stat(path), os.fstat(fd))
            except (BlockingIOError, FileNotFoundError):
                is_this = False
            yield NewBlob(self, path, fd) if is_this else None
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def staging(self) -> Iterator[Path]:
        """A directory for files that may become blobs; at the end it is gone, with the others."""
        path = self._partial / f".stage-{os.getpid()}-{os.urandom(6).hex()}"
        path.mkdir(mode=0o700, parents=True)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def adopt(self, path: Path, digest: str) -> None:
        """Makes a file from `staging` a blob. Preconditions: its writer has counted its digest."""
        target = self.blob_path(digest)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fdatasync(fd)
        finally:
            os.close(fd)
        os.rename(path, target)

    # -- names and images ------------------------------------------------------------------------

    def tag(self, name: str, digest: str, *, source: str = "") -> None:
        """From now on `name`, a complete reference, is that manifest's."""
        self._names.mkdir(mode=0o700, parents=True, exist_ok=True)
        entry = Name(name=name, digest=digest, source=source, tagged_at=time.time())
        new = self._names / f".new-{os.urandom(6).hex()}"
        new.write_bytes(msgspec.json.encode(entry))
        new.rename(self._name_path(name))

    def untag(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._name_path(name).unlink()

    def names(self) -> list[Name]:
        found = []
        for path in sorted(self._names.glob("*.json")):
            with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError):
                found.append(msgspec.json.decode(path.read_bytes(), type=Name))
        return sorted(found, key=lambda entry: entry.name)

    def _name_path(self, name: str) -> Path:
        return self._names / f"{hashlib.sha256(name.encode()).hexdigest()[:40]}.json"

    def image(self, digest: str) -> StoredImage:
        """By its manifest's digest. Raises ImageInvalidError where a document is missing."""
        manifest = decode_manifest(self.read_document(digest))
        config = decode_config(self.read_document(manifest.config.digest), manifest)
        names = tuple(entry.name for entry in self.names() if entry.digest == digest)
        return StoredImage(digest, manifest, config, names)

    def images(self) -> list[StoredImage]:
        """All that have a name. What is damaged is left out: its name says so when it is used."""
        found = []
        for digest in sorted({entry.digest for entry in self.names()}):
            with contextlib.suppress(ImageInvalidError):
                found.append(self.image(digest))
        return found

    def find(self, text: str) -> StoredImage:
        """By reference, by a digest (manifest, index, config) or by the beginning of an id. Raises
        NotFoundError, InvalidInputError."""
        digest = self.find_digest(text)
        if digest is None:
            raise NotFoundError(
                f"no image {text[:200]!r} is here", hint=f"fetch it: agentkernel image pull {text}"
            )
        return self.image(digest)

    def find_digest(self, text: str) -> str | None:
        """The manifest's digest, if the image is here."""
        if is_digest(text) or _SHORT_ID.match(text):
            if found := self._by_id(text.removeprefix("sha256:")):
                return found
            if is_digest(text):
                return text if self._is_manifest(text) else None
        reference = parse_reference(text)
        for entry in self.names():
            if not reference.digest and entry.name == reference.name:
                return entry.digest
            if reference.digest and reference.digest in (entry.digest, entry.source):
                return entry.digest
        if reference.digest and self._is_manifest(reference.digest):
            return reference.digest
        return None

    def _by_id(self, prefix: str) -> str | None:
        found = set()
        for entry in self.names():
            for digest in (entry.digest, entry.source):
                if digest.removeprefix("sha256:").startswith(prefix):
                    found.add(entry.digest)
            with contextlib.suppress(ImageInvalidError):
                if self.image(entry.digest).id.removeprefix("sha256:").startswith(prefix):
                    found.add(entry.digest)
        if len(found) > 1:
            raise InvalidInputError(f"{prefix} begins the ids of {len(found)} images")
        return next(iter(found), None)

    def _is_manifest(self, digest: str) -> bool:
        """An image without a name that a sandbox still stands on."""
        try:
            decode_manifest(self.read_document(digest))
        except ImageInvalidError:
            return False
        return True

    # -- care ------------------------------------------------------------------------------------

    def unused_blobs(self, in_use: Collection[str] = ()) -> dict[str, int]:
        """Digests and sizes of blobs that neither a name nor `in_use` (manifests' digests) needs.
        Preconditions: `removing` is held."""
        needed: set[str] = set()
        for digest in {*(entry.digest for entry in self.names()), *in_use}:
            needed.add(digest)
            with contextlib.suppress(ImageInvalidError):
                manifest = decode_manifest(self.read_document(digest))
                needed |= {manifest.config.digest, *(layer.digest for layer in manifest.layers)}
        needed |= {entry.source for entry in self.names()}
        unused = {}
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self._blobs):
                if f"sha256:{entry.name}" not in needed:
                    unused[f"sha256:{entry.name}"] = entry.stat().st_blocks * 512
        return unused

    def remove_blobs(self, digests: Collection[str]) -> None:
        """Preconditions: `removing` is held."""
        for digest in digests:
            with contextlib.suppress(FileNotFoundError):
                self.blob_path(digest).unlink()

    def remove_partial(self) -> int:
        """What nobody fetches any more; the bytes that were freed. Preconditions: as above."""
        freed = 0
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self._partial):
                if entry.is_dir(follow_symlinks=False):
                    freed += sum(one.stat().st_blocks * 512 for one in os.scandir(entry.path))
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    freed += entry.stat().st_blocks * 512
                    os.unlink(entry.path)
        return freed


class NewBlob:
    """A blob that is being written, from ImageStore."""

    def __init__(self, store: ImageStore, path: Path, fd: int) -> None:
        self._store = store
        self._path = path
        self._fd = fd
        self._space = Watched(store.directory)

    @property
    def fd(self) -> int:
        return self._fd

    @property
    def path(self) -> Path:
        return self._path

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self) -> None:
        os.ftruncate(self._fd, 0)
        os.lseek(self._fd, 0, os.SEEK_SET)

    def write(self, content: bytes | memoryview) -> None:
        self._space.add(len(content))
        view = memoryview(content)
        while view:
            view = view[os.write(self._fd, view) :]

    def keep(self, digest: str, *, actual: str | None = None) -> None:
        """Verifies all of it, then it is there under its digest. Raises ImageInvalidError, and then
        nothing of it is left for a later try. `actual`: its digest, from a writer that has hashed
        every byte on its way."""
        actual = actual or self.digest()
        if actual != digest:
            self.truncate()
            raise ImageInvalidError(
                f"what came as {digest} has the digest {actual}",
                hint="the registry or something on the way changed it; try again",
            )
        os.fdatasync(self._fd)
        target = self._store.blob_path(digest)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.rename(self._path, target)

    def digest(self) -> str:
        hashed = hashlib.sha256()
        position = 0
        while block := os.pread(self._fd, _COPY_BYTES, position):
            hashed.update(block)
            position += len(block)
        return f"sha256:{hashed.hexdigest()}"


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _missing(digest: str) -> ImageInvalidError:
    return ImageInvalidError(
        f"the image is not complete: {digest} is missing", hint="pull it again"
    )
