"""From a stored image to what an engine needs: its layers as one stack, and what its config says.

Of the config count user, environment, working directory, entrypoint and command
(docs/concepts/images.md). The image's own files are never changed: what a sandbox of it needs
besides is a layer of ours below it, and one above it where ownership is emulated.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from agentkernel.errors import ImageInvalidError, InvalidInputError
from agentkernel.images import etc
from agentkernel.images.accounts import Account
from agentkernel.images.cache import Progress, StrPath, key_of, layer
from agentkernel.images.directory import floor
from agentkernel.images.host import DEFAULT_PATH
from agentkernel.images.model import IdView, RootFilesystem, Stack
from agentkernel.images.oci.layers import ensure_layers
from agentkernel.images.oci.model import ContainerConfig
from agentkernel.images.oci.reference import LOCAL, parse_reference
from agentkernel.images.oci.store import ImageStore, StoredImage
from agentkernel.images.oci.work import LayerWorker
from agentkernel.images.view import View

VERSION = 1
APT_PLACES = ("/usr/bin/apt-get", "/usr/bin/apt")
APT_CONF = "etc/apt/apt.conf.d/98agentkernel-one-id"
APT_TEXT = """\
// Written by agentkernel: this sandbox has one user id, so apt can't become another user for its
// downloads.
APT::Sandbox::User "root";
"""


@dataclass(frozen=True)
class UnpackedImage:
    """A stored image whose layers are directories, topmost first. `reference` is pinned."""

    reference: str
    digest: str
    process: ContainerConfig
    layers: tuple[str, ...]

    @property
    def view(self) -> View:
        return View([("/", self.layers)])


def unpack_image(
    reference: str, cache_dir: StrPath, worker: LayerWorker, progress: Progress | None = None
) -> UnpackedImage:
    """Raises NotFoundError for an image that is not stored here, and as ensure_layers."""
    store = ImageStore(cache_dir)
    image = store.find(reference)
    layers = ensure_layers(store, image, worker, progress)
    return UnpackedImage(pin(reference, image), image.digest, image.config.process, tuple(layers))


def pin(reference: str, image: StoredImage) -> str:
    """NAME@DIGEST: the same image whatever becomes of its tag. `reference`: what it was found by,
    which may be an id."""
    try:
        named = parse_reference(reference)
    except InvalidInputError:
        named = None
    if named is None or (named.digest != image.digest and named.name not in image.names):
        named = parse_reference(image.names[0] if image.names else f"{LOCAL}/unnamed")
    return str(named.pinned(image.digest))


def resolve_oci(
    image: UnpackedImage,
    cache_dir: StrPath,
    ids: IdView,
    account: Account,
    *,
    building: bool = False,
) -> RootFilesystem:
    """`building`: nothing of ours is below the image, which may lack a /tmp and make one."""
    lowers = list(image.layers)
    if not building or not lowers:
        lowers.append(floor(cache_dir, ids))
    if is_emulated(ids) and any(image.view.resolve(place) for place in APT_PLACES):
        lowers.insert(0, _one_id_layer(cache_dir))
    process = image.process
    return RootFilesystem(
        reference=image.reference,
        stacks=(Stack("/", tuple(lowers)),),
        environment=_environment(process, account),
        kind="oci",
        cwd=working_directory(image),
        entrypoint=tuple(_words(process.entrypoint)),
        cmd=tuple(_words(process.cmd)),
    )


def is_emulated(ids: IdView) -> bool:
    """With one id that is not root's nobody expects to change owners."""
    return ids.kind == "single" and ids.guest_uid == 0


def working_directory(image: UnpackedImage) -> str:
    """Absolute, and with the image's own links followed: it may have to be made."""
    text = image.process.working_dir
    if "\0" in text or len(text) > 4096:
        raise ImageInvalidError("the image's working directory is no path")
    return image.view.landing(posixpath.normpath(f"/{text}"))


def _environment(process: ContainerConfig, account: Account) -> dict[str, str]:
    return {
        "PATH": ":".join(DEFAULT_PATH),
        "HOME": account.home,
        "USER": account.name,
        "LOGNAME": account.name,
        "LANG": "C.UTF-8",
        **process.environment,
    }


def _words(words: list[str] | None) -> list[str]:
    if any("\0" in word for word in words or ()):
        raise ImageInvalidError("the image's command has a NUL in it")
    return list(words or ())


def _one_id_layer(cache_dir: StrPath) -> str:
    def build(target: str) -> None:
        etc.write(target, APT_CONF, APT_TEXT)

    return layer(cache_dir, f"one-id-{key_of('one-id', VERSION, APT_CONF, APT_TEXT)}", build)
