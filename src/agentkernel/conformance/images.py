"""Images: a stored one is what the sandbox's root is, on every engine.

The image is made here and holds one program of some hundred bytes, so that this can be tried on any
machine, whatever is installed and whatever can be reached.
"""

from __future__ import annotations

import io
import platform
import struct
import tarfile
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from agentkernel.conformance.bench import Bench, NotHere, expect, within
from agentkernel.guest.files import GuestFiles
from agentkernel.guest.processes import Outcome
from agentkernel.images.oci.model import OCI_CONFIG, OCI_LAYER, OCI_MANIFEST, this_platform
from agentkernel.images.oci.reference import parse_reference
from agentkernel.images.oci.rootfs import pin
from agentkernel.images.oci.store import ImageStore, digest_of
from agentkernel.kernel.commands import run_command

_NAME = "localhost/agentkernel-conformance"
_WORDS = b"from the image\n"
_BASE = 0x400000
_HEADERS = 64 + 56
_MACHINES = {"x86_64": 62, "aarch64": 183}


async def a_stored_image_is_the_root(bench: Bench) -> None:
    """its layers are merged, whiteouts hide, and its program, variables and directory hold"""
    store = ImageStore(bench.state_dir / "images")
    lower = {"hello": program_of(_WORDS), "kept": b"lower", "gone": b"x", "d/below": b"x"}
    upper = {"kept": b"upper", ".wh.gone": b"", "d/.wh..wh..opq": b"", "d/above": b"x"}
    process = {"Env": ["WORD=given"], "WorkingDir": "/made/here", "Entrypoint": ["/hello"]}
    store_image(store, _NAME, [tar_of(lower), tar_of(upper)], process)
    pinned = pin(_NAME, store.find(_NAME))
    # A sandbox of it needs no name any more, and nobody else is to find it.
    store.untag(parse_reference(_NAME).name)
    async with bench.sandbox(image=pinned) as sandbox:
        result = await within(run_command(sandbox, list(sandbox.root.entrypoint)))
        expect(result.status.outcome is Outcome.EXITED, result.status)
        expect(result.stdout == _WORDS, result)
        expect(sandbox.environment["WORD"] == "given", sandbox.environment)
        files = GuestFiles(sandbox.channel)
        expect(await within(files.read("/kept")) == b"upper", "the lower layer's file is seen")
        expect(not await within(files.exists("/gone")), "a whiteout does not hide")
        names = [entry.name for entry in await within(files.list("/d"))]
        expect(names == ["above"], f"an opaque directory shows {names}")
        expect(await within(files.exists("/made/here")), "the working directory was not made")
        await within(files.write("/kept", b"changed"))
    async with bench.sandbox(image=pinned) as sandbox:
        content = await within(GuestFiles(sandbox.channel).read("/kept"))
        expect(content == b"upper", "a sandbox has changed the image")


def store_image(
    store: ImageStore, name: str, layers: Sequence[bytes], process: Mapping[str, Any]
) -> str:
    """Adds an image of these tars, lowest first, and names it; the manifest's digest."""
    system = this_platform()
    config = msgspec.json.encode(
        {
            "architecture": system.architecture,
            "os": system.os,
            "config": process,
            "rootfs": {"type": "layers", "diff_ids": [digest_of(tar) for tar in layers]},
        }
    )
    manifest = msgspec.json.encode(
        {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": _descriptor(OCI_CONFIG, config),
            "layers": [_descriptor(OCI_LAYER, tar) for tar in layers],
        }
    )
    with store.adding():
        for blob in (*layers, config):
            store.put_document(blob)
        digest = store.put_document(manifest)
        store.tag(parse_reference(name).name, digest)
    return digest


def tar_of(files: Mapping[str, bytes]) -> bytes:
    """All of them may be executed, and are root's."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, content in files.items():
            info = tarfile.TarInfo(path)
            info.mode, info.size = 0o755, len(content)
            tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def _descriptor(media_type: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest_of(content), "size": len(content)}


def program_of(words: bytes) -> bytes:
    """An executable that writes `words` and ends."""
    machine = platform.machine()
    if machine not in _MACHINES:
        raise NotHere(f"there is no program for {machine}")
    size = len(words)
    if machine == "x86_64":
        code = (
            b"\xb8\1\0\0\0\xbf\1\0\0\0\x48\x8d\x35\x10\0\0\0\xba"  # write, 1, what stands behind
            + struct.pack("<I", size)
            + b"\x0f\x05\xb8\x3c\0\0\0\x31\xff\x0f\x05"  # exit, 0
        )
    else:
        code = struct.pack(
            "<8I",
            *(0xD2800808, 0xD2800020, 0x100000C1, 0xD2800002 | size << 5, 0xD4000001),
            *(0xD2800BA8, 0xD2800000, 0xD4000001),
        )
    whole = _HEADERS + len(code) + size
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\2\1\1",
        *(2, _MACHINES[machine], 1, _BASE + _HEADERS, 64, 0, 0, 64, 56, 1, 0, 0, 0),
    )
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, whole, whole, 0x1000)
    return header + segment + code + words


CASES = (a_stored_image_is_the_root,)
