"""Whom a networked sandbox trusts: the image's authorities, and one more."""

from __future__ import annotations

import datetime
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, pkcs12
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.images.bundles import NAME, certificates, with_authority
from agentkernel.images.model import RootFilesystem, Stack
from agentkernel.images.truststore import add_to_java_store, hashed_name
from agentkernel.network.guest_files.paths import BUNDLE


def make_certificate(*names: x509.NameAttribute[str]) -> x509.Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(names)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(datetime.datetime(2020, 1, 1))
        .not_valid_after(datetime.datetime(2040, 1, 1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )


def common_name(text: str) -> x509.NameAttribute[str]:
    return x509.NameAttribute(NameOID.COMMON_NAME, text)


def pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


@pytest.fixture(scope="module")
def ours() -> x509.Certificate:
    organization = x509.NameAttribute(NameOID.ORGANIZATION_NAME, "agentkernel")
    return make_certificate(organization, common_name("agentkernel interception 1f"))


@pytest.fixture(scope="module")
def theirs() -> x509.Certificate:
    return make_certificate(common_name("An Authority"))


def image(path: Path, files: dict[str, bytes], links: dict[str, str] | None = None) -> Path:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    for name, target in (links or {}).items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).symlink_to(target)
    return path


def layer_above(root: RootFilesystem, target: str = "/") -> Path:
    return Path(next(stack for stack in root.stacks if stack.target == target).lowers[0])


def test_each_bundle_of_the_image_gets_ours_besides(
    tmp_path: Path, ours: x509.Certificate, theirs: x509.Certificate
) -> None:
    lower = image(
        tmp_path / "image",
        {
            "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem": pem(theirs).rstrip().encode(),
            "usr/share/own.pem": b"# of another file system\n",
            "etc/pki/ca-trust/source/anchors/.keep": b"",
        },
        {
            "etc/pki/tls/certs/ca-bundle.crt": "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
            "etc/ssl/certs": "../pki/tls/certs",
            "etc/ssl/cert.pem": "/usr/share/own.pem",
        },
    )
    stacks = (Stack("/", (str(lower),)), Stack("/usr", (str(lower / "usr"),)))
    root = RootFilesystem("x", stacks)
    changed = with_authority(root, pem(ours), tmp_path / "cache")

    top = layer_above(changed)
    written = {str(path.relative_to(top)) for path in top.rglob("*") if path.is_file()}
    hashed = hashed_name(ours.public_bytes(Encoding.DER))
    assert written == {
        "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
        BUNDLE.lstrip("/"),
        f"etc/pki/ca-trust/source/anchors/{NAME}",
        f"etc/pki/tls/certs/{hashed}",
    }, "a link stays a link, and what it leads to is changed once"
    for name in ("etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", BUNDLE.lstrip("/")):
        context = ssl.create_default_context(cafile=top / name)
        assert context.cert_store_stats()["x509_ca"] == 2
        assert (top / name).stat().st_mode & 0o777 == 0o644
    elsewhere = layer_above(changed, "/usr") / "share/own.pem"
    assert elsewhere.read_bytes() == b"# of another file system\n" + pem(ours).encode()
    assert [stack.lowers[1:] for stack in changed.stacks] == [stack.lowers for stack in stacks]


def test_the_layer_is_made_once_and_anew_for_another_certificate(
    tmp_path: Path, ours: x509.Certificate, theirs: x509.Certificate
) -> None:
    name = "etc/ssl/certs/ca-certificates.crt"
    lower = image(tmp_path / "image", {name: b"old\n"})
    root = RootFilesystem("x", (Stack("/", (str(lower),)),))
    one = layer_above(with_authority(root, pem(ours), tmp_path / "cache"))
    assert layer_above(with_authority(root, pem(ours), tmp_path / "cache")) == one
    assert layer_above(with_authority(root, pem(theirs), tmp_path / "cache")) != one
    (lower / name).write_bytes(b"newer\n")
    other = layer_above(with_authority(root, pem(ours), tmp_path / "cache"))
    assert other != one
    assert (other / name).read_bytes().startswith(b"newer\n")


def test_an_image_without_authorities_gets_the_machines(
    tmp_path: Path, ours: x509.Certificate, theirs: x509.Certificate
) -> None:
    machine = image(tmp_path / "machine", {"etc/ssl/cert.pem": pem(theirs).encode()})
    lower = image(tmp_path / "image", {"bin/sh": b""})
    root = RootFilesystem("x", (Stack("/", (str(lower),)),))
    changed = with_authority(root, pem(ours), tmp_path / "cache", machine=machine)
    bundle = (layer_above(changed) / BUNDLE.lstrip("/")).read_bytes()
    assert len(list(certificates(bundle))) == 2


def test_a_bundle_that_is_no_file_is_left(tmp_path: Path, ours: x509.Certificate) -> None:
    lower = tmp_path / "image"
    (lower / "etc/ssl/certs/ca-certificates.crt").mkdir(parents=True)
    big = lower / "etc/ssl/cert.pem"
    with big.open("wb") as file:
        file.truncate(1 << 30)
    root = RootFilesystem("x", (Stack("/", (str(lower),)),))
    changed = with_authority(root, pem(ours), tmp_path / "cache", machine=tmp_path)
    top = layer_above(changed)
    assert not (top / "etc/ssl/cert.pem").exists()
    assert not (top / "etc/ssl/certs/ca-certificates.crt").exists()


NAMES = (
    [common_name("agentkernel interception 1f")],
    [
        x509.NameAttribute(NameOID.COUNTRY_NAME, "DE"),
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "  Müller   & Söhne "),
        common_name("UPPER lower"),
    ],
    [x509.NameAttribute(NameOID.EMAIL_ADDRESS, "A@Example.ORG"), common_name("x" * 64)],
)


@pytest.mark.parametrize("names", NAMES, ids=range(len(NAMES)))
def test_the_name_is_openssls(names: list[x509.NameAttribute[str]]) -> None:
    certificate = make_certificate(*names)
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    said = subprocess.run(
        ["openssl", "x509", "-noout", "-subject_hash"],
        input=pem(certificate).encode(),
        capture_output=True,
        check=True,
    )
    assert (
        hashed_name(certificate.public_bytes(Encoding.DER)) == f"{said.stdout.decode().strip()}.0"
    )


@given(st.binary(max_size=300))
def test_what_is_no_certificate_has_no_name(data: bytes) -> None:
    try:
        hashed_name(data)
    except ValueError:
        return


@given(st.binary(max_size=200), st.sampled_from([b"", bytes.fromhex("feedfeed00000002")]))
def test_what_is_no_store_is_left(data: bytes, head: bytes) -> None:
    made = add_to_java_store(head + data, b"x", [b"y"])
    assert made is None or (not head and data[:1] == b"0" and made[8:12] == b"\0\0\0\2")


def java_store(*trusted: x509.Certificate) -> bytes:
    entries = [pkcs12.PKCS12Certificate(item, b"%d" % n) for n, item in enumerate(trusted)]
    return pkcs12.serialize_java_truststore(entries, BestAvailableEncryption(b"changeit"))


def test_java_reads_the_store(
    tmp_path: Path, ours: x509.Certificate, theirs: x509.Certificate
) -> None:
    der = ours.public_bytes(Encoding.DER)
    once = add_to_java_store(java_store(theirs), der, [theirs.public_bytes(Encoding.DER)])
    assert once is not None
    twice = add_to_java_store(once, theirs.public_bytes(Encoding.DER), [])
    assert twice is not None
    assert int.from_bytes(twice[8:12], "big") == 3
    assert add_to_java_store(once[:-1] + bytes([once[-1] ^ 1]), der, []) is None, "damaged"
    if not shutil.which("keytool"):
        pytest.skip("keytool is not installed; the store's bytes are as described")
    (tmp_path / "cacerts").write_bytes(once)
    said = subprocess.run(
        ["keytool", "-list", "-keystore", tmp_path / "cacerts", "-storepass", "changeit"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert said.stdout.count("trustedCertEntry") == 2
    fingerprint = ours.fingerprint(hashes.SHA256()).hex(":").upper()
    assert fingerprint in said.stdout
