"""The path of a request in the form that rules are compared with.

Servers, frameworks and caches read odd paths differently: what one takes for `/v1/../admin` is
`/admin` to the next. Nothing is resolved here. A path has one reading, or none, and then no rule
that asks for a path lets it pass.
"""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import unquote_to_bytes

# What a path may hold as it is; no backslash, no # or ?, no %, nothing outside ASCII.
_PLAIN = re.compile(r"/[A-Za-z0-9/._~!$&'()*+,;=:@-]*\Z")
_ESCAPED = re.compile(r"(?:[A-Za-z0-9/._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*\Z")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_TRAILER = re.compile(r"(?:%20)*(?:(?:;|%3B).*)?\Z", re.DOTALL)
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_SPLITTING = "/\\.;%?#"


def canonical_path(path: str) -> str | None:
    """`path` without its query. None: it can be read in several ways."""
    if not _PLAIN.match(path):
        if not path.startswith("/") or not _ESCAPED.match(path):
            return None
        if not _escapes_are_plain(path):
            return None
        path = _ESCAPE.sub(_unescaped, path)
    if "//" in path:
        return None
    if "/." in path and any(_is_dots(segment) for segment in path.split("/")):
        return None
    return path


def matches(pattern: str, path: str) -> bool:
    """Both canonical. A pattern that ends in "*" matches what begins so."""
    return path.startswith(pattern[:-1]) if pattern.endswith("*") else path == pattern


def _is_dots(segment: str) -> bool:
    """`.` and `..`, also as some servers see them: with parameters or blanks behind."""
    return _TRAILER.sub("", segment) in (".", "..")


def _unescaped(match: re.Match[str]) -> str:
    char = chr(int(match[1], 16))
    return char if char in _UNRESERVED else match[0].upper()


def _escapes_are_plain(path: str) -> bool:
    """No escape stands for what splits a path, nor would after one more round of decoding."""
    codes = {int(code, 16) for code in _ESCAPE.findall(path)}
    # Controls, "%" (decoded twice it is anything), "/" and "\".
    if any(code < 0x20 or code in (0x25, 0x2F, 0x5C, 0x7F) for code in codes):
        return False
    if max(codes, default=0) < 0x80:
        return True
    try:
        text = unquote_to_bytes(path).decode()  # refuses what only lenient decoders read, as %C0%AE
    except UnicodeDecodeError:
        return False
    # Letters that some systems fold into one of those that split: full-width dots and slashes.
    folded = unicodedata.normalize("NFKC", text)
    return all(text.count(char) == folded.count(char) for char in _SPLITTING)
