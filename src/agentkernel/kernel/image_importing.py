"""A directory of this machine as an image of one layer.

It is packed as a layer is, inside the user's own namespace: as root with the ids that files have;
as a normal user files of that user are root's in the image, and those of others, which that user
could not give to anybody either, are nobody's. No link is followed, and devices and sockets are
left out.
"""

from __future__ import annotations

import datetime
import os
from pathlib import Path

import msgspec

from agentkernel.errors import InvalidInputError
from agentkernel.images.oci.model import (
    OCI_CONFIG,
    ContainerConfig,
    Descriptor,
    History,
    ImageConfig,
    Manifest,
    RootFs,
    this_platform,
)
from agentkernel.images.oci.new_layer import add_layer
from agentkernel.images.oci.store import ImageStore
from agentkernel.images.oci.work import LayerWorker
from agentkernel.texts import printable

# What an image without a PATH of its own would not find.
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def import_directory(
    store: ImageStore,
    worker: LayerWorker,
    directory: str,
    config: ContainerConfig | None,
    state_dir: Path,
) -> str:
    """The digest of the new manifest, which has no name yet. Blocking. Preconditions: `adding` is
    held."""
    source = _checked(directory, state_dir)
    layer, diff_id = add_layer(store, lambda output: worker.pack(source, output))
    process = config or ContainerConfig()
    if not any(entry.startswith("PATH=") for entry in process.env or ()):
        process = msgspec.structs.replace(process, env=[_PATH, *(process.env or ())])
    platform = this_platform()
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    document = msgspec.json.encode(
        ImageConfig(
            architecture=platform.architecture,
            os=platform.os,
            variant=platform.variant,
            created=now,
            config=process,
            rootfs=RootFs(diff_ids=[diff_id]),
            history=[History(created=now, created_by="agentkernel image import")],
        )
    )
    manifest = Manifest(
        config=Descriptor(OCI_CONFIG, store.put_document(document), len(document)), layers=[layer]
    )
    return store.put_document(msgspec.json.encode(manifest))


def _checked(directory: str, state_dir: Path) -> str:
    if not os.path.isabs(directory):
        raise InvalidInputError("a directory of the daemon's machine has an absolute path")
    found = os.path.realpath(directory)
    if not os.path.isdir(found):
        raise InvalidInputError(f"{printable(directory)} is no directory of this machine")
    state = os.path.realpath(state_dir)
    if os.path.commonpath((found, state)) in (found, state):
        raise InvalidInputError(
            "that directory has agentkernel's own state in it, or is a part of it",
            hint="copy what the image is to hold to a directory of its own",
        )
    return found
