"""Files that agents keep their logins in: read on the host, and made anew for inside.

What must hold: a file that is made for inside has nothing of the one it was made from but the
fields that the agent's definition names, and none of those holds a token. No error has any value of
a file: who wrote it may be anybody, and errors are shown and logged.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from agentkernel.agents.definition import OAuth
from agentkernel.documents import DocumentError, parse_json
from agentkernel.errors import InvalidInputError
from agentkernel.network.secrets.placeholders import check_value
from agentkernel.network.secrets.store import Hidden
from agentkernel.texts import printable

MOST_BYTES: Final = 64 << 10
"""Of a file, and of an answer to a request for a new token."""

USELESS: Final = "kept-outside-of-this-sandbox"
"""What stands inside where a token would be that nobody inside needs."""

_FAR: Final = datetime(2100, 1, 1, tzinfo=UTC)
_MOST_TEXT: Final = 512
_MOST_LIST: Final = 32
_MOST_SECONDS: Final = 1e11
# An access token that is not said to end is asked for anew after this long.
_USUAL_SECONDS: Final = 3600.0

Kept = dict[str, Any]
"""By path: what is copied, and for a JWT its chosen claims."""


@dataclass(frozen=True)
class Tokens:
    """What a login consists of. `refresh`: None if there is none, or it stays as it was.
    `expires_at`: seconds since 1970; None: nobody knows."""

    access: Hidden
    refresh: Hidden | None
    expires_at: float | None
    label: str = ""
    kept: Kept = field(default_factory=dict, repr=False)


def read_login(oauth: OAuth, data: bytes) -> Tokens:
    """The tokens of an agent's own file. Raises InvalidInputError."""
    document = _document(data, "the file of the login")
    access = _token(_at(document, oauth.access), oauth.access)
    refresh = None
    if oauth.refresh_token and _at(document, oauth.refresh_token) is not None:
        refresh = _token(_at(document, oauth.refresh_token), oauth.refresh_token)
    for token in (access, refresh):
        if token is not None and token.reveal() == USELESS.encode():
            raise _made_by_us(oauth)
    expires_at = (
        _time(_at(document, oauth.expires), oauth) if oauth.expires else _expiry_of(access.reveal())
    )
    kept = _kept(oauth, document)
    label = _label(oauth, document)
    _check_no_tokens([kept, label], (access, refresh))
    return Tokens(access=access, refresh=refresh, expires_at=expires_at, label=label, kept=kept)


def read_answer(oauth: OAuth, data: bytes, now: float) -> Tokens:
    """What a token endpoint gave. `kept`: what it says anew of fields that are kept. Raises
    InvalidInputError."""
    document = _document(data, "the answer of the token endpoint")
    access = _token(document.get("access_token"), "access_token")
    refresh = None
    if document.get("refresh_token") is not None:
        refresh = _token(document["refresh_token"], "refresh_token")
    lifetime = document.get("expires_in")
    if isinstance(lifetime, bool) or not isinstance(lifetime, int | float):
        expires_at = _expiry_of(access.reveal()) or now + _USUAL_SECONDS
    elif not math.isfinite(lifetime) or not 0 < lifetime < _MOST_SECONDS:
        raise InvalidInputError("the answer of the token endpoint has an expires_in that is none")
    else:
        expires_at = now + lifetime
    kept: Kept = {}
    for path, claims in oauth.jwt_claims.items():
        token = document.get(path.rpartition(".")[2])
        if isinstance(token, str):
            kept[path] = _chosen(claims_of(token), claims)
    _check_no_tokens(kept, (access, refresh))
    return Tokens(access=access, refresh=refresh, expires_at=expires_at, kept=kept)


def file_inside(oauth: OAuth, kept: Mapping[str, Any], placeholder: str) -> bytes:
    """The agent's file with `placeholder` as its access token."""
    document: dict[str, Any] = {}
    for path in oauth.keep:
        if path in kept:
            _put(document, path, kept[path])
    for path in oauth.jwt_claims:
        _put(document, path, unsigned_jwt(kept.get(path, {})))
    _put(document, oauth.access, placeholder)
    if oauth.refresh_token:
        _put(document, oauth.refresh_token, USELESS)
    if oauth.expires:
        seconds = int(_FAR.timestamp())
        far = {"iso": f"{_FAR:%Y-%m-%dT%H:%M:%SZ}", "milliseconds": seconds * 1000}
        _put(document, oauth.expires, far.get(oauth.unit, seconds))
    for path, value in oauth.fixed.items():
        _put(document, path, value)
    return json.dumps(document, indent=2).encode() + b"\n"


def unsigned_jwt(claims: Mapping[str, Any]) -> str:
    """One that a program can read claims from, and nobody takes for real."""
    ends = {"exp": int(_FAR.timestamp()), "iat": 0}
    parts = ({"alg": "none", "typ": "JWT"}, {**claims, **ends})
    return ".".join([*(_encoded(json.dumps(part).encode()) for part in parts), _encoded(b"none")])


def claims_of(token: str) -> dict[str, Any]:
    """What a JWT says; nobody here verifies it. Raises InvalidInputError."""
    parts = token.split(".")
    try:
        if len(parts) != 3 or len(token) > MOST_BYTES:
            raise ValueError
        padded = parts[1] + "=" * (-len(parts[1]) % 4)
        text = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
        claims = parse_json(text)
        if not isinstance(claims, dict):
            raise ValueError
    except (ValueError, binascii.Error, RecursionError):
        raise InvalidInputError("the login has a token that should be a JWT and is none") from None
    return claims


def _document(data: bytes, what: str) -> dict[str, Any]:
    if len(data) > MOST_BYTES:
        raise InvalidInputError(f"{what} is longer than {MOST_BYTES >> 10} KiB")
    try:
        document = parse_json(data.decode("utf-8"))
    except (UnicodeDecodeError, DocumentError):
        raise InvalidInputError(f"{what} is not JSON") from None
    if not isinstance(document, dict):
        raise InvalidInputError(f"{what} is not a JSON object")
    return document


def _at(document: Mapping[str, Any], path: str) -> Any:
    found: Any = document
    for name in path.split("."):
        if not isinstance(found, dict):
            return None
        found = found.get(name)
    return found


def _put(document: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for name in parents:
        document = document.setdefault(name, {})
    document[last] = value


def _token(value: Any, path: str) -> Hidden:
    if not isinstance(value, str) or not value:
        raise InvalidInputError(
            f"the login has no {path}",
            hint="log in with the agent itself first, with the account that it is to use",
        )
    try:
        return Hidden(check_value(value))
    except InvalidInputError as error:
        raise InvalidInputError(
            f"the login's {path} can't be used: {error.message}", hint=error.hint
        ) from None


def _made_by_us(oauth: OAuth) -> InvalidInputError:
    return InvalidInputError(
        f"{oauth.file} is one that was made for a sandbox: it has no login in it",
        hint="give the file of a real login",
    )


def _time(value: Any, oauth: OAuth) -> float | None:
    """None: the file does not say."""
    if value is None:
        return None
    seconds = math.nan
    if oauth.unit == "iso" and isinstance(value, str):
        with contextlib.suppress(ValueError, OverflowError):
            moment = datetime.fromisoformat(value[:64])
            seconds = moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):
            seconds = float(value) / (1000 if oauth.unit == "milliseconds" else 1)
    if not math.isfinite(seconds) or not 0 <= seconds < _MOST_SECONDS:
        raise InvalidInputError(f"the login's {oauth.expires} is no time")
    return seconds


def _expiry_of(token: bytes) -> float | None:
    try:
        expires = claims_of(token.decode("ascii")).get("exp")
    except InvalidInputError:
        return None
    if isinstance(expires, bool) or not isinstance(expires, int | float):
        return None
    return float(expires) if 0 <= expires < _MOST_SECONDS else None


def _kept(oauth: OAuth, document: Mapping[str, Any]) -> Kept:
    kept = {path: _plain(_at(document, path), path) for path in oauth.keep}
    kept = {path: value for path, value in kept.items() if value is not None}
    for path, claims in oauth.jwt_claims.items():
        token = _at(document, path)
        kept[path] = _chosen(claims_of(token), claims) if isinstance(token, str) else {}
    return kept


def _plain(value: Any, path: str) -> Any:
    """A value that is short and simple: it goes into other sandboxes."""
    if isinstance(value, list) and len(value) <= _MOST_LIST:
        return [_plain(each, path) for each in value if not isinstance(each, list)]
    if isinstance(value, float) and not math.isfinite(value):
        value = None
    if isinstance(value, str) and len(value) <= _MOST_TEXT:
        return value
    if value is None or isinstance(value, bool | int | float):
        return value
    raise InvalidInputError(f"the login's {path} is not a short text, a number or a list of them")


def _chosen(claims: Mapping[str, Any], wanted: Iterable[str]) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    for name in wanted:
        outer, inner_wanted, inner = name.partition("#")
        value = claims.get(outer)
        if inner_wanted:
            value = value.get(inner) if isinstance(value, dict) else None
        if value is None:
            continue
        value = _plain(value, name)
        if inner_wanted:
            chosen.setdefault(outer, {})[inner] = value
        else:
            chosen[outer] = value
    return chosen


def _check_no_tokens(shown: Any, tokens: Iterable[Hidden | None]) -> None:
    """A file may have been written so that a token stands where none is expected."""
    text = json.dumps(shown)
    for token in tokens:
        if token is not None and json.dumps(token.reveal().decode("ascii"))[1:-1] in text:
            raise InvalidInputError("the login has a token in a field that is not for tokens")


def _label(oauth: OAuth, document: Mapping[str, Any]) -> str:
    for entry in oauth.label:
        path, _, claim = entry.partition("#")
        value = _at(document, path)
        if claim and isinstance(value, str):
            chosen = _chosen(claims_of(value), [claim])
            value = next(iter(chosen.values()), None)
            if isinstance(value, dict):
                value = next(iter(value.values()), None)
        if isinstance(value, str) and value:
            return printable(value[:200])
    return ""


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
