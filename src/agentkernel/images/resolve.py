"""From what the user wrote after `--image` to a root filesystem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentkernel.errors import InvalidInputError
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
    """`host`, or a path that starts with `/`, `.` or `~`. What has to be unpacked first is resolved
    by images/oci."""
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
    raise InvalidInputError(
        f"{reference[:200]!r} is neither `host` nor a directory",
        hint="a directory begins with / or ./",
    )
