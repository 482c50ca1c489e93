"""What went wrong with a registry, as an error that says what to do.

Lost         the connection broke, or the registry is not well: it may be tried again
the rest     typed errors of errors.py, which are final: trying again gives the same
"""

from __future__ import annotations

import ssl
from collections.abc import Collection

import msgspec

from agentkernel.errors import (
    AgentKernelError,
    NotFoundError,
    PolicyDeniedError,
    RateLimitedError,
    RegistryDeniedError,
    RegistryError,
)
from agentkernel.texts import printable

_LONGEST_WORDS = 200
# What OpenSSL says of a server that answers in something else.
_NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"})
_LOGIN = "log in with docker login or podman login"


class Lost(Exception):
    """May be tried again, not before `wait` seconds. `error` is what to raise when nobody does.
    `reached`: there was somebody."""

    def __init__(
        self, error: AgentKernelError, *, wait: float | None = None, reached: bool = True
    ) -> None:
        super().__init__(error.message)
        self.error = error
        self.wait = wait
        self.reached = reached


class NoTls(RegistryError):
    """Nothing there speaks TLS."""


class _Problem(msgspec.Struct):
    code: str = ""
    message: str = ""


class _Problems(msgspec.Struct):
    errors: list[_Problem] = []


def unreachable(registry: str, why: str, at: str = "") -> RegistryError:
    """`at`, here and below: the host it was about, where that is another."""
    return RegistryError(
        f"{_called(registry, at)} can't be reached: {why}",
        hint="check the name, the network and the proxy (HTTPS_PROXY, network.upstream_proxy); a"
        " mirror can stand in for it (images.mirrors in config.toml)",
        registry=registry,
    )


def broken(registry: str, why: str, at: str = "") -> RegistryError:
    return RegistryError(
        f"{_called(registry, at)} broke off: {why}",
        hint="pull again: what has come is kept and gone on with",
        registry=registry,
    )


def misbehaved(registry: str, why: str) -> RegistryError:
    return RegistryError(
        f"{registry} {why}",
        hint="it does not behave as a registry should; check the name, or ask who runs it",
        registry=registry,
    )


def forbidden_way(registry: str, why: str) -> RegistryError:
    return RegistryError(
        f"{registry} leads to where nobody goes for it: {why}",
        hint="if that is right, name the host in images.insecure of config.toml",
        registry=registry,
    )


def not_public(registry: str, why: str) -> PolicyDeniedError:
    return PolicyDeniedError(
        f"the registry {registry} is not public: {why}; to have images fetched from there needs "
        "the scope host-paths, which the caller has not",
        hint="whoever has it can pull the image, or name a mirror in images.mirrors of config.toml",
        needed="host-paths",
    )


def untrusted(registry: str, error: ssl.SSLError, at: str) -> RegistryError:
    called = _called(registry, at)
    if isinstance(error, ssl.SSLCertVerificationError):
        return RegistryError(
            f"{called} was not trusted: {printable(error.verify_message)}",
            hint=f"put its authority into /etc/docker/certs.d/{at}/ca.crt, or name the file"
            " in network.upstream_ca of config.toml",
            registry=registry,
        )
    hung_up = isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ssl.SSLSyscallError)
    kind = NoTls if hung_up or error.reason in _NOT_TLS else RegistryError
    return kind(
        f"{called} does not speak TLS as it should ({printable(error.reason or 'no reason')})",
        hint="a registry without TLS is named in images.insecure of config.toml",
        registry=registry,
    )


def denied(
    registry: str, what: str, status: int, *, sent: bool, note: str = "", words: str = ""
) -> RegistryDeniedError:
    """A 401 or 403. `sent`: a login was shown; `note`: why one could not be."""
    if sent:
        hint = f"the login for it is wrong or may not do this; {_LOGIN} {registry}"
    else:
        hint = f"check the name; if it is a private image, {_LOGIN} {registry}"
    return RegistryDeniedError(
        f"{registry} gives {what} only to those it knows, or has no such image"
        + (f": {words}" if words else ""),
        hint=f"{hint} ({note})" if note else hint,
        registry=registry,
        status=status,
    )


def missing(registry: str, what: str) -> NotFoundError:
    return NotFoundError(
        f"{registry} has no {what}",
        hint="check name and tag, and whether it needs a login: some registries say the same then",
        registry=registry,
    )


def of_status(
    registry: str,
    what: str,
    status: int,
    body: bytes,
    *,
    sent: bool,
    note: str = "",
    retry_after: float | None = None,
    secrets: Collection[str] = (),
) -> AgentKernelError | Lost:
    """What an answer means that is not the one hoped for."""
    words = _words(body, secrets)
    if status in (401, 403):
        return denied(registry, what, status, sent=sent, note=note, words=words)
    if status == 404:
        return missing(registry, what)
    if status == 429:
        limited = RateLimitedError(
            f"{registry} has had too many requests from here" + (f": {words}" if words else ""),
            hint=f"wait, {_LOGIN} {registry} if you have not, or use a mirror (images.mirrors in"
            " config.toml)",
            registry=registry,
            retry_after_seconds=retry_after if retry_after is not None else 60,
        )
        return Lost(limited, wait=retry_after)
    error = RegistryError(
        f"{registry} answers {status} for {what}" + (f": {words}" if words else ""),
        hint="try again later" if status >= 500 else "check the name, or ask who runs the registry",
        registry=registry,
        status=status,
    )
    return Lost(error, wait=retry_after) if status >= 500 or status == 408 else error


def _called(registry: str, at: str) -> str:
    return registry if at in ("", registry) else f"{registry} (at {at})"


def _words(body: bytes, secrets: Collection[str]) -> str:
    """The registry's own, if it says them as a registry should. It knows what we sent it, and may
    say it back: that is taken out."""
    try:
        problems = msgspec.json.decode(body, type=_Problems).errors[:3]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    words = "; ".join(problem.message or problem.code for problem in problems)
    for secret in secrets:
        words = words.replace(secret, "***")
    return printable(words, _LONGEST_WORDS)
