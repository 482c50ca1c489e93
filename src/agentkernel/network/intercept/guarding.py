"""Secrets in one exchange: put into the request, kept out of the response."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from agentkernel.errors import InvalidInputError
from agentkernel.network.gateway.flow import Flow
from agentkernel.network.intercept import answers
from agentkernel.network.intercept.heads import Header, Malformed, RequestHead, ResponseHead
from agentkernel.network.policy.names import is_name
from agentkernel.network.secrets.dlp import Patterns
from agentkernel.network.secrets.scanning import CODINGS, Inflater, Scanner
from agentkernel.network.secrets.swapping import Blocked, BodySwapper, Swapper, is_bound

_COMPRESSING = (b"accept-encoding", b"sec-websocket-extensions")
NOT_IN_TRAILERS = frozenset(
    (
        *(b"host", b"content-length", b"transfer-encoding", b"connection", b"upgrade", b"te"),
        *(b"trailer", b"expect", b"content-encoding", b"content-type", b"authorization"),
        *(b"proxy-authorization", b"cookie"),
    )
)
NOWHERE = 0
"""A port that no secret is bound to."""


class Guard:
    """Made for one request, from the setting as it is at that moment. `secure`: the far side will
    be verified before anything is sent, and the guest's TLS names it; the request itself was found
    to be for it, too. Only then is anything put in; else every placeholder is stopped."""

    def __init__(self, flow: Flow, *, secure: bool) -> None:
        self._flow = flow
        self._told = 0
        self._swapper: Swapper | None = None
        bindings = flow.subject.setting.secrets
        patterns = flow.subject.operator.patterns
        self._insecure = not secure and any(is_bound(b, flow.host, flow.port) for b in bindings)
        values = flow.subject.secrets
        if bindings or patterns or values:
            self._swapper = Swapper(
                bindings,
                values,
                flow.host,
                flow.port if secure and is_name(flow.host) else NOWHERE,
                _patterns(patterns),
            )

    def shown(self, target: bytes, path: str) -> str:
        """The path as events and answers may have it: not at all, if the target holds a secret."""
        if self._swapper is not None:
            try:
                self._swapper.check(target)
                self._swapper.check_patterns(target)
            except Blocked:
                return ""
        return answers.short_path(path)

    def request(self, target: bytes, headers: list[Header]) -> tuple[bytes, list[Header]]:
        """What to send instead. Raises Answer."""
        if self._swapper is None:
            return target, headers
        try:
            target = self._swapper.target(target)
            headers, _ = self._swapper.request_headers(headers)
        except Blocked as exc:
            raise self.stopped(exc) from None
        if self._swapper.bound:
            # The response is searched, and what is compressed in other ways than gzip can't be. The
            # extensions of WebSockets are all about compression.
            headers = [each for each in headers if each[0].lower() not in _COMPRESSING]
            headers.append((b"Accept-Encoding", b"identity"))
        return target, headers

    def trailers(self, headers: list[Header]) -> list[Header]:
        """Those of a request: nothing is put into them. Raises Blocked, and Malformed for one that
        would mean something in the head: servers are there that put both together."""
        if any(name.lower() in NOT_IN_TRAILERS for name, _ in headers):
            raise Malformed("a header that belongs to its head stands behind its body")
        if self._swapper is not None:
            for part in (part for header in headers for part in header):
                self._swapper.check(part)
                self._swapper.check_patterns(part)
        return headers

    def body(self, head: RequestHead) -> BodySwapper | None:
        """What the request's body has to pass."""
        if self._swapper is None or head.framing == "none":
            return None
        kind = b",".join(head.values(b"content-type"))
        return self._swapper.body(kind, b",".join(head.values(b"content-encoding")))

    def stopped(self, blocked: Blocked) -> answers.Answer:
        words = blocked.words
        if self._insecure:
            words += "; it is put into requests over verified TLS only"
        return answers.blocked(words, blocked.reference)

    def tell(self) -> None:
        """The event of every secret that was put in since the last time."""
        used = self._swapper.used if self._swapper is not None else []
        for binding in used[self._told :]:
            name = binding.reference.rpartition("/")[2]
            self._flow.subject.emit(
                "network.secret", self._flow, reason=f"the secret {name} was put into a request"
            )
        self._told = len(used)

    def search(self) -> Search | None:
        """What the response has to pass, if it could hold a secret."""
        if self._swapper is None or not self._swapper.bound:
            return None
        return Search(self._swapper.scanner())


class Search:
    """One response, searched for the values that its host was sent or may have seen before."""

    def __init__(self, scanner: Scanner) -> None:
        self._scanner = scanner
        self._inflater: Inflater | None = None

    def head(self, head: ResponseHead, headers: list[Header]) -> list[Header]:
        """The headers for the guest. Raises Malformed."""
        ((_, head.reason),) = self._scanner.response_headers([(b"", head.reason)])
        headers = self._scanner.response_headers(headers)
        if head.framing == "none":
            return headers
        if coding := self._coding(head):
            self._inflater = Inflater(coding)
        # Its length may change, and it goes on as it is read: without compression.
        dropped = (b"content-length", b"content-encoding")
        return [each for each in headers if each[0].lower() not in dropped]

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """What may go on, in pieces of bounded size. Raises Malformed."""
        if self._inflater is None:
            yield self._scanner.feed(piece)
            return
        try:
            for inflated in self._inflater.feed(piece):
                yield self._scanner.feed(inflated)
        except ValueError:
            raise Malformed("it is not compressed as it says") from None

    def finish(self) -> bytes:
        """The rest. Raises Malformed."""
        try:
            if self._inflater is not None:
                self._inflater.finish()
        except ValueError:
            raise Malformed("its compressed body is cut off") from None
        return self._scanner.finish()

    def pass_bytes(self, data: bytes) -> bytes:
        """Of a WebSocket: what may go on."""
        return self._scanner.feed(data)

    def release(self) -> bytes:
        """What was held back and is too little to tell, since nothing follows it in time."""
        return self._scanner.release()

    def trailers(self, headers: list[Header]) -> list[Header]:
        return self._scanner.response_headers(headers)

    def _coding(self, head: ResponseHead) -> str:
        words = (
            word.strip().lower().decode("latin-1")
            for value in head.values(b"content-encoding")
            for word in value.split(b",")
        )
        codings = [word for word in words if word not in ("", "identity")]
        if len(codings) > 1 or any(word not in CODINGS for word in codings):
            raise Malformed("it is compressed in a way that can't be searched for secrets")
        return codings[0] if codings else ""


@functools.lru_cache(maxsize=4)
def _patterns(texts: tuple[str, ...]) -> Patterns:
    try:
        return Patterns(texts)
    except InvalidInputError as exc:
        raise answers.fault(f"network.patterns: {exc.message}", check="patterns") from None
