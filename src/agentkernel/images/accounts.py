"""Who `user`, `user:group`, `uid` and `uid:gid` are in an image, by its own passwd and group.

agentd asks the same of the running sandbox, by the same rules; this is for what must be known
before there is one: which single id it gets, who owns its workspace, what its home is.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentkernel.errors import InvalidInputError, NotFoundError
from agentkernel.images.view import View
from agentkernel.texts import printable

MAX_ID = 0xFFFF_FFFE
_MAX_NAME = 255


@dataclass(frozen=True)
class Account:
    """A user of an image. `name` is its number where it has no name."""

    uid: int
    gid: int
    name: str
    home: str


ROOT = Account(0, 0, "root", "/root")


def find_account(view: View, user: str) -> Account:
    """Raises InvalidInputError for what no user can be called, NotFoundError for a name that the
    image does not know."""
    who, colon, group = user.partition(":")
    if not 0 < len(who) <= _MAX_NAME or (colon and not 0 < len(group) <= _MAX_NAME) or ":" in group:
        raise InvalidInputError(
            f"{printable(user)!r} is not a user", hint="write NAME, UID, NAME:GROUP or UID:GID"
        )
    account = _user(view, who)
    if colon:
        account = Account(account.uid, _group(view, group), account.name, account.home)
    return account


def _user(view: View, who: str) -> Account:
    number = _number(who)
    for fields in _lines(view, "/etc/passwd", 4):
        uid, gid = _number(fields[2]), _number(fields[3])
        if (
            uid is None
            or gid is None
            or not (fields[0] == who if number is None else uid == number)
        ):
            continue
        home = fields[5] if len(fields) > 5 and fields[5].startswith("/") else "/"
        return Account(uid, gid, fields[0], home)
    if number is not None or who == "root":  # a uid needs no line, and root always is
        return ROOT if not number else Account(number, 0, who, "/")
    raise NotFoundError(
        f"the image has no user {printable(who)!r}",
        hint="choose one of its /etc/passwd, or a number, with --user",
    )


def _group(view: View, which: str) -> int:
    number = _number(which)
    if number is not None:
        return number
    for fields in _lines(view, "/etc/group", 3):
        if fields[0] == which and (gid := _number(fields[2])) is not None:
            return gid
    raise NotFoundError(
        f"the image has no group {printable(which)!r}",
        hint="choose one of its /etc/group, or a number, with --user USER:GROUP",
    )


def _lines(view: View, path: str, least: int) -> list[list[str]]:
    text = view.read(path).decode("utf-8", "surrogateescape")
    split = (line.split(":") for line in text.split("\n"))
    return [fields for fields in split if len(fields) >= least]


def _number(text: str) -> int | None:
    """An id in figures; `isdigit` would take ones that `int` does not."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 10):
        return None
    return number if (number := int(text)) <= MAX_ID else None
