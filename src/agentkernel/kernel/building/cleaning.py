"""What of a sandbox's files is no part of a layer: those that we put there ourselves.

A RUN finds in its sandbox what its network needs: a resolver, the machine's registries in the words
of package clients, an authority that is trusted. Here they are taken out of its upper once
it has ended, by name: the guest has shaped these files, so nothing is reached through a link.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Mapping

from agentkernel.network.guest_files.paths import DIRECTORY
from agentkernel.workspaces import beneath

# As everywhere, a build keeps none of what a RUN makes of these.
ALWAYS = ("etc/hosts", "etc/hostname", "etc/resolv.conf")
# Where mounts of ours were: what is in them on disk is nothing that a RUN wrote.
EXCLUDED = ("proc/", "sys/", "dev/")
_MAX_BYTES = 16 << 20
_OPAQUE = "user.overlay.opaque"


def clean_upper(
    upper: str,
    written: Mapping[str, str],
    authority: str,
    is_below: Callable[[str], bool],
    below: Callable[[str], bytes | None],
) -> list[str]:
    """`written`: our files, by path; `is_below`, `below`: whether the image has a name, and a small
    file's content. Returns notes: which of our files the RUN has changed, and what was kept of it.
    """
    notes: list[str] = []
    root = os.open(upper, beneath.DIRECTORY)
    try:
        for path in ALWAYS:
            _unlink(root, path)
            _remove_empty(root, path, is_below)
        _remove_all(root, DIRECTORY.strip("/"), written)
        for path, text in written.items():
            name = path.strip("/")
            if name in ALWAYS or not name:
                continue
            note = _take_out(root, name, text.encode(), below)
            if note:
                notes.append(note)
            _remove_empty(root, name, is_below)
        if authority:
            _distrust(root, authority.strip().encode())
    finally:
        os.close(root)
    return notes


def _take_out(
    root: int, name: str, ours: bytes, below: Callable[[str], bytes | None]
) -> str | None:
    """What the RUN has added to our file is added to the image's; another file is the RUN's own."""
    status = beneath.status(root, name)
    if status is None or not stat.S_ISREG(status.st_mode):
        return None
    content = None
    with contextlib.suppress(OSError):
        content = beneath.read(root, name, _MAX_BYTES)
    if content is None:
        return None
    if content == ours:
        _unlink(root, name)
        return None
    if content.startswith(ours):
        _rewrite(root, name, (below(name) or b"") + content[len(ours) :])
        return f"what was added to /{name} is kept, without this machine's own settings"
    return f"/{name} was changed: it is kept as it is now"


def _distrust(root: int, certificate: bytes) -> None:
    """Takes our certificate out of bundles that were copied up or made anew."""
    from agentkernel.images.bundles import COLLECTED_FROM, NAME, PEM_PLACES

    for place in PEM_PLACES:
        name = place.strip("/")
        status = beneath.status(root, name)
        if status is None or not stat.S_ISREG(status.st_mode):
            continue
        with contextlib.suppress(OSError):
            content = beneath.read(root, name, _MAX_BYTES)
            if content is not None and certificate in content:
                content = content.replace(certificate + b"\n", b"").replace(certificate, b"")
                _rewrite(root, name, content)
    for place in COLLECTED_FROM:
        _unlink(root, f"{place.strip('/')}/{NAME}")
    _unlink_hashed(root, NAME)


def _unlink_hashed(root: int, name: str) -> None:
    """Links that programs made to our certificate, by its name and by its subject's hash."""
    from agentkernel.images.bundles import HASHED

    pem = name.removesuffix(".crt") + ".pem"
    for place in HASHED:
        directory = place.strip("/")
        try:
            with beneath.opened_parent(root, f"{directory}/x") as (at, _):
                for entry in os.listdir(at):
                    with contextlib.suppress(OSError):
                        if entry == pem or os.readlink(entry, dir_fd=at) == pem:
                            os.unlink(entry, dir_fd=at)
        except OSError:
            continue


def _rewrite(root: int, path: str, content: bytes) -> None:
    """In place: owner and mode stay. Best effort: a file that is not the user's stays as it is."""
    with contextlib.suppress(OSError), beneath.opened_parent(root, path) as (at, name):
        fd = os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
        with open(fd, "wb") as file:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                file.truncate(0)
                file.write(content)


def _unlink(root: int, path: str) -> None:
    """A file, a link, or the mark that one was removed."""
    with contextlib.suppress(OSError), beneath.opened_parent(root, path) as (at, name):
        os.unlink(name, dir_fd=at)


def _remove_all(root: int, directory: str, written: Mapping[str, str]) -> None:
    """Our own directory, with what we put there; it goes if nothing else is in it."""
    for path in written:
        if path.strip("/").startswith(f"{directory}/"):
            _unlink(root, path.strip("/"))
    with contextlib.suppress(OSError), beneath.opened_parent(root, directory) as (at, name):
        os.rmdir(name, dir_fd=at)


def _remove_empty(root: int, path: str, is_below: Callable[[str], bool]) -> None:
    """Directories that were made for our file alone."""
    above = path.rpartition("/")[0]
    while above:
        if is_below(above):
            return
        try:
            with beneath.opened_parent(root, above) as (at, name):
                os.rmdir(name, dir_fd=at)
        except OSError as exc:
            if exc.errno != errno.ENOENT:
                return
        above = above.rpartition("/")[0]
