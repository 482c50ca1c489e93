"""Archives become layers and layers archives: formats, whiteouts, links, owners, times."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import stat
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentkernel import space
from agentkernel.errors import ImageInvalidError, ResourceExhaustedError
from agentkernel.images.oci.work import LayerLimits

from .layer_archives import (
    DIRECTORY,
    FIFO,
    HARD_LINK,
    SYMLINK,
    Archive,
    Bench,
    bench_in,
    diff_id,
    kinds_of_ids,
    zstd_compress,
)

OPAQUE = "user.overlay.opaque"


@pytest.fixture(params=kinds_of_ids())
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    with bench_in(tmp_path, request.param) as bench:
        yield bench


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Bench]:
    with bench_in(tmp_path, "own") as bench:
        yield bench


# -- what entries become ---------------------------------------------------------------------------


def test_every_kind_of_entry(bench: Bench) -> None:
    archive = (
        Archive()
        .add("./", kind=DIRECTORY, mode=0o750, mtime=11)
        .add("d/", kind=DIRECTORY, mode=0o1777, mtime=12)
        .add("/d/file", b"content", mode=0o4751, mtime=13, owner=(33, 34))
        .add("./d/link", kind=SYMLINK, link="../../../etc/passwd", mtime=14)
        .add("hard", kind=HARD_LINK, link="/d/file")
        .add("pipe", kind=FIFO, mode=0o600)
        .add("implied/a/b", b"x")
        .add("closed", b"secret", mode=0)
    )
    result = bench.unpack(archive.done())
    assert (result.entries, result.bytes, result.left_out) == (8, 14, 0)
    assert bench.tree() == {
        "d": "drwxrwxrwt",
        "d/file": "-rwsr-x--x",
        "d/link": "-> ../../../etc/passwd",
        "hard": "-rwsr-x--x",
        "pipe": "prw-------",
        "implied": "drwxr-xr-x",
        "implied/a": "drwxr-xr-x",
        "implied/a/b": "-rw-r--r--",
        "closed": "----------",
    }
    layer = bench.layer
    assert os.path.samefile(layer / "hard", layer / "d/file")
    times = {name: int(os.lstat(layer / name).st_mtime) for name in (".", "d", "d/file", "d/link")}
    assert times == {".": 11, "d": 12, "d/file": 13, "d/link": 14}
    assert stat.S_IMODE(layer.stat().st_mode) == 0o750
    assert bench.content("closed") == b"secret"
    owner = bench.members()["d/file"]
    assert (owner.uid, owner.gid) == ((0, 0) if bench.mode == "single" else (33, 34))


def test_a_root_that_is_closed(bench: Bench) -> None:
    """Its own mode comes last, and who made it can still read and remove it."""
    archive = Archive().add("./", kind=DIRECTORY, mode=0o2000, owner=(7, 7)).add("a", b"1")
    bench.unpack(archive.done())
    assert stat.S_IMODE(os.lstat(bench.layer).st_mode) == 0o2000
    members = bench.members()
    assert (members["."].mode, members["a"].gid) == (0o2000, 0)
    bench.again()
    assert bench.tree() == {}


def test_owners_on_disk(own: Bench) -> None:
    own.unpack(Archive().add("a", owner=(33, 1000)).done())
    info = os.lstat(own.layer / "a")
    if own.mode == "range":
        assert (info.st_uid, info.st_gid) == (33, 1000)
    elif own.mode == "single":
        assert (info.st_uid, info.st_gid) == (os.getuid(), os.getgid())
    else:
        assert info.st_uid - os.getuid() > 1000 and info.st_gid - info.st_uid == 1000 - 33


def test_wide_ids(own: Bench) -> None:
    wide = Archive().add("a", owner=(100_000, 4_294_967_294)).done()
    if own.mode == "subuid":
        with pytest.raises(ImageInvalidError, match="65,536 ids"):
            own.unpack(wide)
        return
    own.unpack(wide)
    if own.mode == "range":
        info = os.lstat(own.layer / "a")
        assert (info.st_uid, info.st_gid) == (100_000, 4_294_967_294)
    own.again()
    if own.mode == "range":
        with pytest.raises(ImageInvalidError, match="owner"):
            own.unpack(Archive().add("a", owner=(0, 4_294_967_295)).done())


def test_times_are_exact(own: Bench) -> None:
    archive = (
        Archive()
        .add("late", b"", pax={"mtime": "1700000000.123456789"})
        .add("early/", kind=DIRECTORY, pax={"mtime": "-1.25"})
        .add("early/file", b"")
    )
    own.unpack(archive.done())
    assert os.lstat(own.layer / "late").st_mtime_ns == 1_700_000_000_123_456_789
    assert os.lstat(own.layer / "early").st_mtime_ns == -1_250_000_000


def test_attributes_of_users_are_kept(own: Bench) -> None:
    pax = {"SCHILY.xattr.user.kept": "1\0\n=", "SCHILY.xattr.user.empty": ""}
    archive = Archive().add("f", pax=pax).add("d/", kind=DIRECTORY, pax=pax)
    own.unpack(archive.done())
    for name in ("f", "d"):
        path = own.layer / name
        found = {key: os.getxattr(path, key) for key in os.listxattr(path) if key[:5] == "user."}
        assert found == {"user.kept": b"1\0\n=", "user.empty": b""}
    assert own.members()["f"].pax_headers["SCHILY.xattr.user.empty"] == ""


# -- whiteouts -------------------------------------------------------------------------------------


def test_whiteouts_hide_lower_layers_only(bench: Bench) -> None:
    archive = (
        Archive()
        .add("d/.wh.gone")
        .add("d/stays", b"1")
        .add("d/.wh.stays")
        .add("d/.wh.comes")
        .add("d/comes", b"2")
        .add(".wh.directory")
        .add("directory/", kind=DIRECTORY)
        .add("directory/new")
        .add(".wh.implied")
        .add("implied/new")
        .add("later/new")
        .add(".wh.later")
        .add(".wh..wh.plnk/1", b"aufs")
    )
    result = bench.unpack(archive.done())
    tree = bench.tree()
    assert tree["d/gone"] == "device 0:0"
    assert tree["d/stays"] == tree["d/comes"] == "-rw-r--r--"
    assert not [name for name in tree if ".wh" in name or "plnk" in name]
    for name in ("directory", "implied", "later"):
        assert os.getxattr(bench.layer / name, OPAQUE) == b"y", name
    assert OPAQUE not in os.listxattr(bench.layer / "d")
    assert result.whiteouts == 4


def test_opaque_whatever_the_order(bench: Bench) -> None:
    archive = (
        Archive()
        .add("a/.wh..wh..opq")
        .add("a/", kind=DIRECTORY, mode=0o711)
        .add("a/new", b"1")
        .add("b/", kind=DIRECTORY)
        .add("b/new", b"1")
        .add("b/.wh..wh..opq")
    )
    bench.unpack(archive.done())
    assert bench.tree() == {
        "a": "drwx--x--x",
        "a/new": "-rw-r--r--",
        "b": "drwxr-xr-x",
        "b/new": "-rw-r--r--",
    }
    assert all(os.getxattr(bench.layer / name, OPAQUE) == b"y" for name in "ab")
    assert list(bench.members()) == [
        ".",
        "a",
        "a/.wh..wh..opq",
        "a/new",
        "b",
        "b/.wh..wh..opq",
        "b/new",
    ]


# -- the same name twice, and links ----------------------------------------------------------------


def test_a_later_entry_wins(bench: Bench) -> None:
    archive = (
        Archive()
        .add("file", b"old")
        .add("file", b"new!")
        .add("to-file/", kind=DIRECTORY)
        .add("to-file/a/b/c", b"deep")
        .add("to-file", b"flat")
        .add("to-directory", b"x")
        .add("to-directory/", kind=DIRECTORY, mode=0o700)
        .add("to-directory/in", b"x")
        .add("twice/", kind=DIRECTORY, mode=0o700)
        .add("twice/in", b"x")
        .add("twice/", kind=DIRECTORY, mode=0o755)
        .add("to-link", b"x")
        .add("to-link", kind=SYMLINK, link="file")
        .add("pipe", kind=FIFO)
        .add("pipe", b"now a file")
    )
    bench.unpack(archive.done())
    assert bench.tree() == {
        "file": "-rw-r--r--",
        "to-file": "-rw-r--r--",
        "to-directory": "drwx------",
        "to-directory/in": "-rw-r--r--",
        "twice": "drwxr-xr-x",
        "twice/in": "-rw-r--r--",
        "to-link": "-> file",
        "pipe": "-rw-r--r--",
    }
    assert bench.content("file") == b"new!"


def test_hard_links_may_come_first(bench: Bench) -> None:
    archive = (
        Archive()
        .add("one", kind=HARD_LINK, link="two")
        .add("two", kind=HARD_LINK, link="d/three")
        .add("d/three", b"content")
        .add("four", kind=HARD_LINK, link="one")
        .add("self", b"x")
        .add("self", kind=HARD_LINK, link="self")
        .add("symlink", kind=SYMLINK, link="/nowhere")
        .add("of-symlink", kind=HARD_LINK, link="symlink")
    )
    bench.unpack(archive.done())
    inodes = {os.lstat(bench.layer / name).st_ino for name in ("one", "two", "d/three", "four")}
    assert len(inodes) == 1
    assert bench.tree()["of-symlink"] == "-> /nowhere"


def test_links_on_the_way_are_followed_inside(bench: Bench) -> None:
    archive = (
        Archive()
        .add("usr/lib/", kind=DIRECTORY, mode=0o755)
        .add("lib", kind=SYMLINK, link="/usr/lib")
        .add("lib/x", b"1")
        .add("up", kind=SYMLINK, link="../../../usr")
        .add("up/lib/y", b"2")
    )
    bench.unpack(archive.done())
    assert {"usr/lib/x", "usr/lib/y"} <= set(bench.tree())


# -- formats ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree with what formats differ in."""
    top = tmp_path_factory.mktemp("source") / "tree"
    deep = top / ("n" * 90) / ("m" * 90)
    deep.mkdir(parents=True)
    (deep / "file").write_bytes(b"x" * 1000)
    (top / "link").symlink_to("t" * 180)
    os.link(deep / "file", top / "hard")
    with open(top / "sparse", "wb") as file:
        for i in range(40):
            file.seek(i * 131072)
            file.write(b"%d" % i)
        file.truncate(8 << 20)
    (top / "empty").touch()
    return top


FORMATS = {
    "gnu": ["--format=gnu"],
    "gnu-sparse": ["--format=gnu", "--sparse"],
    "pax": ["--format=posix"],
    "pax-sparse-0.0": ["--format=posix", "--sparse-version=0.0", "--sparse"],
    "pax-sparse-0.1": ["--format=posix", "--sparse-version=0.1", "--sparse"],
    "pax-sparse-1.0": ["--format=posix", "--sparse-version=1.0", "--sparse"],
}


@pytest.mark.parametrize("words", FORMATS.values(), ids=FORMATS)
def test_formats_of_tar(own: Bench, source: Path, words: list[str]) -> None:
    if not shutil.which("tar"):
        pytest.skip("tar is not installed")
    command = ["tar", "-C", str(source), *words, "--owner=0", "--group=0", "-cf", "-", "."]
    data = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=30).stdout
    if "--sparse" in words:
        assert len(data) < 1 << 20
    own.unpack(data)
    compared = subprocess.run(
        ["diff", "-r", "--no-dereference", str(source), str(own.layer)],
        check=False,
        capture_output=True,
        timeout=30,
    )
    assert not compared.stdout and not compared.returncode
    if "--sparse" in words:
        assert os.lstat(own.layer / "sparse").st_blocks * 512 < 2 << 20


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_formats_of_python(own: Bench, form: int) -> None:
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w", format=form) as archive:
        for i in range(3):
            member = tarfile.TarInfo("/".join(["part"] * (18 * i + 1)) + str(i))
            member.size, member.uid = 600 * i, 7
            archive.addfile(member, io.BytesIO(b"y" * member.size))
    own.unpack(output.getvalue())
    assert {len(name.split("/")): m.size for name, m in own.members().items() if m.isfile()} == {
        1: 0,
        19: 600,
        37: 1200,
    }


def test_compressions(own: Bench) -> None:
    data = Archive().add("a", b"x" * 3_000_000).add("b", os.urandom(100_000)).done()
    half = len(data) // 2
    skipped = b"\x51\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"extra"
    forms = {
        "plain": data,
        "gzip": gzip.compress(data),
        "members": gzip.compress(data[:half]) + gzip.compress(data[half:]) + gzip.compress(b""),
        "padded": gzip.compress(data) + b"\0" * 1000,
        "zstd": zstd_compress(data),
        "frames": zstd_compress(data[:half]) + skipped + zstd_compress(data[half:]),
        "skipped": skipped + zstd_compress(data),
    }
    for name, blob in forms.items():
        seen: list[int] = []
        (own.top / "blob").write_bytes(blob)
        own.worker.unpack(
            str(own.top / "blob"), diff_id(data), str(own.layer), progress=seen.append, sync=False
        )
        assert os.lstat(own.layer / "a").st_size == 3_000_000, name
        assert seen[-1] == len(blob) and seen == sorted(seen), name
        own.again()


def test_one_byte_at_a_time(own: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    data = Archive().add("a", b"hello", pax={"mtime": "5"}).add("n" * 200, b"x").done()
    monkeypatch.setattr(
        "agentkernel.backends.local.layer_worker.uncompressed",
        lambda file, progress: (bytes([byte]) for byte in file.read()),
    )
    own.unpack(data)
    assert own.content("a") == b"hello"


# -- packing ---------------------------------------------------------------------------------------


def test_the_same_tree_gives_the_same_bytes(bench: Bench) -> None:
    entries: list[tuple[str, dict[str, object]]] = [
        ("b/", {"kind": DIRECTORY, "mode": 0o755, "mtime": 5}),
        ("b/x", {"content": b"1", "pax": {"SCHILY.xattr.user.b": "2", "SCHILY.xattr.user.a": "1"}}),
        ("b/.wh.y", {}),
        ("b/.wh..wh..opq", {}),
        ("a" * 120, {"content": b"2" * 5000, "owner": (1, 2)}),
        ("c\nd", {"kind": SYMLINK, "link": "e" * 150}),
        ("b/z", {"kind": HARD_LINK, "link": "b/x"}),
        ("./", {"kind": DIRECTORY, "mode": 0o755, "mtime": 9}),
    ]
    outcomes = set()
    for order in (entries, entries[::-1], entries[3:] + entries[:3]):
        archive = Archive()
        for name, more in order:
            archive.add(name, **more)  # type: ignore[arg-type]
        bench.unpack(archive.done())
        outcomes.add(bench.packed())
        bench.again()
    assert len(outcomes) == 1
    (packed,) = outcomes
    bench.unpack(packed)
    assert bench.packed() == packed


def test_what_python_reads_of_a_packed_tree(own: Bench) -> None:
    pax = {"SCHILY.xattr.user.word": "v"}
    archive = (
        Archive()
        .add("d/" + "n" * 200, b"1", mtime=77, mode=0o640, pax=pax)
        .add("d/.wh.gone")
        .add("first", b"22")
        .add("second", kind=HARD_LINK, link="first")
        .add("link", kind=SYMLINK, link="l" * 150)
        .add("pipe", kind=FIFO)
    )
    own.unpack(archive.done())
    members = own.members()
    file = members["d/" + "n" * 200]
    assert (file.mtime, file.mode, file.size, file.uname) == (77, 0o640, 1, "")
    assert file.pax_headers["SCHILY.xattr.user.word"] == "v"
    assert members["d/.wh.gone"].isfile() and members["d/.wh.gone"].size == 0
    assert members["second"].islnk() and members["second"].linkname == "first"
    assert members["link"].linkname == "l" * 150
    assert members["pipe"].isfifo()
    assert list(members)[0] == "." and list(members)[1:] == sorted(list(members)[1:])


def test_excluded_paths(own: Bench) -> None:
    archive = Archive()
    for name in ("dev/null", "etc/hosts", "etc/passwd", "tmp/a/b", "tmpfile"):
        archive.add(name, b"x")
    own.unpack(archive.done())
    with tarfile.open(
        fileobj=io.BytesIO(own.packed(exclude=["dev", "etc/hosts", "tmp/"]))
    ) as packed:
        assert packed.getnames() == [".", "etc", "etc/passwd", "tmp", "tmpfile"]


def test_a_plain_directory_is_packed(own: Bench) -> None:
    (own.layer / "d").mkdir()
    (own.layer / "d/file").write_bytes(b"content")
    (own.layer / "d/file").chmod(0o600)
    member = own.members()["d/file"]
    assert (member.mode, member.uid, member.size) == (0o600, 0, 7)


# -- the rest --------------------------------------------------------------------------------------


def test_limits(own: Bench) -> None:
    data = Archive().add("a", b"x" * 1000).add("b", b"y" * 1000).done()
    own.unpack(data, limits=LayerLimits(bytes=len(data), entries=2))
    own.again()
    with pytest.raises(ImageInvalidError, match="more entries") as refused:
        own.unpack(data, limits=LayerLimits(entries=1))
    assert refused.value.details == {"reason": "entries", "entry": "b"}
    own.again()
    with pytest.raises(ImageInvalidError, match="more bytes"):
        own.unpack(data, limits=LayerLimits(bytes=1999))


def test_names_differ_where_ids_do(own: Bench) -> None:
    name = own.worker.layer_name("sha256:" + "ab" * 32)
    assert "ab" * 32 in name and "/" not in name and own.mode in name


def test_a_caller_that_gives_up(own: Bench) -> None:
    class Enough(Exception):
        pass

    def stop(_: int) -> None:
        raise Enough

    (own.top / "blob").write_bytes(Archive().add("a", b"x" * 1_000_000).done())
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(Enough):
        own.worker.unpack(str(own.top / "blob"), "sha256:0", str(own.layer), progress=stop)
    assert set(os.listdir("/proc/self/fd")) == before


def test_removing_what_is_not_there(own: Bench) -> None:
    own.worker.remove(str(own.top / "nothing"))
    own.worker.remove(str(own.layer))
    own.worker.remove(str(own.layer))
    assert not own.layer.exists()


def test_a_layer_that_grows_leaves_the_reserve(own: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few bytes may stand for a full disk."""
    archive = Archive().add("zeros", bytes(4 << 20)).done()
    monkeypatch.setattr(space, "LOOK_BYTES", 1 << 20)
    monkeypatch.setattr(space, "_chosen", 1 << 60)
    with pytest.raises(ResourceExhaustedError, match="nearly full"):
        own.unpack(archive, blob=gzip.compress(archive))
    monkeypatch.setattr(space, "_chosen", 0)
    own.again()
    assert own.unpack(archive, blob=gzip.compress(archive)).bytes == 4 << 20
