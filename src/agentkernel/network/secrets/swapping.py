"""Puts secrets into requests, at the one place where they belong, and stops them anywhere else.

    to a host that a binding names     its placeholder becomes the value, in the binding's headers
                                       (and query, and body, if asked for); elsewhere it stays what
                                       it is, which tells nobody anything
    to any other host                  its placeholder, in any form, blocks the request
    to whatever host                   a value that is in the request already blocks it: nothing
                                       inside a sandbox should have it

A value that was put in never passes here again: what is looked through is what the guest sent.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Final, Literal, NamedTuple
from urllib.parse import quote, quote_plus

from agentkernel.network.policy.model import SecretBinding
from agentkernel.network.secrets.dlp import Patterns
from agentkernel.network.secrets.finding import Finder, Held, Match
from agentkernel.network.secrets.names import made_by
from agentkernel.network.secrets.scanning import CODINGS, Inflater, Replacer, Scanner

HTTPS: Final = 443
# More than that of an inflated request is not looked through, so it does not leave.
MOST_INFLATED: Final = 256 << 20
_BASIC: Final = re.compile(rb"(?i:basic)[ ]+([A-Za-z0-9+/_-]+={0,2})[ ]*")

Headers = list[tuple[bytes, bytes]]


class Blocked(Exception):
    """The request must not go on. The words are for the event and the guest, and hold no secret;
    `reference` is the secret's, empty for a pattern."""

    def __init__(self, words: str, reference: str = "") -> None:
        super().__init__(words)
        self.words = words
        self.reference = reference


class _Mark(NamedTuple):
    """What was found: a value, or the placeholder of these bindings."""

    kind: Literal["value", "bound", "elsewhere"]
    reference: str
    bindings: tuple[SecretBinding, ...] = ()


def is_bound(binding: SecretBinding, host: str, port: int) -> bool:
    """`host`: a canonical name or address."""
    for target in binding.hosts:
        name, their_port = split_target(target)
        below = name.startswith("*.") and host.endswith(name[1:]) and len(host) >= len(name)
        if port == their_port and (below or host == name):
            return True
    return False


def split_target(target: str) -> tuple[str, int]:
    """The name and the port of a host, as a binding has it."""
    name, _, port = target.partition(":")
    return name, int(port) if port else HTTPS


class Swapper:
    """One request to one host. `values`: all that must not leave, by reference; those of bindings
    are among them."""

    def __init__(
        self,
        bindings: Sequence[SecretBinding],
        values: Mapping[str, bytes],
        host: str,
        port: int,
        patterns: Patterns | None = None,
    ) -> None:
        self.host = host
        self.values = values
        self.patterns = patterns or Patterns(())
        self.bound = tuple(each for each in bindings if is_bound(each, host, port))
        self.used: list[SecretBinding] = []
        """The bindings whose placeholder was swapped, once each."""
        self.finder = _finder(tuple(bindings), self.bound, tuple(sorted(values.items())))

    def request_headers(
        self, headers: Iterable[tuple[bytes, bytes]]
    ) -> tuple[Headers, list[SecretBinding]]:
        """The headers to send, and which bindings were swapped in them. Raises Blocked."""
        headers = list(headers)
        parts = [part for header in headers for part in header]
        # NUL can't be in a header, so nothing is found that goes from one to the next.
        found = self.finder.find(b"\0".join(parts))
        ends = list(accumulate(len(part) + 1 for part in parts))
        touched = {bisect_right(ends, match.start) for match in found}
        swapped = headers.copy()
        for part in sorted(touched):
            name, value = headers[part // 2]
            if part % 2 == 0:
                self.check(name)
            else:
                swapped[part // 2] = (name, self._header(name, value))
        if self.patterns:
            for text in parts:
                self.check_patterns(text)
        return swapped, list(self.used)

    def target(self, target: bytes) -> bytes:
        """The path and the query to ask for. Raises Blocked."""
        found = self.check(target)
        self.check_patterns(target)
        query = target.find(b"?") + 1
        pieces: list[bytes] = []
        at = 0
        for match in found:
            binding = next((each for each in match.whose.bindings if each.query), None)
            if binding and match.form.kind == "raw" and 0 < query <= match.start:
                pieces += [target[at : match.start], quote(self.value_of(binding), "").encode()]
                at = match.end
        return b"".join((*pieces, target[at:]))

    def body(self, content_type: bytes = b"", content_encoding: bytes = b"") -> BodySwapper:
        """What the body has to pass. A compressed one is looked through, never swapped in."""
        return BodySwapper(self, content_type, content_encoding)

    def scanner(self) -> Scanner:
        """What the response has to pass: the host may reflect what it was sent."""
        pairs = {
            self.values[each.reference]: each.placeholder
            for each in self.bound
            if each.reference in self.values
        }
        return Scanner(_replacer(tuple(pairs.items())))

    def check(self, text: bytes) -> list[Match[_Mark]]:
        """The placeholders in it that are no harm here. Raises Blocked for all else."""
        found = self.finder.find(text)
        for match in found:
            self.judge(match.whose)
        return found

    def judge(self, mark: _Mark) -> None:
        name = mark.reference.rpartition("/")[2]
        if mark.kind == "value":
            raise Blocked(
                f"the value of the secret {name} was on its way to {self.host}, "
                "put there by a program inside the sandbox",
                mark.reference,
            )
        if mark.kind == "elsewhere":
            hosts = ", ".join(dict.fromkeys(host for each in mark.bindings for host in each.hosts))
            raise Blocked(
                f"the placeholder of the secret {name} was on its way to {self.host}; "
                f"it is bound to {hosts}",
                mark.reference,
            )

    def check_patterns(self, text: bytes) -> None:
        """Placeholders look like real tokens, so the ones that belong here do not count."""
        if not self.patterns:
            return
        for binding in self.bound:
            text = text.replace(binding.placeholder.encode(), bytes(len(binding.placeholder)))
        if pattern := self.patterns.find(text):
            raise Blocked(f"the request to {self.host} contains what the pattern {pattern} forbids")

    def value_of(self, binding: SecretBinding) -> bytes:
        """For a placeholder that is about to be swapped."""
        value = self.values.get(binding.reference)
        if value is None:
            name = binding.reference.rpartition("/")[2]
            raise Blocked(
                f"there is no secret {name} any more; `{made_by(name)}` makes it",
                binding.reference,
            )
        if binding not in self.used:
            self.used.append(binding)
        return value

    def _header(self, name: bytes, value: bytes) -> bytes:
        found = self.check(value)
        wanted = name.decode("latin-1").lower()
        swaps: dict[bytes, SecretBinding] = {
            each.placeholder.encode(): each
            for match in found
            for each in match.whose.bindings
            if wanted in each.headers
        }
        if not swaps:
            return value
        basic = _BASIC.fullmatch(value)
        if basic is None:
            return self._put(value, swaps)
        try:
            credentials = base64.b64decode(basic[1].translate(_TO_STANDARD) + b"==", validate=False)
        except (ValueError, binascii.Error):
            return value
        put = self._put(credentials, swaps)
        if put == credentials:
            return value
        return value[: basic.start(1)] + base64.b64encode(put)

    def _put(self, text: bytes, swaps: Mapping[bytes, SecretBinding]) -> bytes:
        for placeholder, binding in swaps.items():
            if placeholder in text:
                text = text.replace(placeholder, self.value_of(binding))
        return text


class BodySwapper:
    """A body, in pieces. `keeps_length`: what goes out is as long as what comes in."""

    def __init__(self, swapper: Swapper, content_type: bytes, content_encoding: bytes) -> None:
        self._swapper = swapper
        kind = content_type.partition(b";")[0].strip().lower().decode("latin-1")
        coding = content_encoding.strip().lower().decode("latin-1")
        plain = coding in ("", "identity")
        self._texts = {
            each.placeholder: _written(swapper.values[each.reference], kind)
            for each in swapper.bound
            if plain and each.body and each.reference in swapper.values
        }
        self.keeps_length = all(len(name) == len(text) for name, text in self._texts.items())
        self._held = Held()
        self._inflater = Inflater(coding, MOST_INFLATED) if coding in CODINGS else None
        self._inflated = Held()

    def feed(self, chunk: bytes) -> bytes:
        """What may go on. Raises Blocked."""
        if self._inflater is not None:
            try:
                for piece in self._inflater.feed(chunk):
                    self._next(self._inflated, piece)
            except ValueError as error:
                raise Blocked(
                    f"the request's body can't be looked through for secrets: {error}"
                ) from None
        return self._next(self._held, chunk)

    def finish(self) -> bytes:
        """The rest. Raises Blocked."""
        self._pass(self._inflated.rest(), final=True)
        return self._pass(self._held.rest(), final=True)[0]

    def _next(self, held: Held, chunk: bytes) -> bytes:
        text = held.add(chunk)
        if text is None:
            return b""
        ready, rest = self._pass(text, final=False)
        held.keep(rest)
        return ready

    def _pass(self, text: bytes, *, final: bool) -> tuple[bytes, bytes]:
        swapper = self._swapper
        certain = len(text) if final else swapper.finder.unfinished(text)
        found = swapper.check(text)
        for match in found:
            if match.start < certain < match.end:
                certain = match.end
        limit = certain
        if swapper.patterns:
            swapper.check_patterns(text[:certain])
            if not final:
                limit = max(0, certain - swapper.patterns.width + 1)
        pieces: list[bytes] = []
        at = 0
        for match in found:
            if match.start >= limit:
                break
            limit = max(limit, match.end)
            if match.exact and match.form.kind == "raw":
                for binding in match.whose.bindings:
                    if binding.body and binding.placeholder in self._texts:
                        swapper.value_of(binding)
                        pieces += [text[at : match.start], self._texts[binding.placeholder]]
                        at = match.end
                        break
        return b"".join((*pieces, text[at:limit])), text[limit:]


_TO_STANDARD: Final = bytes.maketrans(b"-_", b"+/")


def _written(value: bytes, content_type: str) -> bytes:
    """A value as it stands in a body of this kind."""
    if content_type == "application/x-www-form-urlencoded":
        return quote_plus(value).encode()
    if content_type == "application/json" or content_type.endswith("+json"):
        return json.dumps(value.decode("ascii"))[1:-1].encode()
    return value


@lru_cache(maxsize=64)
def _replacer(pairs: tuple[tuple[bytes, str], ...]) -> Replacer:
    return Replacer(pairs)


@lru_cache(maxsize=64)
def _finder(
    bindings: tuple[SecretBinding, ...],
    bound: tuple[SecretBinding, ...],
    values: tuple[tuple[str, bytes], ...],
) -> Finder[_Mark]:
    sought = [(value, _Mark("value", reference)) for reference, value in values]
    for placeholder in dict.fromkeys(each.placeholder for each in bindings):
        here = tuple(each for each in bound if each.placeholder == placeholder)
        all_of = tuple(each for each in bindings if each.placeholder == placeholder)
        kind: Literal["bound", "elsewhere"] = "bound" if here else "elsewhere"
        sought.append((placeholder.encode(), _Mark(kind, all_of[0].reference, here or all_of)))
    return Finder(sought)
