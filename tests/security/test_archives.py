"""Layers whose archives attack: whoever unpacks one can be hurt nowhere but in the layer itself.

Beside the layer's directory lies something that every attack is after. Each attack is refused with
a reason, or comes to nothing, and what lies outside is as it was. The controls: the same attacks
work on an unpacker that believes what archives say, and archives without them are unpacked.
"""

from __future__ import annotations

import gzip
import os
import socket
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentkernel.errors import ImageInvalidError
from agentkernel.images.oci.work import LayerLimits

from ..integration.layer_archives import (
    BLOCK,
    CHAR,
    DIRECTORY,
    FIFO,
    HARD_LINK,
    SYMLINK,
    Archive,
    Bench,
    bench_in,
    diff_id,
    header,
    kinds_of_ids,
    sealed,
    zstd_compress,
)

SECRET = b"planted"
Build = Callable[[Path], Archive]


class Outside:
    """A directory beside the layer; `state` is all there is to know of it."""

    def __init__(self, top: Path) -> None:
        self.path = top / "outside"
        self.path.mkdir(mode=0o750)
        (self.path / "secret").write_bytes(SECRET)
        (self.path / "empty").mkdir()

    def state(self) -> dict[str, object]:
        found: dict[str, object] = {}
        for path in [self.path, *sorted(self.path.rglob("*"))]:
            info = path.lstat()
            content = path.read_bytes() if path.is_file() else None
            found[str(path)] = (
                info.st_mode, info.st_uid, info.st_gid, info.st_nlink, info.st_mtime_ns,
                info.st_ctime_ns, content,
            )  # fmt: skip
        return found


@pytest.fixture(params=kinds_of_ids())
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    with bench_in(tmp_path, request.param) as bench:
        yield bench


@pytest.fixture
def outside(tmp_path: Path) -> Outside:
    return Outside(tmp_path)


# -- ways out --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WayOut:
    """`reason`: why it is refused; "": it is unpacked, and stays inside."""

    build: Build
    reason: str
    # What an unpacker that believes everything does to the outside.
    escapes: bool = True


def _through_link(target: Callable[[Path], str]) -> Build:
    return lambda out: (
        Archive().add("way", kind=SYMLINK, link=target(out)).add("way/secret", b"changed")
    )


def _upwards(path: Path) -> str:
    return "../" * 40 + str(path).lstrip("/")


WAYS_OUT = {
    "dotdot": WayOut(lambda out: Archive().add("../outside/secret", b"changed"), "dotdot"),
    "dotdot inside": WayOut(
        lambda out: Archive().add("a/", kind=DIRECTORY).add(
            "a/../../outside/secret", b"changed"
        ),
        "dotdot",
    ),
    "dotdot in PAX": WayOut(
        lambda out: Archive().add("good", b"changed", pax={"path": "../outside/secret"}), "dotdot"
    ),
    "dotdot in a long name": WayOut(
        lambda out: Archive().add("./" * 60 + "../outside/secret", b"changed"), "dotdot"
    ),
    "absolute": WayOut(lambda out: Archive().add(f"{out}/secret", b"changed"), ""),
    "absolute link": WayOut(_through_link(str), "parent-link"),
    "relative link": WayOut(_through_link(lambda out: "../outside"), "parent-link"),
    "link upwards": WayOut(_through_link(_upwards), "parent-link"),
    "link to a link": WayOut(
        lambda out: Archive()
        .add("one", kind=SYMLINK, link=str(out))
        .add("two", kind=SYMLINK, link="one")
        .add("two/secret", b"changed"),
        "parent-link",
    ),
    "link as the last part": WayOut(
        lambda out: Archive()
        .add("way", kind=SYMLINK, link=f"{out}/secret")
        .add("way", b"changed"),
        "",
        escapes=False,  # Python unlinks first
    ),
    "link, then the same as a directory": WayOut(
        lambda out: Archive()
        .add("way", kind=SYMLINK, link=str(out))
        .add("way/", kind=DIRECTORY, mode=0o777),
        "",
    ),
    "directory, then a link in its place": WayOut(
        lambda out: Archive()
        .add("way/", kind=DIRECTORY)
        .add("way/a", b"x")
        .add("way", kind=SYMLINK, link=str(out))
        .add("way/secret", b"changed"),
        "parent-link",
        escapes=False,  # Python does not replace directories
    ),
    "hard link upwards": WayOut(
        lambda out: Archive().add("way", kind=HARD_LINK, link="../outside/secret"), "link-dotdot"
    ),
    "absolute hard link": WayOut(
        lambda out: Archive().add("way", kind=HARD_LINK, link=f"{out}/secret"), "link-missing"
    ),
    "hard link through a link": WayOut(
        lambda out: Archive()
        .add("way", kind=SYMLINK, link=str(out))
        .add("hard", kind=HARD_LINK, link="way/secret"),
        "link-missing",
    ),
    "hard link to a link": WayOut(
        lambda out: Archive()
        .add("way", kind=SYMLINK, link=str(out))
        .add("hard", kind=HARD_LINK, link="way", mode=0o755)
        .add("hard/secret", b"changed"),
        "parent-link",
    ),
    "whiteout through a link": WayOut(
        lambda out: Archive()
        .add("way", kind=SYMLINK, link=str(out))
        .add("way/.wh.secret"),
        "parent-link",
    ),
    "opaque through a link": WayOut(
        lambda out: Archive()
        .add("way", kind=SYMLINK, link=str(out))
        .add("way/.wh..wh..opq"),
        "parent-link",
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS_OUT.values(), ids=WAYS_OUT)
def test_no_way_out(bench: Bench, outside: Outside, way: WayOut) -> None:
    before = outside.state()
    data = way.build(outside.path).done()
    if way.reason:
        with pytest.raises(ImageInvalidError) as refused:
            bench.unpack(data)
        assert refused.value.details["reason"] == way.reason
    else:
        bench.unpack(data)
    assert outside.state() == before

    if not way.escapes:
        return
    naive = bench.top / "naive"
    naive.mkdir()
    blob = bench.top / "blob"
    try:
        with tarfile.open(blob) as archive:
            archive.extraction_filter = lambda member, path: member
            archive.extractall(naive)
    except (OSError, KeyError):
        pass
    assert outside.state() != before, "the attack does nothing to anybody"


def test_links_that_lead_to_the_root_stay_inside(bench: Bench, outside: Outside) -> None:
    before = outside.state()
    archive = Archive()
    archive.add("root", kind=SYMLINK, link="/").add("up", kind=SYMLINK, link="../../..")
    archive.add("root/one", b"1").add("up/two", b"2").add(f"root{outside.path}/secret", b"3")
    bench.unpack(archive.done())
    inside = str(outside.path).lstrip("/")
    assert {"one", "two", f"{inside}/secret"} <= set(bench.tree())
    assert outside.state() == before


def test_magic_links_lead_nowhere(bench: Bench) -> None:
    archive = Archive().add("way", kind=SYMLINK, link="/proc/self/cwd").add("way/x", b"1")
    with pytest.raises(ImageInvalidError, match="link to nowhere"):
        bench.unpack(archive.done())


def test_what_surrounds_the_one_who_unpacks(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it waits for the rest of an archive: one mount, few descriptors, few rights."""
    first, rest = Archive().add("begun", b"x").data, b"\0" * 1024
    seen: dict[str, str] = {}

    def pieces(*_: object) -> Iterator[bytes]:
        yield first
        _wait_for(bench.layer / "begun")
        (pid,) = _children("unpack")
        seen["mounts"] = Path(f"/proc/{pid}/mountinfo").read_text()
        seen["status"] = Path(f"/proc/{pid}/status").read_text()
        names = os.listdir(f"/proc/{pid}/fd")
        seen["files"] = " ".join(os.readlink(f"/proc/{pid}/fd/{name}") for name in names)
        yield rest

    monkeypatch.setattr("agentkernel.backends.local.layer_worker.uncompressed", pieces)
    bench.unpack(first + rest)
    (mount,) = seen["mounts"].splitlines()
    assert {"nosuid", "nodev", "noexec"} <= set(mount.split()[5].split(","))
    status = dict(line.split(":\t", 1) for line in seen["status"].splitlines() if ":\t" in line)
    # CHOWN, DAC_OVERRIDE, FOWNER, FSETID
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0b11011
    assert int(status["CapBnd"], 16) == int(status["CapAmb"], 16) == 0
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    # Its own root, twice; the archive; the status, also as its stderr.
    files = sorted(name.partition(":")[0] for name in seen["files"].split())
    assert files == ["/", "/", "pipe", "pipe", "pipe"]


def _wait_for(path: Path) -> None:
    end = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < end, f"{path} never came"
        time.sleep(0.002)


def _children(verb: str) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            parent = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if len(words) > 1 and words[1] == verb.encode() and int(parent) == os.getpid():
            found.append(int(name))
    return found


# -- what no layer gets ----------------------------------------------------------------------------


def test_devices_are_left_out(bench: Bench) -> None:
    archive = (
        Archive()
        .add("null", kind=CHAR, device=(1, 3), mode=0o666)
        .add("disk", kind=BLOCK, device=(254, 0), mode=0o666)
        .add("hole", kind=CHAR, device=(0, 0))
        .add("hard", kind=FIFO)
    )
    assert bench.unpack(archive.done()).left_out == 3
    assert bench.tree() == {"hard": "prw-r--r--"}


def test_attributes_that_mean_something(bench: Bench) -> None:
    """The control is `user.word`, which stays."""
    names = (
        "trusted.overlay.opaque", "trusted.overlay.redirect", "user.overlay.opaque",
        "user.overlay.redirect", "user.overlay.whiteout", "security.capability",
        "security.selinux", "system.posix_acl_access",
    )  # fmt: skip
    pax = {f"SCHILY.xattr.{name}": "y" for name in names} | {"SCHILY.xattr.user.word": "y"}
    bench.unpack(Archive().add("f", pax=pax).add("d/", kind=DIRECTORY, pax=pax).done())
    for name in ("f", "d"):
        held = set(os.listxattr(bench.layer / name)) - {"security.selinux"}
        assert held == {"user.word"}


def test_setuid_is_of_the_ids_inside(bench: Bench) -> None:
    """A program that is setuid root in the image is, on disk, of whoever unpacked it or of nobody
    else than the archive's own owner; and the directory of layers is closed to others."""
    bench.unpack(
        Archive().add("su", b"#!", mode=0o6755).add("low", mode=0o4755, owner=(5, 5)).done()
    )
    info = os.lstat(bench.layer / "su")
    assert info.st_mode & 0o6000 == 0o6000 and info.st_uid == os.getuid()
    if bench.mode != "range":
        assert os.lstat(bench.layer / "low").st_uid != 5


# -- whiteouts that are none -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [".wh.", "d/.wh.", ".wh..", ".wh...", "d/.wh...", ".wh.a/b", ".wh.../secret", "d/.wh.x/"],
)
def test_whiteouts_of_nothing(bench: Bench, outside: Outside, name: str) -> None:
    before = outside.state()
    archive = Archive().add("keep", b"1").add("d/", kind=DIRECTORY)
    if name == "d/.wh.x/":  # the control: a name is a name, with a slash or without
        assert bench.unpack(archive.add(name).done()).whiteouts == 1
        return
    with pytest.raises(ImageInvalidError) as refused:
        bench.unpack(archive.add(name).done())
    assert refused.value.details["reason"] == "whiteout"
    assert set(bench.tree()) == {"keep", "d"}
    assert outside.state() == before


def test_no_hard_link_to_a_whiteout(bench: Bench) -> None:
    archive = Archive().add(".wh.gone").add("other", kind=HARD_LINK, link="gone")
    with pytest.raises(ImageInvalidError, match="not in the layer"):
        bench.unpack(archive.done())


# -- bombs and lies --------------------------------------------------------------------------------

SMALL = LayerLimits(bytes=1 << 20, entries=100)


def test_bombs(bench: Bench) -> None:
    """64 MiB of zeros in a few hundred bytes; the control has as many zeros as are allowed."""
    bomb = Archive().add("big", b"\0" * (64 << 20)).done()
    fine = Archive().add("big", b"\0" * (1 << 19)).done()
    for compress in (gzip.compress, zstd_compress):
        blob = compress(bomb)
        assert len(blob) < 100_000
        with pytest.raises(ImageInvalidError) as refused:
            bench.unpack(bomb, blob=blob, limits=SMALL)
        assert refused.value.details["reason"] == "bytes"
        assert sum(path.lstat().st_blocks * 512 for path in bench.layer.iterdir()) <= 2 << 20
        bench.again()
        bench.unpack(fine, blob=compress(fine), limits=SMALL)
        bench.again()


def _old_sparse(size: int) -> bytes:
    block = bytearray(header(b"sparse", b"S", 0))
    block[257:265] = b"ustar  \0"
    block[483:495] = size.to_bytes(12, "big")
    block[483] |= 0x80
    return sealed(bytes(block)) + b"\0" * 1024


@pytest.mark.parametrize("size", [1 << 50, (1 << 63) - 1])
def test_sparse_bombs(bench: Bench, size: int) -> None:
    """Holes count as what they read as. The control is below the limit."""
    for archive, fine in (
        (_old_sparse(size), _old_sparse(1 << 19)),
        (_pax_sparse(size), _pax_sparse(1 << 19)),
    ):
        with pytest.raises(ImageInvalidError) as refused:
            bench.unpack(archive, limits=SMALL)
        assert refused.value.details["reason"] == "bytes"
        bench.again()
        assert bench.unpack(fine, limits=SMALL).bytes == 1 << 19
        bench.again()


def _pax_sparse(size: int) -> bytes:
    pax = {"GNU.sparse.map": f"0,1,{size - 1},1", "GNU.sparse.size": str(size)}
    return Archive().add("sparse", b"xy", pax=pax).done()


def test_many_entries(bench: Bench) -> None:
    archive = Archive()
    for i in range(101):
        archive.add(f"f{i}")
    with pytest.raises(ImageInvalidError) as refused:
        bench.unpack(archive.done(), limits=SMALL)
    assert refused.value.details["reason"] == "entries"
    assert len(bench.tree()) == 100


LIES = {
    "size too large": (lambda: Archive().add("a", b"x", size=100_000).done(), "truncated"),
    "size huge": (lambda: Archive().add("a", b"x", size=(1 << 63) - 1).done(), "bytes"),
    "size negative": (lambda: Archive().add("a", b"x", size=-1).done(), "number"),
    "size too small": (lambda: Archive().add("a", b"x" * 1024, size=512).done(), "checksum"),
    "PAX size": (lambda: Archive().add("a", b"x", pax={"size": "99999"}).done(), "truncated"),
    "PAX number": (lambda: Archive().add("a", b"x", pax={"uid": "-5"}).done(), "pax-number"),
    "PAX with NUL": (lambda: Archive().add("a", b"x", pax={"path": b"a\0b"}).done(), "pax-text"),
    "sparse map": (
        lambda: (
            Archive()
            .add("a", b"xy", pax={"GNU.sparse.map": "0,1,0,1", "GNU.sparse.size": "9"})
            .done()
        ),
        "sparse",
    ),
    "checksum": (lambda: Archive().add("a").done().replace(b"a", b"b", 1), "checksum"),
    "no archive": (lambda: b"#!/bin/sh\n" * 1000, "checksum"),
    "junk after the end": (lambda: Archive().add("a").done() + b"junk", "junk"),
    "archive after the end": (
        lambda: Archive().add("a").done() + Archive().add("b").done(),
        "junk",
    ),
    "half an end": (
        lambda: Archive().add("a").data + b"\0" * 512 + Archive().add("b").done(),
        "block",
    ),
    "strange type": (lambda: Archive().add("a", kind=b"Z").done(), "type"),
    "no name": (lambda: Archive().add("", b"x").done(), "empty-name"),
    "a file for a root": (lambda: Archive().add("./", b"x").done(), "root"),
    "part too long": (lambda: Archive().add("n" * 256).done(), "long-path"),
    "path too long": (lambda: Archive().add("n/" * 2048 + "n").done(), "long-path"),
    "long name too long": (lambda: Archive().add("n/" * 40_000).done(), "extended-size"),
    "symbolic link to nothing": (lambda: Archive().add("a", kind=SYMLINK).done(), "link"),
    "hard link to nothing": (lambda: Archive().add("a", kind=HARD_LINK).done(), "link"),
    "hard link to a directory": (
        lambda: Archive().add("d/", kind=DIRECTORY).add("a", kind=HARD_LINK, link="d").done(),
        "link-directory",
    ),
    "hard links in a ring": (
        lambda: (
            Archive().add("a", kind=HARD_LINK, link="b").add("b", kind=HARD_LINK, link="a").done()
        ),
        "link-missing",
    ),
    "below a file": (lambda: Archive().add("a", b"x").add("a/b").done(), "parent-file"),
}


@pytest.mark.parametrize(("build", "reason"), LIES.values(), ids=LIES)
def test_lies(bench: Bench, build: Callable[[], bytes], reason: str) -> None:
    with pytest.raises(ImageInvalidError) as refused:
        bench.unpack(build())
    assert refused.value.details["reason"] == reason
    assert refused.value.hint
    bench.again()
    bench.unpack(Archive().add("a", b"x").done())


def test_truncated_archives(bench: Bench) -> None:
    """Cut anywhere: within an entry that is told, between two the digest tells. The whole fits."""
    whole = Archive().add("a", b"x" * 700, pax={"mtime": "1.5"}).add("b").done()
    for length in [*range(100, len(whole) - 1024, 500), 512, 1024, 2560]:
        with pytest.raises(ImageInvalidError) as refused:
            bench.unpack(whole[:length], name=diff_id(whole))
        assert refused.value.details["reason"] in ("truncated", "digest"), length
        bench.again()
    bench.unpack(whole)


def test_another_digest(bench: Bench) -> None:
    data = Archive().add("a", b"x").done()
    with pytest.raises(ImageInvalidError, match="not the one that the image names"):
        bench.unpack(data, name="sha256:" + "0" * 64)
    bench.again()
    bench.unpack(data)


def test_damaged_streams(bench: Bench) -> None:
    data = Archive().add("a", os.urandom(100_000)).done()
    squeezed, frame = gzip.compress(data), zstd_compress(data)
    for blob in (
        squeezed[:-1],
        squeezed[:5000],
        squeezed[:5000] + b"\xff" * 100 + squeezed[5100:],
        squeezed + b"junk",
        frame[:-1],
        frame[:5000] + b"\xff" * 100 + frame[5100:],
        frame + b"junk",
    ):
        with pytest.raises(ImageInvalidError):
            bench.unpack(data, blob=blob)
        bench.again()
    bench.unpack(data, blob=squeezed)


def test_many_empty_members(bench: Bench) -> None:
    """A stream of nothing takes time in proportion to its size, and its end is found."""
    data = Archive().add("a", b"x").done()
    bench.unpack(data, blob=gzip.compress(b"") * 50_000 + gzip.compress(data))
    assert bench.content("a") == b"x"


def test_a_missing_archive(bench: Bench) -> None:
    with pytest.raises(ImageInvalidError, match="missing"):
        bench.worker.unpack(str(bench.top / "nothing"), "sha256:0", str(bench.layer))


def test_names_do_not_reach_a_terminal(bench: Bench) -> None:
    name = b"../\x1b]0;title\x07\n\xc2\x9b31m\xe2\x80\xae\xff"
    with pytest.raises(ImageInvalidError) as refused:
        bench.unpack(Archive().add(name).done())
    shown = refused.value.message + str(refused.value.details)
    assert "title" in shown and shown.isprintable()


# -- trees that attack whoever packs or removes them -----------------------------------------------


def test_a_hostile_tree_is_packed_as_it_is(bench: Bench, outside: Outside) -> None:
    before = outside.state()
    layer = bench.layer
    (layer / "link").symlink_to(outside.path)
    (layer / "link-to-file").symlink_to(outside.path / "secret")
    (layer / "name\nwith\x1blines").write_bytes(b"1")
    os.mkfifo(layer / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        cwd = os.getcwd()
        os.chdir(layer)
        try:
            listener.bind("socket")
        finally:
            os.chdir(cwd)
        (layer / "closed").mkdir()
        (layer / "closed/file").write_bytes(b"2")
        (layer / "closed").chmod(0)
        members = bench.members()
    assert set(members) == {
        ".", "link", "link-to-file", "name\nwith\x1blines", "pipe", "closed", "closed/file",
    }  # fmt: skip
    assert SECRET not in bench.packed()
    assert outside.state() == before


def test_a_name_that_would_be_a_whiteout(bench: Bench) -> None:
    (bench.layer / "d").mkdir()
    (bench.layer / "d/.wh.passwd").write_bytes(b"")
    with pytest.raises(ImageInvalidError) as refused:
        bench.packed()
    assert refused.value.details == {"reason": "reserved-name", "entry": "d/.wh.passwd"}


def test_a_deep_tree(bench: Bench) -> None:
    """Too deep for any archive, and no trouble to refuse or to remove."""
    script = "import os\nfor _ in range(2500):\n os.mkdir('d'); os.chdir('d')\n"
    subprocess.run(["python3", "-c", script], cwd=bench.layer, check=True, timeout=30)
    with pytest.raises(ImageInvalidError) as refused:
        bench.packed()
    assert refused.value.details["reason"] == "long-path"
    bench.worker.remove(str(bench.layer))
    assert not bench.layer.exists()
    bench.layer.mkdir()
    deepest = "d/" * 700
    bench.unpack(Archive().add(deepest, kind=DIRECTORY).done())
    assert deepest.rstrip("/") in bench.members()


def test_more_entries_than_a_layer_has(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(20):
        (bench.layer / str(i)).touch()
    few = LayerLimits(bytes=1000, entries=10)
    monkeypatch.setattr("agentkernel.backends.local.layer_worker.LAYER_LIMITS", few)
    with pytest.raises(ImageInvalidError) as refused:
        bench.packed()
    assert refused.value.details["reason"] == "entries"
    for i in range(15):
        (bench.layer / str(i)).unlink()
    assert len(bench.members()) == 6
    with open(bench.layer / "huge", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ImageInvalidError) as refused:
        bench.packed()
    assert refused.value.details["reason"] == "bytes"
