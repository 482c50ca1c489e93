"""Whom programs in a networked sandbox trust: the image's own authorities, and ours besides.

Every place where the image has a bundle of authorities gets that bundle with our certificate
appended, as a layer on top of the image's: made once for an image and a certificate, shared by all
sandboxes, and as changeable inside as any file (a package manager renames its own over it, and
finds ours again where it collects from).
"""

from __future__ import annotations

import base64
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple

from agentkernel.images import etc
from agentkernel.images.cache import StrPath, key_of, layer
from agentkernel.images.model import RootFilesystem, Stack
from agentkernel.images.truststore import add_to_java_store, hashed_name
from agentkernel.images.view import View
from agentkernel.network.guest_files.paths import BUNDLE

VERSION = 1
PEM_PLACES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ca-certificates/extracted/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/pki/tls/cert.pem",
    "/etc/ssl/ca-bundle.pem",
    "/var/lib/ca-certificates/ca-bundle.pem",
)
JAVA_PLACES = (
    "/etc/ssl/certs/java/cacerts",
    "/etc/pki/java/cacerts",
    "/etc/pki/ca-trust/extracted/java/cacerts",
    "/usr/lib/jvm/default/lib/security/cacerts",
    "/opt/java/openjdk/lib/security/cacerts",
)
# Where the programs that make bundles look for certificates to add to them.
COLLECTED_FROM = ("/usr/local/share/ca-certificates", "/etc/pki/ca-trust/source/anchors")
# Certificates by a hash of their subject, for programs that look for one of them only.
HASHED = ("/etc/ssl/certs", "/etc/pki/tls/certs")
NAME = "agentkernel.crt"
MAX_BUNDLE = 8 << 20
_CERTIFICATE = re.compile(
    rb"-----BEGIN (?:TRUSTED )?CERTIFICATE-----(.*?)-----END (?:TRUSTED )?CERTIFICATE-----", re.S
)


class Entry(NamedTuple):
    """One file: a guest path without links in it, what it is to be, and the file it is made from
    (a host path; empty: none). `bundle`: of a store, the bundle that trusts the same."""

    path: str
    kind: Literal["bundle", "store", "certificate"]
    source: str = ""
    bundle: str = ""


def with_authority(
    root: RootFilesystem, certificate: str, cache_dir: StrPath, *, machine: StrPath = "/"
) -> RootFilesystem:
    """The image with `certificate` (PEM) trusted. `machine`: whose authorities an image gets that
    has none. Raises ValueError for what is no certificate."""
    ours, der = _forms(certificate)
    entries: dict[str, list[Entry]] = {}
    for entry in _found(root, der, machine):
        entries.setdefault(_stack_of(entry.path, root.stacks), []).append(entry)

    def build(target: str, below: str) -> None:
        for entry in entries[below]:
            content = _content(entry, ours, der)
            if content is not None:
                etc.write(target, entry.path[len(below) :].lstrip("/"), content)

    def above(stack: Stack) -> Stack:
        if stack.target not in entries:
            return stack
        seen = [(e, _seen(e.source), _seen(e.bundle)) for e in entries[stack.target]]
        name = f"bundles-{key_of('bundles', VERSION, certificate, seen)}"
        path = layer(cache_dir, name, partial(build, below=stack.target))
        return Stack(stack.target, (path, *stack.lowers))

    return replace(root, stacks=tuple(map(above, root.stacks)))


def authority_files(
    root: RootFilesystem, certificate: str, *, machine: StrPath = "/"
) -> dict[str, bytes]:
    """The same as files by path, for a sandbox in which a layer of ours would be nobody's."""
    ours, der = _forms(certificate)
    made = {entry.path: _content(entry, ours, der) for entry in _found(root, der, machine)}
    return {path: content for path, content in made.items() if content is not None}


def _forms(certificate: str) -> tuple[bytes, bytes]:
    ours = certificate.strip().encode() + b"\n"
    return ours, b"".join(certificates(ours))


def _found(root: RootFilesystem, der: bytes, machine: StrPath) -> Iterator[Entry]:
    view = View([(stack.target, stack.lowers) for stack in root.stacks])
    outside = View([("/", [os.path.abspath(os.fspath(machine))])])
    return _entries(view, outside, hashed_name(der))


def _entries(view: View, outside: View, hashed: str) -> Iterator[Entry]:
    bundles = list(_files(view, PEM_PLACES))
    sources = [host for _, host in bundles or _files(outside, PEM_PLACES)]
    first = sources[0] if sources else ""
    yield Entry(BUNDLE, "bundle", first)
    yield from (Entry(path, "bundle", host) for path, host in bundles)
    yield from (Entry(path, "store", host, first) for path, host in _files(view, JAVA_PLACES))
    for path in _directories(view, COLLECTED_FROM):
        yield Entry(f"{path}/{NAME}", "certificate")
    for path in _directories(view, HASHED):
        yield Entry(f"{path}/{hashed}", "certificate")


def _content(entry: Entry, ours: bytes, der: bytes) -> bytes | None:
    old = _read(entry.source) if entry.source else b""
    if entry.kind == "certificate":
        return ours
    if old is None:
        return None
    if entry.kind == "store":
        return add_to_java_store(old, der, certificates(_read(entry.bundle) or b""))
    return old + (b"\n" if old and not old.endswith(b"\n") else b"") + ours


def _files(view: View, places: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Where those places lead that are there, each file once: the guest path, the host's file."""
    yield from _leading(view, places, os.path.isfile)


def _directories(view: View, places: tuple[str, ...]) -> list[str]:
    return [path for path, _ in _leading(view, places, os.path.isdir)]


def _leading(
    view: View, places: tuple[str, ...], wanted: Callable[[str], bool]
) -> Iterator[tuple[str, str]]:
    paths = dict.fromkeys(path for place in places if (path := view.resolve(place)) is not None)
    for path in paths:
        host = view.host(path)
        if host is not None and wanted(host):
            yield path, host


def _stack_of(path: str, stacks: tuple[Stack, ...]) -> str:
    """The target of the stack that shows `path`: the longest."""
    inside = [s.target for s in stacks if s.target == "/" or path.startswith(s.target + "/")]
    return max(inside, key=len)


def _seen(path: str) -> tuple[object, ...]:
    """What tells that a file changed."""
    try:
        info = os.stat(path)
    except OSError:
        return ()
    return (info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def _read(path: str) -> bytes | None:
    """A file of an image, which anybody may have made: a regular one of a size that makes sense."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(fd, "rb") as stream:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_BUNDLE:
            return None
        try:
            return stream.read(MAX_BUNDLE)
        except OSError:
            return None


def certificates(pem: bytes) -> Iterator[bytes]:
    """The certificates of a bundle, in DER; what is no base64 is passed over."""
    for match in _CERTIFICATE.finditer(pem):
        try:
            yield base64.b64decode(b"".join(match[1].split()), validate=True)
        except ValueError:
            continue
