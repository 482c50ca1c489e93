"""COPY and ADD as layers: what goes where, with whose rights, and what is refused."""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from agentkernel.errors import ImageInvalidError, InvalidInputError
from agentkernel.images.building.archives import is_tar, opened
from agentkernel.images.building.copying import Copying
from agentkernel.images.building.layers import copied_layer, unpacked

from .making import (
    Files,
    context_of,
    image_tree,
    member,
    store_in,
    tar_of,
)

_IMAGE = tar_of(
    member("usr"),
    member("usr/lib"),
    member("lib", tarfile.SYMTYPE, "usr/lib"),
    member("keep", uid=3, gid=4, mode=0o750),
    ("keep/old", b"old"),
    member("loop", tarfile.SYMTYPE, "loop"),
    member("out", tarfile.SYMTYPE, "../../../../etc"),
    ("file", b"f"),
)
_FILES: Files = {
    "a": b"A",
    "d": None,
    "d/b": b"B",
    "d/e": None,
    "d/l": ("../a",),
    "dl": ("d",),
    "fl": ("a",),
    "dead": ("nowhere",),
    "abs": ("/etc/passwd",),
    "up": ("../../../../../etc/passwd",),
    "lib": None,
    "lib/x.so": b"X",
}


class Made:
    """A layer, read again."""

    def __init__(self, store_path: Path, copying: Copying, content: bytes) -> None:
        self.copying = copying
        self.members = {}
        self.files = {}
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            for info in archive:
                self.members[info.name] = info
                if info.isreg():
                    file = archive.extractfile(info)
                    self.files[info.name] = file.read() if file else b""

    def kinds(self) -> dict[str, str]:
        return {name: info.type.decode() for name, info in self.members.items()}


def _copy(
    tmp_path: Path,
    sources: Sequence[str],
    target: str,
    *,
    files: Files = _FILES,
    workdir: str = "/",
    ids: tuple[int, int] | None = None,
    mode: int | None = None,
    extracts: bool = False,
    heredocs: Sequence[tuple[str, bytes]] = (),
) -> Made:
    store = store_in(tmp_path)
    context = context_of(files)
    copying = Copying(context.tree, image_tree(store, _IMAGE), ids, mode)
    if extracts:
        copying.unpack = lambda entry: unpacked(entry, context)
    copying.carry_out(sources, heredocs, target, workdir)
    layer = copied_layer(store, copying.items.values(), context, None)
    content = gzip.decompress(store.blob_path(layer.blob.digest).read_bytes())
    return Made(tmp_path, copying, content)


def test_a_file_to_a_name_and_into_a_directory(tmp_path: Path) -> None:
    made = _copy(tmp_path, ["a"], "/n")
    assert made.files == {"n": b"A"}
    assert (made.members["n"].mode, made.members["n"].uid, made.members["n"].mtime) == (0o644, 0, 9)
    assert _copy(tmp_path, ["a"], "/n/").files == {"n/a": b"A"}
    assert _copy(tmp_path, ["a"], "sub/x", workdir="/w").files == {"w/sub/x": b"A"}
    assert _copy(tmp_path, ["a"], ".", workdir="/w").files == {"w/a": b"A"}


def test_a_directory_means_what_is_in_it(tmp_path: Path) -> None:
    made = _copy(tmp_path, ["d"], "/n")
    assert made.kinds() == {"n": "5", "n/b": "0", "n/e": "5", "n/l": "2"}
    assert made.members["n/l"].linkname == "../a"


def test_directories_of_the_image_keep_their_rights(tmp_path: Path) -> None:
    made = _copy(tmp_path, ["a"], "/keep/", ids=(7, 8))
    keep = made.members["keep"]
    assert (keep.mode, keep.uid, keep.gid) == (0o750, 3, 4)
    assert (made.members["keep/a"].uid, made.members["keep/a"].gid) == (7, 8)
    new = _copy(tmp_path, ["a"], "/keep/new/", ids=(7, 8)).members["keep/new"]
    assert (new.mode, new.uid, new.gid) == (0o755, 7, 8)


def test_a_mode_is_for_what_is_copied(tmp_path: Path) -> None:
    made = _copy(tmp_path, ["d"], "/n", mode=0o640)
    assert made.members["n"].mode == 0o755
    assert made.members["n/b"].mode == made.members["n/e"].mode == 0o640


def test_links_of_the_image_are_followed_inside_of_it(tmp_path: Path) -> None:
    assert _copy(tmp_path, ["a"], "/lib/").files == {"usr/lib/a": b"A"}
    assert _copy(tmp_path, ["a"], "/out/").files == {"etc/a": b"A"}
    # A directory of the context does not replace a link of the image to one.
    made = _copy(tmp_path, ["lib"], "/lib")
    assert made.files == {"usr/lib/x.so": b"X"} and "lib" not in made.members
    made = _copy(tmp_path, ["."], "/")
    assert made.files["usr/lib/x.so"] == b"X" and "lib" not in made.members


def test_a_source_that_is_a_link_means_what_it_leads_to(tmp_path: Path) -> None:
    assert _copy(tmp_path, ["fl"], "/n/").files == {"n/fl": b"A"}
    assert _copy(tmp_path, ["dl"], "/n").files == {"n/b": b"B"}
    assert _copy(tmp_path, ["dl/b"], "/n").files == {"n": b"B"}


@pytest.mark.parametrize("source", ["abs", "up", "dead", "up/x"])
def test_no_link_leads_out_of_the_context(tmp_path: Path, source: str) -> None:
    with pytest.raises(InvalidInputError, match="is not in the context"):
        _copy(tmp_path, [source], "/n")
    # The control: the same link to a name that the context has.
    assert _copy(tmp_path, ["x"], "/n", files={"x": ("/y",), "y": b"in"}).files == {"n": b"in"}


@pytest.mark.parametrize("source", ["../a", "d/../../a", "..", "x/../../../y"])
def test_no_path_leads_out_of_the_context(tmp_path: Path, source: str) -> None:
    with pytest.raises(InvalidInputError, match="leads out of the context"):
        _copy(tmp_path, [source], "/n")
    assert _copy(tmp_path, ["d/../a"], "/n").files == {"n": b"A"}


def test_patterns(tmp_path: Path) -> None:
    files: Files = {"x1.py": b"1", "x2.py": b"2", "y.js": b"3", "s/t/z.py": b"4"}
    assert _copy(tmp_path, ["*.py"], "/n/", files=files).files == {"n/x1.py": b"1", "n/x2.py": b"2"}
    assert _copy(tmp_path, ["s/*/z.p[xyz]"], "/n", files=files).files == {"n": b"4"}
    assert _copy(tmp_path, ["x[^1].py"], "/n", files=files).files == {"n": b"2"}
    with pytest.raises(InvalidInputError, match="is not in the context"):
        _copy(tmp_path, ["*.go"], "/n/", files=files)
    with pytest.raises(InvalidInputError, match="no pattern"):
        _copy(tmp_path, ["[x"], "/n/", files=files)


@pytest.mark.parametrize(
    ("sources", "target", "said"),
    [
        (["d"], "/file", "is a file"),
        (["a"], "/file/", "is a file"),
        (["a"], "/file/x", "is no directory"),
        (["a", "d"], "/file", "is a file"),
        (["a"], "/loop/x", "links without an end"),
    ],
)
def test_what_has_no_place(tmp_path: Path, sources: list[str], target: str, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        _copy(tmp_path, sources, target)


def test_a_file_does_not_replace_a_directory(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="is a directory"):
        _copy(tmp_path, ["."], "/", files={"keep": b"x"})


def test_texts_of_the_dockerfile(tmp_path: Path) -> None:
    made = _copy(tmp_path, [], "/n/", heredocs=[("one", b"1"), ("two", b"22")])
    assert made.files == {"n/one": b"1", "n/two": b"22"}
    assert _copy(tmp_path, [], "/n", heredocs=[("one", b"1")]).files == {"n": b"1"}


def test_add_unpacks_archives_with_their_owners(tmp_path: Path) -> None:
    content = tar_of(
        member("./"),
        member("e", mode=0o711),
        member("e/f", tarfile.REGTYPE, uid=7, gid=8),
        ("g", b"G"),
        member("h", tarfile.LNKTYPE, "g"),
        member("s", tarfile.SYMTYPE, "/etc/passwd"),
        ("twice", b"first"),
        ("twice", b"last!"),
        mode="w:gz",
    )
    made = _copy(tmp_path, ["t.tgz"], "/n", files={"t.tgz": content}, extracts=True)
    assert made.files == {"n/e/f": b"", "n/g": b"G", "n/h": b"G", "n/twice": b"last!"}
    assert (made.members["n/e/f"].uid, made.members["n/e/f"].gid) == (7, 8)
    assert made.members["n/e"].mode == 0o711
    assert made.members["n/s"].linkname == "/etc/passwd"


def test_an_archive_does_not_say_how_much_memory_it_takes() -> None:
    """In xz it could say 4 GiB: the daemon's."""
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("small"))
    plain = output.getvalue()
    archive = bytearray(lzma.compress(plain))
    size = (archive[12] + 1) * 4
    header = archive[12 : 12 + size]
    header[header.index(b"\x21\x01") + 2] = 40  # the dictionary of the filter LZMA2: 4 GiB
    header[-4:] = zlib.crc32(header[:-4]).to_bytes(4, "little")
    assert not is_tar(io.BytesIO(archive[:12] + header + archive[12 + size :]))
    assert is_tar(io.BytesIO(archive))
    # Streams one after the other are one, with padding between them.
    half = len(plain) // 2
    several = lzma.compress(plain[:half]) + bytes(8) + lzma.compress(plain[half:], preset=9)
    with opened(io.BytesIO(several)) as tar:
        assert tar.getnames() == ["small"]


@pytest.mark.parametrize("kind", ["w", "w:gz", "w:bz2", "w:xz"])
def test_add_knows_compressed_archives(tmp_path: Path, kind: str) -> None:
    files: Files = {"t": tar_of(("x", b"X"), mode=kind)}
    assert _copy(tmp_path, ["t"], "/n/", files=files, extracts=True).files == {"n/x": b"X"}
    copied = _copy(tmp_path, ["t"], "/n/", files=files).files
    assert list(copied) == ["n/t"]


def test_add_copies_what_is_no_archive(tmp_path: Path) -> None:
    files: Files = {"x.gz": gzip.compress(b"text"), "short": b"\x1f\x8b"}
    made = _copy(tmp_path, ["x.gz", "short"], "/n/", files=files, extracts=True)
    assert made.files == {"n/x.gz": files["x.gz"], "n/short": b"\x1f\x8b"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (tar_of(("ok", b""), ("../x", b"")), "leads out"),
        (tar_of(member("l", tarfile.SYMTYPE, "/etc"), ("l/x", b"")), "runs through a link"),
        (tar_of(("f", b""), ("f/x", b"")), "runs through a link or a file"),
        (tar_of(("ok", b""), member("h", tarfile.LNKTYPE, "/etc/passwd")), "hard link to nothing"),
        (tar_of(("ok", b""), member("dev", tarfile.CHRTYPE)), "no file, directory or link"),
        (tar_of(("ok", b"x" * 2000))[:1500], "can't be read"),
    ],
)
def test_archives_that_attack_or_are_cut_off(tmp_path: Path, content: bytes, said: str) -> None:
    with pytest.raises((InvalidInputError, ImageInvalidError), match=said):
        _copy(tmp_path, ["t"], "/n/", files={"t": content}, extracts=True)


def test_a_header_that_is_endless_is_not_read(tmp_path: Path) -> None:
    """A pax header of 64 MiB, which as gzip is 64 KiB."""
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 64 << 20
    head = info.tobuf(tarfile.USTAR_FORMAT)
    content = gzip.compress(tar_of(("ok", b""))[:512] + head + bytes(64 << 20))
    with pytest.raises(ImageInvalidError, match="header is too long"):
        _copy(tmp_path, ["t"], "/n/", files={"t": content}, extracts=True)


def test_from_another_image_files_keep_their_owners(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    below = tar_of(("o/x", b"hidden"), member("o/f", tarfile.REGTYPE), ("gone", b""))
    above = tar_of(
        member("o", uid=5, gid=6),
        ("o/.wh.x", b""),
        (".wh.gone", b""),
        ("o/q", b"Q"),
        member("o/hard", tarfile.LNKTYPE, "o/q"),
    )
    source = image_tree(store, below, above)
    assert source.get("gone") is None and source.get("o/x") is None
    copying = Copying(source, image_tree(store, _IMAGE), what="stage")
    copying.carry_out(["/o"], [], "/n", "/")
    layer = copied_layer(store, copying.items.values(), None, source)
    content = gzip.decompress(store.blob_path(layer.blob.digest).read_bytes())
    made = Made(tmp_path, copying, content)
    assert made.files == {"n/f": b"", "n/q": b"Q", "n/hard": b"Q"}


def test_an_opaque_directory_hides_what_is_below_it(tmp_path: Path) -> None:
    tree = image_tree(
        store_in(tmp_path),
        tar_of(("d/a", b""), ("d/b", b"")),
        tar_of(("d/.wh..wh..opq", b""), ("d/c", b"")),
    )
    assert [path for path, _ in tree.below(tree.root)] == ["d", "d/c"]


def test_the_key_is_of_contents_and_not_of_times(tmp_path: Path) -> None:
    one = _copy(tmp_path, ["a"], "/n").copying.keys
    assert one == _copy(tmp_path, ["a"], "/n", files={"z": b"", "a": b"A"}).copying.keys
    assert one != _copy(tmp_path, ["a"], "/n", files={"a": b"B"}).copying.keys
    assert one != _copy(tmp_path, ["a"], "/n", mode=0o600).copying.keys
