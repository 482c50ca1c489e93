"""From what the user wrote after `--image` to a root filesystem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentkernel.errors import InvalidInputError, UnsupportedError
from agentkernel.images.cache import Progress, StrPath
from agentkernel.images.model import IdView, RootFilesystem


def resolve_image(
    reference: str,
    cache_dir: StrPath,
    ids: IdView,
    *,
    toolchains: bool = True,
    progress: Progress | None = None,
    environment: Mapping[str, str] | None = None,
    protected: Sequence[StrPath] = (),
) -> RootFilesystem:
    """`host`, or a path that starts with `/`, `.` or `~`."""
    if reference == "host":
        from agentkernel.images.host import resolve_host

        return resolve_host(
            cache_dir, ids, toolchains=toolchains, progress=progress, environment=environment
        )
    if reference.startswith(("/", ".", "~")):
        from agentkernel.images.directory import resolve_directory

        return resolve_directory(reference, cache_dir, ids, progress=progress, protected=protected)
    if not reference.strip():
        raise InvalidInputError("the image has no name", hint="use --image host or --image DIR")
    raise UnsupportedError(
        f"cannot use the image {reference!r}: images from registries are not supported yet",
        hint="use --image host (this machine's programs), or --image ./DIR with an unpacked root"
        " filesystem",
    )
