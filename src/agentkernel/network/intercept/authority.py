"""The authority of this installation, which signs the certificates of intercepted hosts.

Made once, below the state directory; only sandboxes of this installation are told to trust it. The
key never leaves the directory, which is its owner's alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from agentkernel.errors import AgentKernelError, StateCorruptError, StateError

DIRECTORY = ("network", "authority")
KEY_NAME = "key.pem"
CERTIFICATE_NAME = "certificate.pem"
MAKING = "authority.new-"
YEARS = 10
RENEW_DAYS = 30
"""An authority that ends sooner is made anew."""
BACKDATED = timedelta(days=1)
"""Guests' clocks may be behind."""


@dataclass(frozen=True)
class Authority:
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()


def authority_pem(state_dir: str) -> str:
    """The certificate for a guest's bundle; the authority is made if there is none."""
    return open_authority(state_dir).pem


def open_authority(state_dir: str) -> Authority:
    """Made once, whoever comes first. Raises StateError, StateCorruptError."""
    place = Path(state_dir, *DIRECTORY)
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _alone(place.parent / "authority.lock"):
            found = _load(place)
            if found is None:
                _make(place)
                found = _load(place)
    except OSError as exc:
        raise StateError(
            f"the authority for intercepted hosts can't be kept: {exc.strerror}: {place}",
            hint="the state directory needs to be writable and to have space",
        ) from None
    assert found is not None
    return found


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _load(place: Path) -> Authority | None:
    """None if there is none, or none that lasts."""
    try:
        key_text = (place / KEY_NAME).read_bytes()
        certificate_text = (place / CERTIFICATE_NAME).read_bytes()
    except FileNotFoundError:
        if place.exists():
            raise _damaged(place) from None
        return None
    try:
        key = serialization.load_pem_private_key(key_text, password=None)
        certificate = x509.load_pem_x509_certificate(certificate_text)
    except ValueError:
        raise _damaged(place) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise _damaged(place)
    if certificate.public_key() != key.public_key():
        raise _damaged(place)
    if certificate.not_valid_after_utc - datetime.now(UTC) < timedelta(days=RENEW_DAYS):
        return None
    return Authority(key, certificate)


def _damaged(place: Path) -> StateCorruptError:
    return StateCorruptError(
        f"the authority for intercepted hosts is damaged: {place}",
        hint=f"remove {place}: a new one is made, which sandboxes trust that start afterwards",
    )


def _make(place: Path) -> None:
    """Both files appear at once, by the name of their directory."""
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _self_signed(key)
    for left in place.parent.glob(f"{MAKING}*"):  # by one that was killed; we have the lock
        shutil.rmtree(left)
    making = Path(tempfile.mkdtemp(prefix=MAKING, dir=place.parent))
    try:
        _write(
            making / KEY_NAME,
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
            0o600,
        )
        _write(
            making / CERTIFICATE_NAME,
            certificate.public_bytes(serialization.Encoding.PEM),
            0o644,
        )
        if place.exists():  # the one that has come to its end
            shutil.rmtree(place)
        making.rename(place)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    _sync_directory(place.parent)


def _write(path: Path, content: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with open(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _self_signed(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    now = datetime.now(UTC)
    # A number of its own in the name: two installations' authorities can stand in one bundle.
    number = x509.random_serial_number()
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "agentkernel"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"agentkernel interception {number:x}"[:48]),
        ]
    )
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(number)
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + timedelta(days=365 * YEARS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                key_cert_sign=True,
                crl_sign=True,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


if __name__ == "__main__":
    try:
        sys.stdout.write(authority_pem(sys.argv[1]))
    except AgentKernelError as error:
        sys.exit(error.message)
