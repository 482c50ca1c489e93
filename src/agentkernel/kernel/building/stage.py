"""A stage as far as it has come: layers, config, history. Stages build on stages."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import msgspec

from agentkernel.errors import ImageInvalidError, InvalidInputError
from agentkernel.images.building.config import Changing
from agentkernel.images.building.writing import Layer
from agentkernel.images.dockerfile.variables import Arguments, StageVariables
from agentkernel.images.oci.model import (
    DOCKER_LAYER,
    OCI_CONFIG,
    OCI_LAYER,
    OCI_MANIFEST,
    Descriptor,
    History,
    ImageConfig,
    Manifest,
    Platform,
    RootFs,
    decode_config,
)
from agentkernel.images.oci.store import ImageStore, StoredImage, digest_of

EPOCH = "1970-01-01T00:00:00Z"


def now_words() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@dataclass
class State:
    """`created`: when its last layer was made, so that the same layers are the same image."""

    platform: Platform
    changing: Changing
    variables: StageVariables
    layers: list[Layer] = field(default_factory=list)
    history: list[History] = field(default_factory=list)
    created: str = EPOCH
    # A WORKDIR that is to be there as soon as something is made.
    pending: str = ""

    @property
    def diff_ids(self) -> list[str]:
        return [layer.diff_id for layer in self.layers]

    @property
    def blobs(self) -> list[str]:
        return [layer.blob.digest for layer in self.layers]

    def record(self, created_by: str, *, empty: bool = False, created: str = "") -> None:
        """One more line of history."""
        if created:
            self.created = created
        self.history.append(
            History(
                created=self.created,
                created_by=created_by,
                author=self.changing.author,
                empty_layer=empty,
            )
        )

    def add(self, layer: Layer, created_by: str, created: str) -> None:
        self.layers.append(layer)
        self.record(created_by, created=created)

    def add_to_last(self, words: str, layer: Layer) -> None:
        """A layer that belongs to the last line that begins with `words`, behind which no line has
        one."""
        self.layers.append(layer)
        for number in reversed(range(len(self.history))):
            if self.history[number].created_by.startswith(words):
                line = self.history[number]
                self.history[number] = msgspec.structs.replace(line, empty_layer=False)
                return

    def config(self) -> ImageConfig:
        return ImageConfig(
            architecture=self.platform.architecture,
            os=self.platform.os,
            variant=self.platform.variant,
            rootfs=RootFs(self.diff_ids),
            config=self.changing.config,
            created=self.created,
            author=self.changing.author,
            history=list(self.history),
        )

    def write(self, store: ImageStore) -> str:
        """The image as it is now, in the store; its manifest's digest. Preconditions: `adding`.
        Raises InvalidInputError for one that nobody could read."""
        config = msgspec.json.encode(self.config())
        manifest = Manifest(
            config=Descriptor(OCI_CONFIG, digest_of(config), len(config)),
            layers=[layer.blob for layer in self.layers],
            media_type=OCI_MANIFEST,
        )
        try:
            decode_config(config, manifest)
        except ImageInvalidError as exc:
            raise InvalidInputError(
                f"what is built would be no image: {exc.message}",
                hint="its config holds all values of ENV and LABEL and the text of every step",
            ) from None
        store.put_document(config)
        return store.put_document(msgspec.json.encode(manifest))


def state_on(image: StoredImage | None, arguments: Arguments, platform: Platform) -> State:
    """At the beginning of a stage; without an image it is `scratch`."""
    if image is None:
        config = ImageConfig(platform.architecture, platform.os, RootFs([]))
        layers: list[Layer] = []
    else:
        config = image.config
        layers = [
            Layer(_as_oci(blob), diff_id)
            for blob, diff_id in zip(image.manifest.layers, config.rootfs.diff_ids, strict=True)
        ]
        platform = Platform(config.architecture, config.os, config.variant)
    variables = StageVariables(arguments, {})
    changing = Changing(config, variables)
    variables.environment.update(changing.config.environment)
    return State(
        platform=platform,
        changing=changing,
        variables=variables,
        layers=layers,
        history=list(config.history),
        created=config.created or EPOCH,
    )


def _as_oci(blob: Descriptor) -> Descriptor:
    """Our manifests are OCI's, whose layers have other names for the same content."""
    kind = blob.media_type
    if kind.startswith(DOCKER_LAYER):
        kind = OCI_LAYER + {".gzip": "+gzip", ".zstd": "+zstd"}.get(kind[len(DOCKER_LAYER) :], "")
    return Descriptor(kind, blob.digest, blob.size)


def state_of(stage: State, arguments: Arguments) -> State:
    """At the beginning of a stage that goes on where another has ended."""
    variables = StageVariables(arguments, stage.variables.environment)
    changing = Changing(stage.config(), variables)
    return State(
        platform=stage.platform,
        changing=changing,
        variables=variables,
        layers=list(stage.layers),
        history=list(stage.history),
        created=stage.created,
        pending=stage.pending,
    )
