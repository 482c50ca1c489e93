"""Whom a request is for: the connection, its TLS and its own words have to agree on that."""

from __future__ import annotations

import re

from agentkernel.errors import InvalidInputError
from agentkernel.network.intercept.answers import denied, malformed
from agentkernel.network.intercept.heads import RequestHead
from agentkernel.network.policy.names import canonical_host

_AUTHORITY = re.compile(r"(\[[^\]]*\]|[^:@/\[\]]+)(?::([0-9]{1,5}))?")
_ABSOLUTE = re.compile(rb"([A-Za-z][A-Za-z0-9+.-]*)://([^/?]*)(.*)")


def check_place(head: RequestHead, host: str, port: int, *, tls: bool) -> tuple[bytes, bool]:
    """The request's target in origin form, and whether it was absolute. Raises Answer."""
    scheme, default = ("https", 443) if tls else ("http", 80)
    if head.method == "CONNECT":
        raise malformed("CONNECT has no place inside this connection")
    if b"#" in head.target:
        raise malformed("its target has a fragment")
    _same_place(head.values(b"host")[0], host, port, default, "its header host")
    if head.target.startswith(b"/") or (head.target == b"*" and head.method == "OPTIONS"):
        return head.target, False
    found = _ABSOLUTE.fullmatch(head.target)
    if not found:
        raise malformed("its target is neither a path nor an address")
    if found[1].lower() != scheme.encode():
        raise malformed(f"its target is not one of {scheme}")
    _same_place(found[2], host, port, default, "its target")
    return found[3] if found[3].startswith(b"/") else b"/" + found[3], True


def _same_place(said: bytes, host: str, port: int, default: int, what: str) -> None:
    found = _AUTHORITY.fullmatch(said.decode("ascii", "replace"))
    try:
        if not found:
            raise InvalidInputError("not a host with a port")
        same = canonical_host(found[1]) == host and int(found[2] or default) == port
    except InvalidInputError:
        raise malformed(f"{what} is not a name or an address") from None
    if not same:
        raise denied(f"{what} names another place than the connection, which is to {host}:{port}")


def path_of(target: bytes) -> str:
    """What rules and events see: without the query, nor the host of an absolute target."""
    if found := _ABSOLUTE.fullmatch(target):
        target = found[3] or b"/"
    return target.partition(b"?")[0].decode("ascii", "replace")
