"""A test authority: certificates that are good, expired, self-signed or for another name."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


class Authority:
    """Signs what the world's servers show. `ca_path` is what a client has to trust."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("Test Authority of the World")
        self._certificate = self._sign(
            self._name, self._key, self._name, self._key, [], ca=True, days=(-1, 30)
        )
        self.ca_path = place / "ca.pem"
        self.ca_path.write_bytes(_pem(self._certificate))

    def context(self, *names: str, kind: str = "good") -> ssl.SSLContext:
        """A server's context. `kind`: "good", "expired", "self-signed"; a certificate of the wrong
        name is a good one for another."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(names[0])
        days = (-30, -1) if kind == "expired" else (-1, 30)
        issuer, signer = (subject, key) if kind == "self-signed" else (self._name, self._key)
        certificate = self._sign(subject, key, issuer, signer, list(names), ca=False, days=days)
        path = self._place / f"{kind}-{names[0].replace('*', '_')}.pem"
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        path.write_bytes(private + _pem(certificate))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        context.set_alpn_protocols(["http/1.1"])
        return context

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        issuer: x509.Name,
        signer: ec.EllipticCurvePrivateKey,
        names: list[str],
        *,
        ca: bool,
        days: tuple[int, int],
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + days[0] * _DAY)
            .not_valid_after(now + days[1] * _DAY)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), False
            )
        )
        if names:
            shown = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
            builder = builder.add_extension(shown, critical=False)
        if ca:
            builder = builder.add_extension(
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
        return builder.sign(signer, hashes.SHA256())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
