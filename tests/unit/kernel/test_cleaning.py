"""What of a sandbox's upper is no part of a layer, and what of it a RUN has made its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from agentkernel.kernel.building.cleaning import clean_upper

_CERTIFICATE = "-----BEGIN CERTIFICATE-----\nb3Vycw==\n-----END CERTIFICATE-----"
_OTHER = b"-----BEGIN CERTIFICATE-----\nb3RoZXI=\n-----END CERTIFICATE-----\n"
_WRITTEN = {
    "/etc/pip.conf": "[global]\nindex-url = x\n",
    "/etc/uv/uv.toml": "x = 1\n",
    "/etc/agentkernel/ca.crt": _CERTIFICATE,
    "/etc/resolv.conf": "nameserver x\n",
}


def _clean(upper: Path, below: Mapping[str, bytes] | None = None) -> list[str]:
    found = below or {}
    names = {above for name in found for above in _with_parents(name)}
    return clean_upper(str(upper), _WRITTEN, _CERTIFICATE, names.__contains__, found.get)


def _with_parents(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]


@pytest.fixture
def upper(tmp_path: Path) -> Path:
    """As a launch leaves it: our own files."""
    root = tmp_path / "upper"
    for path, text in {**_WRITTEN, "/etc/hosts": "h", "/etc/hostname": "n"}.items():
        place = root / path.strip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return root


def _names(upper: Path) -> set[str]:
    return {str(path.relative_to(upper)) for path in upper.rglob("*")}


def test_nothing_of_ours_is_left(upper: Path) -> None:
    assert _clean(upper) == []
    assert _names(upper) == set()


def test_directories_of_the_image_and_of_the_run_stay(upper: Path) -> None:
    (upper / "etc/uv/own").write_text("x")
    _clean(upper, {"etc/passwd": b""})
    assert _names(upper) == {"etc", "etc/uv", "etc/uv/own"}


def test_what_was_added_is_added_to_the_images_own(upper: Path) -> None:
    with (upper / "etc/pip.conf").open("a") as file:
        file.write("[install]\nuser = yes\n")
    notes = _clean(upper, {"etc/pip.conf": b"# the image's\n"})
    assert (upper / "etc/pip.conf").read_text() == "# the image's\n[install]\nuser = yes\n"
    assert len(notes) == 1 and "/etc/pip.conf" in notes[0]


def test_what_was_replaced_is_kept(upper: Path) -> None:
    (upper / "etc/pip.conf").write_text("[global]\n")
    notes = _clean(upper)
    assert (upper / "etc/pip.conf").read_text() == "[global]\n"
    assert notes == ["/etc/pip.conf was changed: it is kept as it is now"]


def test_the_three_files_never_stay(upper: Path) -> None:
    for name in ("hosts", "hostname", "resolv.conf"):
        (upper / "etc" / name).write_text("changed by a RUN")
    _clean(upper)
    assert _names(upper) == set()


def test_our_certificate_goes_out_of_bundles(upper: Path) -> None:
    bundle = upper / "etc/ssl/certs/ca-certificates.crt"
    bundle.parent.mkdir(parents=True)
    bundle.write_bytes(_OTHER + _CERTIFICATE.encode() + b"\n" + _OTHER)
    (bundle.parent / "agentkernel.pem").symlink_to("/usr/local/share/ca-certificates/x.crt")
    (bundle.parent / "abcd.0").symlink_to("agentkernel.pem")
    (bundle.parent / "other.0").symlink_to("other.pem")
    _clean(upper)
    assert bundle.read_bytes() == _OTHER + _OTHER
    assert set(os.listdir(bundle.parent)) == {"ca-certificates.crt", "other.0"}


@pytest.mark.parametrize("link", ["etc", "etc/agentkernel", "etc/uv"])
def test_no_link_is_followed(upper: Path, tmp_path: Path, link: str) -> None:
    """A guest has put a link where our files were; what it leads to has files of the same names."""
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("hosts", "resolv.conf", "pip.conf", "uv.toml", "ca.crt"):
        (outside / name).write_text(next(iter(_WRITTEN.values())))
    place = upper / link
    os.rename(place, tmp_path / "before")
    place.symlink_to(outside)
    _clean(upper)
    assert len(os.listdir(outside)) == 5
    assert place.is_symlink()
    # The control: the same with a directory.
    place.unlink()
    os.rename(tmp_path / "before", place)
    _clean(upper)
    assert _names(upper) == set()


def test_odd_kinds_of_files_are_left_alone(upper: Path) -> None:
    (upper / "etc/pip.conf").unlink()
    os.mkfifo(upper / "etc/pip.conf")
    (upper / "etc/uv/uv.toml").unlink()
    (upper / "etc/uv/uv.toml").mkdir()
    _clean(upper)
    assert _names(upper) == {"etc", "etc/pip.conf", "etc/uv", "etc/uv/uv.toml"}
