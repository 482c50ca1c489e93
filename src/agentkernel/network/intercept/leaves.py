"""Certificates of intercepted hosts, and the TLS contexts that show them: in memory only."""

from __future__ import annotations

import ipaddress
import os
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from weakref import WeakSet

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from agentkernel.network.intercept.authority import (
    BACKDATED,
    CERTIFICATE_NAME,
    DIRECTORY,
    Authority,
    open_authority,
)

VALID = timedelta(days=7)
RENEWED_SECONDS = 86400.0
CONTEXTS = 512
"""How many hosts' contexts are kept; a context costs about 50 kB and half a millisecond."""
_FOR_SIGNATURES = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=False,
    crl_sign=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


class Leaves:
    """One authority's certificates. All have the same key, which lives as long as the process."""

    def __init__(self, authority: Authority) -> None:
        self._authority = authority
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._contexts: OrderedDict[str, tuple[float, ssl.SSLContext]] = OrderedDict()
        self._named: WeakSet[object] = WeakSet()

    def context(self, host: str) -> ssl.SSLContext:
        """For the guest's side of a connection to `host`, a canonical name or an address."""
        now = time.monotonic()
        made, context = self._contexts.get(host, (0.0, None))
        if context is None or now - made > RENEWED_SECONDS:
            context = self._make(host)
            self._contexts[host] = (now, context)
        self._contexts.move_to_end(host)
        while len(self._contexts) > CONTEXTS:
            self._contexts.popitem(last=False)
        return context

    def was_named(self, connection: ssl.SSLSocket) -> bool:
        """True if the client's TLS said the name; one that says another gets no connection."""
        return connection in self._named

    def _make(self, host: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        context.sni_callback = self._checking(host)
        private = self._key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        leaf = mint(self._authority, self._key.public_key(), host)
        # OpenSSL reads a chain from a path only: this one is of memory, and gone with the call.
        descriptor = os.memfd_create("leaf", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, private + leaf.public_bytes(serialization.Encoding.PEM))
            context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
        return context

    def _checking(self, host: str) -> Callable[[Any, str | None, Any], int | None]:
        def check(connection: object, name: str | None, _context: object) -> int | None:
            if name is None:
                return None
            if name.lower().removesuffix(".") != host:
                return int(ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME)
            self._named.add(connection)
            return None

        return check


def mint(authority: Authority, key: ec.EllipticCurvePublicKey, host: str) -> x509.Certificate:
    now = datetime.now(UTC)
    alternative: x509.GeneralName
    try:
        alternative = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        alternative = x509.DNSName(host)
    # The common name is for people, and holds at most 64 characters.
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])])
    issuer = authority.certificate
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(min(now + VALID, issuer.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_FOR_SIGNATURES, critical=True)
        .add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()),
            critical=False,
        )
        .sign(authority.key, hashes.SHA256())
    )


_places: list[str] = []
_opened: dict[tuple[str, int, int], Leaves] = {}


def keep_authority_in(state_dir: str) -> None:
    """Said by the gateway before the first host is intercepted. The authority itself is opened, or
    made, when that happens."""
    _places[:] = [state_dir]


def current_leaves() -> Leaves:
    """Those of the authority as it is now: whoever replaces it gets new ones without asking.
    Raises StateError."""
    (state_dir,) = _places
    leaves = _opened.get(_mark(state_dir))
    if leaves is None:
        leaves = Leaves(open_authority(state_dir))
        _opened.clear()
        _opened[_mark(state_dir)] = leaves
    return leaves


def _mark(state_dir: str) -> tuple[str, int, int]:
    try:
        found = os.stat(os.path.join(state_dir, *DIRECTORY, CERTIFICATE_NAME))
    except OSError:
        return state_dir, 0, 0
    return state_dir, found.st_ino, found.st_mtime_ns
