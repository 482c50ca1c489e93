"""Why agentd takes an archive or a tree for no layer: its words, in ours."""

from __future__ import annotations

from agentkernel.errors import ImageInvalidError
from agentkernel.images.oci.work import LayerLimits
from agentkernel.quantities import size_text
from agentkernel.texts import printable

_DAMAGED = "fetch or make the archive again"
_MADE_WRONG = "make the image again, with another tool"
_TOO_MUCH = "such an archive is meant to fill disks; if it is not, make smaller layers"
_TREE = "rename or remove it, then try again"

# What agentd says -> what is wrong with the entry, and what can be done about it.
REASONS = {
    "dotdot": ("its name leads upwards (..)", _MADE_WRONG),
    "empty-name": ("it has no name", _MADE_WRONG),
    "long-path": (
        "its path has more than 4095 bytes, or a part of more than 255",
        "use shorter names",
    ),
    "whiteout": ("it removes nothing that could be named", _MADE_WRONG),
    "root": ("only a directory can be the root", _MADE_WRONG),
    "parent-link": ("the way to it leads through a link to nowhere", _MADE_WRONG),
    "parent-file": ("the way to it leads through a file", _MADE_WRONG),
    "link": ("it is a link to nothing", _MADE_WRONG),
    "link-dotdot": ("it is a hard link whose target leads upwards (..)", _MADE_WRONG),
    "link-missing": ("it is a hard link to a file that is not in the layer", _MADE_WRONG),
    "link-directory": ("it is a hard link to a directory", _MADE_WRONG),
    "id": ("its owner is no number that a file can have", _MADE_WRONG),
    "unmapped-id": (
        "its owner is beyond the 65,536 ids that this user has",
        "run agentkernel as root, or make the image with ids below 65536",
    ),
    "xattr": (
        "its extended attributes are larger than the file system takes",
        "make the image without them",
    ),
    "bytes": ("the layer has more bytes than one may have", _TOO_MUCH),
    "entries": ("the layer has more entries than one may have", _TOO_MUCH),
    "memory": ("the layer takes more memory than one may take", _TOO_MUCH),
    "time": ("the layer takes more time than one may take", _TOO_MUCH),
    "truncated": ("the archive ends too early", _DAMAGED),
    "checksum": ("its header's checksum is wrong, or this is no tar archive", _DAMAGED),
    "number": ("a number of its header can't be read", _DAMAGED),
    "block": ("the archive goes on after one block of zeros", _DAMAGED),
    "junk": ("something comes after the archive's end", _DAMAGED),
    "read": ("the archive can't be read", _DAMAGED),
    "type": ("it is of a type that no layer has", _MADE_WRONG),
    "sparse": ("the map of its data contradicts itself", _DAMAGED),
    "pax": ("its extended header can't be read", _DAMAGED),
    "pax-number": ("a number of its extended header can't be read", _DAMAGED),
    "pax-text": ("a name of its extended header has a NUL in it", _MADE_WRONG),
    "extended-size": ("its extended header is larger than any honest one", _MADE_WRONG),
    # Of a tree that is packed.
    "reserved-name": ("no layer can hold a name that begins with .wh.", _TREE),
    "changed": ("it changed while it was read", "stop whatever writes there, then try again"),
}


def refusal(reason: str, name: str, limits: LayerLimits) -> ImageInvalidError:
    words, hint = REASONS.get(reason, (f"it was refused ({printable(reason)})", _MADE_WRONG))
    if reason == "bytes":
        words += f" ({size_text(limits.bytes)})"
    if reason == "entries":
        words += f" ({limits.entries})"
    shown = printable(name)
    at = f"{shown!r}: " if shown else ""
    return ImageInvalidError(
        f"the layer is not usable: {at}{words}", hint=hint, reason=reason, entry=shown
    )
