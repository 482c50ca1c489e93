"""What a guest leaves in a volume, and what an archive says, reaches nothing of the host.

The host measures, exports and removes what guests have shaped, and unpacks what anybody sends.
`planted` lies outside, with links in the volume that lead to it; the control follows them.
"""

from __future__ import annotations

import asyncio
import io
import os
import secrets
import stat
import tarfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from agentkernel.backends.local import idmaps
from agentkernel.errors import AgentKernelError, InvalidInputError
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.spec import SandboxSpec

SECONDS = 60.0
DEEP = 1000
# What a guest can do to a directory. {outside} is a path of the host.
SHAPE = f"""
import os, socket, stat
os.chdir("/v")
os.symlink({{outside!r}}, "absolute")
os.symlink({{outside!r}} + "/secret", "absolute-file")
os.symlink("../" * 40 + {{outside!r}}[1:], "relative")
os.symlink("absolute", "chain")
os.symlink("loop", "loop")
os.symlink("/proc/self/root", "magic")
os.mkfifo("fifo")
socket.socket(socket.AF_UNIX).bind("socket")
os.mkdir("closed"); open("closed/file", "w").write("x"); os.chmod("closed", 0)
open("setuid", "w").write("x"); os.chmod("setuid", 0o6755)
os.link("setuid", "hard")
for name in (b"new\\nline", b"\\x1b[31mred", b"\\xff\\xfe", b"-rf", b" ", b"agentkernel-0"):
    os.mkdir(name); open(name + b"/inside", "w").write("x")
os.truncate(os.open("sparse", os.O_CREAT | os.O_RDWR), 1 << 40)
for number in range({DEEP}):
    os.mkdir("d"); os.chdir("d")
open("bottom", "w").write("x" * 100000)
denied = []
for kind, major, minor in ((stat.S_IFBLK, 254, 0), (stat.S_IFCHR, 1, 1), (stat.S_IFCHR, 5, 1)):
    try:
        os.mknod("/v/device", kind | 0o666, os.makedev(major, minor))
    except PermissionError:
        denied.append(kind)
print(len(denied))
"""


class Outside(NamedTuple):
    """A directory of the host with a secret in it, and how it looked before."""

    path: Path
    secret: str
    before: dict[str, tuple[int, int, int, int]]

    def unharmed(self) -> bool:
        return looks(self.path) == self.before


def looks(path: Path) -> dict[str, tuple[int, int, int, int]]:
    found = {}
    for entry in (path, *sorted(path.rglob("*"))):
        info = entry.lstat()
        found[str(entry)] = (info.st_mode, info.st_uid, info.st_ino, info.st_mtime_ns)
    return found


@pytest.fixture
def outside(tmp_path: Path) -> Outside:
    path = tmp_path / "outside"
    (path / "deeper").mkdir(parents=True)
    secret = secrets.token_hex(16)
    (path / "secret").write_text(secret)
    (path / "deeper" / "file").write_text(secret)
    return Outside(path, secret, looks(path))


@pytest.fixture(scope="module")
async def kernel(
    state_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Kernel]:
    path = tmp_path_factory.mktemp("volumes")
    (state_dir / "images").mkdir(exist_ok=True)
    (path / "images").symlink_to(state_dir / "images")
    async with Kernel(path) as kernel:
        yield kernel


async def box(kernel: Kernel, volume: str, **fields: object) -> str:
    return (await kernel.create(SandboxSpec(volumes=[volume], **fields))).id  # type: ignore[arg-type]


async def python(kernel: Kernel, id: str, program: str) -> str:
    result = await kernel.run(id, ["python3", "-I", "-c", program])
    assert result.status.exit_code == 0, result.stderr.decode()
    return result.stdout.decode()


async def exported(kernel: Kernel, name: str) -> bytes:
    async with kernel.volumes.export(name) as pieces:
        return b"".join([piece async for piece in pieces])


async def test_what_a_guest_left_leads_nowhere(kernel: Kernel, outside: Outside) -> None:
    id = await box(kernel, "hostile:/v")
    assert await python(kernel, id, SHAPE.format(outside=str(outside.path))) == "3\n"
    shown = await python(kernel, id, "import os; print(os.path.exists('/v/absolute'))")
    assert shown == "False\n", "inside they lead to nothing"
    data = kernel.state_dir / "volumes" / (await kernel.volumes.list())[0].id / "data"
    # Control: on the host the links do lead there, and the files are as hostile as they look.
    for link in ("absolute/secret", "absolute-file", "relative/secret", "chain/secret"):
        assert (data / link).read_text() == outside.secret
    assert stat.S_IMODE((data / "setuid").lstat().st_mode) == 0o6755
    assert stat.S_ISFIFO((data / "fifo").lstat().st_mode)
    async with asyncio.timeout(SECONDS):
        info = await kernel.volumes.inspect("hostile")
        # 256 levels are looked at: what is deeper is said to be there, and not followed for ever.
        assert info.used_complete is False
        assert 1000 < (info.used_bytes or 0) < 64 << 20, "a terabyte that is not there"
        await kernel.run(id, ["sh", "-c", "cd /v; rm -rf d"])
        info = await kernel.volumes.inspect("hostile")
        assert info.used_complete is True
        archive = await exported(kernel, "hostile") if (await shrink(kernel, id)) else b""
        await kernel.remove(id)
        again = await box(kernel, "hostile:/v")
        await python(kernel, again, f"import os\nos.chdir('/v')\nfor _ in range({DEEP}):\n"
                     " os.mkdir('d'); os.chdir('d')")  # fmt: skip
        await kernel.remove(again)
        await kernel.volumes.remove("hostile")
    assert outside.secret.encode() not in archive
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        kinds = {member.name: member for member in tar}
    assert kinds["absolute"].issym() and kinds["relative"].issym() and kinds["magic"].issym()
    assert "fifo" not in kinds and "socket" not in kinds
    assert all(member.isfile() or member.isdir() or member.issym() for member in kinds.values())
    assert outside.unharmed()
    assert os.listdir(kernel.state_dir / "volumes") == []


async def shrink(kernel: Kernel, id: str) -> bool:
    """A terabyte of zeros is a terabyte in an archive: that is the next test's."""
    return (await kernel.run(id, ["rm", "/v/sparse"])).status.exit_code == 0


async def test_an_export_that_nobody_waits_for_ends(kernel: Kernel) -> None:
    id = await box(kernel, "endless:/v")
    await kernel.run(id, ["truncate", "-s", "1T", "/v/sparse"])
    async with kernel.volumes.export("endless") as pieces:
        async for piece in pieces:
            assert len(piece) < 2 << 20
            break
    await kernel.remove(id)
    async with asyncio.timeout(SECONDS):
        await kernel.volumes.remove("endless")
    assert list((kernel.state_dir / "runs").glob("*")) == []


async def test_nothing_in_it_gives_more_rights(kernel: Kernel) -> None:
    """Neither a set-id program nor a device, and read-only stays so whatever namespace is made."""
    await kernel.volumes.create("flags", owner="local")
    id = await box(kernel, "flags:/v")
    flags = "import os; print(os.statvfs('/v').f_flag & (os.ST_NOSUID | os.ST_NODEV))"
    assert int(await python(kernel, id, flags)) == os.ST_NOSUID | os.ST_NODEV
    assert (await kernel.probe(id)).fit, "it opens nothing that is not meant"
    for script in ("mv /v /w", "rmdir /v", "umount /v", "mount -o remount,suid,dev /v"):
        result = await kernel.run(id, ["sh", "-c", script])
        assert result.status.exit_code, script
    await kernel.remove(id)
    reader = await box(kernel, "flags:/v:ro", nested_userns=True, profile="permissive")
    for script in (
        "touch /v/x", "mount -o remount,rw /v", "mount -o remount,bind,rw /v",
        "unshare -Urm sh -c 'mount -o remount,bind,rw /v && touch /v/x'",
        "unshare -Urm sh -c 'mount --bind /v /mnt; mount -o remount,bind,rw /mnt && touch /mnt/x'",
    ):  # fmt: skip
        result = await kernel.run(reader, ["sh", "-c", script])
        assert result.status.exit_code, script
    # Control: such namespaces can be made here, and mounts in them.
    control = await kernel.run(
        reader, ["unshare", "-Urm", "sh", "-c", "mount --bind /tmp /mnt && touch /mnt/x && echo ok"]
    )
    assert control.stdout == b"ok\n", control.stderr
    await kernel.remove(reader)
    writer = await box(kernel, "flags:/v")
    assert (await kernel.run(writer, ["sh", "-c", "ls -A /v; touch /v/x"])).stdout == b""
    await kernel.remove(writer)
    await kernel.volumes.remove("flags")


# -- archives ------------------------------------------------------------------------------------


def tar_of(*entries: tuple[str, str, object]) -> bytes:
    """(kind, name, content or target)."""
    kinds = {
        "link": tarfile.SYMTYPE, "hard": tarfile.LNKTYPE, "fifo": tarfile.FIFOTYPE,
        "block": tarfile.BLKTYPE, "char": tarfile.CHRTYPE, "dir": tarfile.DIRTYPE,
    }  # fmt: skip
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for kind, name, content in entries:
            member = tarfile.TarInfo(name)
            member.mode = 0o6777
            if kind in kinds:
                member.type, member.linkname = kinds[kind], str(content)
                member.devmajor, member.devminor = 1, 3
                tar.addfile(member)
            else:
                data = str(content).encode()
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return stream.getvalue()


Attack = Callable[[str], bytes]
ATTACKS: dict[str, Attack] = {
    "dots": lambda out: tar_of(("file", f"../../../../../../..{out}/evil", "x")),
    "dots inside": lambda out: tar_of(("dir", "a", ""), ("file", "a/../../evil", "x")),
    "absolute": lambda out: tar_of(("file", f"{out}/evil", "x")),
    "through a link": lambda out: tar_of(("link", "l", out), ("file", "l/evil", "x")),
    "through a link up": lambda out: tar_of(("link", "l", "../.."), ("file", "l/evil", "x")),
    "through two links": lambda out: tar_of(
        ("link", "a", "."), ("link", "a/b", out), ("file", "a/b/evil", "x")
    ),
    "a directory over a link": lambda out: tar_of(
        ("link", "l", out), ("dir", "l", ""), ("file", "l/evil", "x")
    ),
    "hard link": lambda out: tar_of(("hard", "h", f"{out}/secret"), ("file", "h", "evil")),
    "device": lambda out: tar_of(("block", "disk", "")),
    "character device": lambda out: tar_of(("char", "null", "")),
    "fifo": lambda out: tar_of(("fifo", "f", "")),
    "cut off": lambda out: tar_of(("file", "f", "x" * 5000))[:2000],
    "no archive": lambda out: b"hello" * 1000,
    "empty": lambda out: b"",
    "a file where a directory was": lambda out: tar_of(("dir", "d", ""), ("file", "d", "x")),
}


async def pieces_of(data: bytes) -> AsyncGenerator[bytes, None]:
    for at in range(0, len(data), 700):
        yield data[at : at + 700]


@pytest.mark.parametrize("attack", ATTACKS)
async def test_an_archive_that_attacks(kernel: Kernel, outside: Outside, attack: str) -> None:
    data = ATTACKS[attack](str(outside.path))
    with pytest.raises(AgentKernelError) as caught:
        await kernel.volumes.import_archive("evil", pieces_of(data), owner="local")
    assert caught.value.code in ("invalid_input", "is_a_directory", "not_a_directory", "file_error")
    assert outside.unharmed() and not list(outside.path.rglob("evil"))
    assert await kernel.volumes.list() == []
    assert os.listdir(kernel.state_dir / "volumes") == []


async def test_control_the_same_archives_without_the_attack(
    kernel: Kernel, outside: Outside
) -> None:
    data = tar_of(
        ("dir", "a", ""), ("file", "a/f", "fine"), ("link", "out", str(outside.path)),
        ("link", "up", "../../../.."), ("file", "set-id", "x"),
    )  # fmt: skip
    await kernel.volumes.import_archive("good", pieces_of(data), owner="local")
    files = kernel.state_dir / "volumes" / (await kernel.volumes.list())[0].id / "data"
    assert (files / "a" / "f").read_text() == "fine"
    assert os.readlink(files / "out") == str(outside.path)
    if idmaps.is_host_root():
        assert stat.S_IMODE((files / "set-id").stat().st_mode) == 0o6777
    assert outside.unharmed()
    await kernel.volumes.remove("good")
    assert outside.unharmed()


@pytest.mark.parametrize("name", ["../x", "..", ".", "a/b", "/etc", "", "A", "a" * 64, "a\nb"])
async def test_names_that_lead_elsewhere(kernel: Kernel, outside: Outside, name: str) -> None:
    with pytest.raises(InvalidInputError):
        await kernel.volumes.create(name, owner="local")
    with pytest.raises(AgentKernelError):
        await kernel.volumes.remove(name)
    assert outside.unharmed()
    assert sorted(os.listdir(kernel.state_dir / "volumes")) == []
