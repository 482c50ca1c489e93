"""Who a name is in an image: `--chown=USER[:GROUP]`, by the image's own passwd and group."""

from __future__ import annotations

_MAX_ID = (1 << 32) - 2


def ids_of(owner: str, passwd: str, group: str) -> tuple[int, int]:
    """Without a group: that of the user's line, or for a number the same number. Raises LookupError
    with the name that is not there."""
    user, _, wanted = owner.partition(":")
    uid = _as_number(user)
    gid = uid
    if uid is None:
        fields = _line(user, passwd, 4)
        uid, gid = int(fields[2]), int(fields[3])
    if wanted:
        number = _as_number(wanted)
        gid = int(_line(wanted, group, 3)[2]) if number is None else number
    return uid, uid if gid is None else gid


def _as_number(name: str) -> int | None:
    if not (name.isascii() and name.isdigit()):
        return None
    if len(name) > 10 or int(name) > _MAX_ID:
        raise LookupError(name)
    return int(name)


def _line(name: str, table: str, count: int) -> list[str]:
    for line in table.split("\n"):
        fields = line.split(":")
        if (
            name
            and fields[0] == name
            and len(fields) >= count
            and all(_as_number(field) is not None for field in fields[2:count])
        ):
            return fields
    raise LookupError(name)
