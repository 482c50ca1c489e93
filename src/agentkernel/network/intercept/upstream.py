"""The far side of an intercepted connection: reached, and trusted before a byte of a request is
sent to it."""

from __future__ import annotations

import functools
import os
import ssl

from agentkernel.network.gateway.flow import Dialler, Flow, Refused
from agentkernel.network.intercept.answers import denied, fault
from agentkernel.network.intercept.wire import Wire, connect_wire

# OpenSSL's numbers of what was wrong with a certificate, by what they mean for the reader.
_CHECKS = {
    9: ("not_yet_valid", "its certificate is not valid yet"),
    10: ("expired", "its certificate has expired"),
    18: ("self_signed", "its certificate is signed by itself"),
    19: ("unknown_issuer", "its certificate is signed by an authority that is not trusted here"),
    20: ("unknown_issuer", "its certificate is signed by an authority that is not trusted here"),
    21: ("unknown_issuer", "its certificate is signed by an authority that is not trusted here"),
    23: ("revoked", "its certificate is revoked"),
    62: ("wrong_name", "its certificate is for another name"),
    64: ("wrong_name", "its certificate is for another address"),
}


async def reach(flow: Flow, dialler: Dialler, *, tls: bool) -> Wire:
    """Raises Answer."""
    try:
        sock, _ = await dialler.dial(flow)
    except Refused as exc:
        raise (denied(exc.words) if exc.denied else fault(exc.words, check="connect")) from None
    try:
        context = _context(flow.subject.operator.upstream_ca) if tls else None
    except OSError:
        sock.close()
        raise fault(
            "the file of network.upstream_ca can't be read as certificates", check="upstream_ca"
        ) from None
    try:
        return await connect_wire(sock, context, flow.host)
    except ssl.SSLCertVerificationError as exc:
        check, words = _CHECKS.get(exc.verify_code, ("untrusted", "its certificate is not valid"))
        raise fault(f"{flow.host} was not trusted: {words}", check=check) from None
    except ssl.SSLError:
        raise fault(
            f"{flow.host} does not speak TLS 1.2 or newer as it should", check="tls"
        ) from None
    except (OSError, TimeoutError):
        raise fault(f"{flow.host} broke off the connection", check="connect") from None


def _context(authorities: str | None) -> ssl.SSLContext:
    changed = os.stat(authorities).st_mtime_ns if authorities else 0
    return _make_context(authorities, changed)


@functools.lru_cache(maxsize=4)
def _make_context(authorities: str | None, _changed: int) -> ssl.SSLContext:
    """Reading the system's certificates takes tens of milliseconds: kept until the file changes."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # A body without a length ends with the connection: an end that TLS did not say may be a cut.
    context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
    if authorities:
        context.load_verify_locations(cafile=authorities)
    return context
