"""Volumes: what sandboxes have of them, what they outlive, and who is refused."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from agentkernel.backends.local import idmaps, uppers
from agentkernel.errors import (
    ConflictError,
    GuestDiskFullError,
    InvalidInputError,
    NotFoundError,
    ResourceExhaustedError,
    UnenforceableError,
    UnsupportedError,
)
from agentkernel.kernel import volumes as volumes_module
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.runs import Runs
from agentkernel.kernel.spec import SandboxSpec

MIB = 1 << 20
# One of each kind; the conformance suite tries all of them.
ENGINES = ("native", "gvisor")


@pytest.fixture(scope="module")
async def kernel(
    state_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Kernel]:
    """A state of these tests' own, which shares the images."""
    path = tmp_path_factory.mktemp("volumes")
    (state_dir / "images").mkdir(exist_ok=True)
    (path / "images").symlink_to(state_dir / "images")
    async with Kernel(path) as kernel:
        yield kernel


@pytest.fixture(autouse=True)
async def nothing_stays(kernel: Kernel) -> AsyncIterator[None]:
    yield
    for record in (await kernel.list()).records:
        await kernel.remove(record.id)
    for info in await kernel.volumes.list():
        await kernel.volumes.remove(info.id)
    assert os.listdir(kernel.state_dir / "volumes") == []


async def shell(kernel: Kernel, id: str, script: str) -> str:
    result = await kernel.run(id, ["sh", "-c", script])
    assert result.status.exit_code == 0, result
    return result.stdout.decode()


async def make(kernel: Kernel, *volumes: str, name: str | None = None, **fields: object) -> str:
    spec = SandboxSpec(volumes=list(volumes), **fields)  # type: ignore[arg-type]
    return (await kernel.create(spec, name=name)).id


async def exported(kernel: Kernel, name: str) -> bytes:
    async with kernel.volumes.export(name) as pieces:
        return b"".join([piece async for piece in pieces])


async def pieces_of(data: bytes) -> AsyncGenerator[bytes, None]:
    for at in range(0, len(data), 10_000):
        yield data[at : at + 10_000]


@pytest.mark.parametrize("backend", ENGINES)
async def test_it_outlives_its_sandboxes(
    kernel: Kernel, backend: str, need_engine: Callable[[str], Awaitable[None]]
) -> None:
    await need_engine(backend)
    first = await make(kernel, "cache:/var/cache/x", "scratch:/tmp/s", backend=backend)
    notices = (await kernel.known(first)).notices
    assert [words for words in notices if "volume cache" in words and "new" in words]
    await shell(
        kernel, first, "echo kept > /var/cache/x/f; cp /bin/true /var/cache/x/t; echo 1 > /tmp/s/g"
    )
    await kernel.remove(first)
    second = await make(kernel, "cache:/a:ro", "scratch:/run/s:ro", backend=backend)
    assert not [w for w in (await kernel.known(second)).notices if "volume" in w]
    assert await shell(kernel, second, "cat /a/f /run/s/g; /a/t && echo runs") == "kept\n1\nruns\n"
    for path in ("/a/f", "/run/s/new"):
        denied = await kernel.run(second, ["sh", "-c", f"echo x > {path}"])
        assert b"ead-only file system" in denied.stderr
    lines = {line.value: line.enforced_by for line in (await kernel.known(second)).effective}
    assert "nosuid, nodev, read-only" in lines["cache at /a"]


async def test_two_at_once_see_each_others_changes(
    kernel: Kernel, need_engine: Callable[[str], Awaitable[None]]
) -> None:
    """Also of two engines, one of which is a kernel of its own, with caches."""
    await need_engine("gvisor")
    one = await make(kernel, "shared:/v")
    other = await make(kernel, "shared:/v", backend="gvisor")
    for number in range(3):
        await shell(kernel, one, f"echo one-{number} > /v/a; mkdir /v/d{number}")
        assert await shell(kernel, other, "cat /v/a; ls /v") == (
            f"one-{number}\na\n" + "".join(f"d{n}\n" for n in range(number + 1))
        )
        await shell(kernel, other, f"echo other-{number} > /v/a")
        assert await shell(kernel, one, "cat /v/a") == f"other-{number}\n"


async def test_its_files_have_the_ids_that_they_have_inside(kernel: Kernel) -> None:
    """Whoever made them, and with whatever range of ids."""
    user = "user" if idmaps.is_host_root() or idmaps.find_subids() else "root"
    first = await make(kernel, "ids:/v", user=user)
    found = await shell(kernel, first, "stat -c '%u %g %a' /v; touch /v/own; id -u")
    own = found.split()[-1]
    assert found.split() == [own, own, "755", own]
    if user == "user":
        await kernel.run(first, ["true"])
        second = await make(kernel, "ids:/v")
        await shell(kernel, second, "touch /v/roots; chown 33:44 /v/roots")
        assert await shell(kernel, second, "cd /v; stat -c '%n %u %g' *") == (
            f"own {own} {own}\nroots 33 44\n"
        )
    info = (await kernel.volumes.list())[0]
    on_disk = os.lstat(kernel.state_dir / "volumes" / info.id / "data" / "own")
    if idmaps.is_host_root():
        assert str(on_disk.st_uid) == own
    assert os.lstat(kernel.state_dir / "volumes").st_mode & 0o077 == 0 or (
        os.lstat(kernel.state_dir).st_mode & 0o077 == 0
    )


async def test_over_stop_and_start(kernel: Kernel) -> None:
    id = await make(kernel, "kept:/v", name="box", ephemeral=False)
    await shell(kernel, id, "echo 1 > /v/f; echo 2 > /root/g")
    await kernel.stop(id, grace_seconds=0)
    with pytest.raises(ConflictError, match="box"):
        await kernel.volumes.remove("kept")
    await kernel.start(id)
    assert await shell(kernel, id, "cat /v/f /root/g") == "1\n2\n"
    with pytest.raises(ConflictError, match="in use: box") as caught:
        await kernel.volumes.remove("kept", force=True)
    assert caught.value.details["holder"] == id
    await kernel.stop(id, grace_seconds=0)
    await kernel.volumes.remove("kept", force=True)
    with pytest.raises(NotFoundError, match="kept"):
        await kernel.start(id)
    # One of the same name is another one.
    await kernel.volumes.create("kept", owner="local")
    with pytest.raises(NotFoundError, match="gone"):
        await kernel.start(id)
    assert (await kernel.get(id)).state == "stopped"


async def test_one_at_a_time(kernel: Kernel) -> None:
    await kernel.volumes.create("db", owner="local", exclusive=True)
    one = await make(kernel, "db:/v", name="one", ephemeral=False)
    with pytest.raises(ConflictError, match="exclusive, and in use: one") as caught:
        await make(kernel, "db:/v", name="two")
    assert caught.value.hint == "first: agentkernel sandbox stop one"
    assert caught.value.details == {"volume": "db", "holder": one}
    with pytest.raises(ConflictError, match="exclusive"):
        await exported(kernel, "db")
    assert [record.name for record in (await kernel.list()).records] == ["one"]
    await kernel.stop(one, grace_seconds=0)
    two = await make(kernel, "db:/v", name="two", ephemeral=False)
    with pytest.raises(ConflictError, match="in use: two"):
        await kernel.start(one)
    await kernel.remove(two)
    await kernel.start(one)
    assert await shell(kernel, one, "echo alive") == "alive\n"


async def test_of_many_who_want_it_one_gets_it(kernel: Kernel) -> None:
    await kernel.volumes.create("db", owner="local", exclusive=True)
    made = await asyncio.gather(*(make(kernel, "db:/v") for _ in range(5)), return_exceptions=True)
    assert [type(one) for one in made].count(str) == 1
    assert all(isinstance(one, str | ConflictError) for one in made)


async def test_many_who_want_a_new_one_share_it(kernel: Kernel) -> None:
    boxes = await asyncio.gather(*(make(kernel, "new:/v", "other:/w") for _ in range(4)))
    await asyncio.gather(*(shell(kernel, box, f"touch /v/{box}") for box in boxes))
    assert set((await shell(kernel, boxes[0], "ls /v")).split()) == set(boxes)
    assert [info.name for info in await kernel.volumes.list()] == ["new", "other"]


async def test_one_that_is_being_made_is_nobodys(kernel: Kernel) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def pieces() -> AsyncGenerator[bytes, None]:
        begun.set()
        await go.wait()
        yield bytes(1024)

    importing = asyncio.ensure_future(
        kernel.volumes.import_archive("slow", pieces(), owner="local")
    )
    await begun.wait()
    for work in (
        make(kernel, "slow:/v"), exported(kernel, "slow"), kernel.volumes.remove("slow"),
        kernel.volumes.create("slow", owner="local"),
    ):  # fmt: skip
        with pytest.raises(ConflictError, match="being made|already"):
            await work
    go.set()
    await importing
    await make(kernel, "slow:/v")


async def test_who_has_it_is_known_after_a_restart(own_state: Path) -> None:
    async with Kernel(own_state) as kernel:
        await kernel.volumes.create("db", owner="local", exclusive=True)
        id = await make(kernel, "db:/v", name="one", ephemeral=False)
    async with Kernel(own_state) as kernel:
        with pytest.raises(ConflictError, match="in use: one"):
            await make(kernel, "db:/v")
        with pytest.raises(ConflictError, match="in use: one"):
            await kernel.volumes.remove("db", force=True)
        await kernel.remove(id)
        await make(kernel, "db:/v", name="two")
        await kernel.remove("two")
        await kernel.volumes.remove("db")


async def test_each_owner_has_their_own(kernel: Kernel) -> None:
    spec = SandboxSpec(volumes=["cache:/v"])
    mine, theirs = [await kernel.create(spec, owner=owner) for owner in ("local", "token:ci")]
    await shell(kernel, mine.id, "echo secret > /v/f")
    assert await shell(kernel, theirs.id, "ls /v") == ""
    assert len(await kernel.volumes.list("token:ci")) == 1
    other = (await kernel.volumes.list("local"))[0].id
    for name in (other, "nothing"):
        with pytest.raises(NotFoundError):
            await kernel.volumes.inspect(name, owner="token:ci")
        with pytest.raises(NotFoundError):
            await kernel.volumes.remove(name, owner="token:ci")
    with pytest.raises(ConflictError, match="several owners"):
        await kernel.volumes.inspect("cache")


async def test_a_create_that_fails_leaves_no_new_volume(kernel: Kernel) -> None:
    await kernel.volumes.create("old", owner="local")
    with pytest.raises(InvalidInputError):
        await make(kernel, "old:/a", "new:/b", user="nobody-knows-them")
    taken = await make(kernel, name="taken")
    with pytest.raises(ConflictError, match="taken"):
        await make(kernel, "new:/b", name="taken")
    assert [info.name for info in await kernel.volumes.list()] == ["old"]
    await kernel.remove(taken)


@pytest.mark.parametrize("path", ["/lib64/x", "/var/run/x"])
async def test_no_place_behind_a_link_of_the_image(kernel: Kernel, path: str) -> None:
    id = await make(kernel)
    top = "/".join(path.split("/")[:-1])
    is_link = (await kernel.run(id, ["test", "-L", top])).status.exit_code == 0
    if not is_link:
        pytest.skip(f"{top} is no link on this machine")
    with pytest.raises(Exception, match="link") as caught:
        await make(kernel, f"v:{path}")
    assert getattr(caught.value, "hint", None)
    assert await kernel.volumes.list() == []


async def test_without_a_daemon_there_are_none(kernel: Kernel) -> None:
    async with Runs(kernel.state_dir) as runs:
        with pytest.raises(UnsupportedError, match="volumes need a daemon"):
            await runs.create(SandboxSpec(volumes=["a:/a"]))


# -- quotas --------------------------------------------------------------------------------------


async def test_a_quota_that_cant_be_held_is_refused(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uppers, "LOOP_CONTROL", "/dev/nothing")
    with pytest.raises(UnenforceableError, match="quota can't be enforced") as caught:
        await kernel.volumes.create("big", owner="local", quota_bytes=64 * MIB)
    assert "leave the quota out" in (caught.value.hint or "")
    with pytest.raises(InvalidInputError, match="at least 16 MiB"):
        await kernel.volumes.create("small", owner="local", quota_bytes=MIB)
    assert await kernel.volumes.list() == []


def needs_image() -> None:
    reason, _ = uppers.no_image()
    if reason:
        pytest.skip(f"no quotas here: {reason}")


def loops(directory: Path) -> int:
    found = 0
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            found += str(directory) in backing.read_text()
        except OSError:
            continue
    return found


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 (nobody tells us)
            await asyncio.sleep(0.01)


async def test_a_quota_is_one_disk_for_all_that_share_it(
    kernel: Kernel, need_engine: Callable[[str], Awaitable[None]]
) -> None:
    needs_image()
    for engine in ("runc", "gvisor"):
        await need_engine(engine)
    await kernel.volumes.create("disk", owner="local", quota_bytes=32 * MIB)
    boxes = [
        await make(kernel, "disk:/v", backend=engine, user=user)
        for engine, user in (("native", "user"), ("native", "root"), ("runc", "root"),
                             ("gvisor", "root"))
    ]  # fmt: skip
    assert loops(kernel.state_dir / "volumes") == 1
    assert await shell(kernel, boxes[1], "stat -c %u /v; ls -A /v") == "1000\n"
    for number, box in enumerate(boxes):
        await shell(kernel, box, f"echo {number} > /v/{number}; sync")
    for box in boxes:
        assert await shell(kernel, box, "cat /v/*") == "0\n1\n2\n3\n"
    full = await kernel.run(boxes[2], ["sh", "-c", "dd if=/dev/zero of=/v/big bs=1M count=64"])
    assert b"No space left" in full.stderr
    full = await kernel.run(boxes[0], ["sh", "-c", "head -c 1000000 /dev/zero > /v/more"])
    assert b"No space left" in full.stderr, "it is one disk"
    for box in boxes[:3]:
        await kernel.remove(box)
    assert await shell(kernel, boxes[3], "rm /v/big; cat /v/0") == "0\n"
    await kernel.remove(boxes[3])
    await until(lambda: loops(kernel.state_dir / "volumes") == 0)
    again = await make(kernel, "disk:/v:ro")
    assert await shell(kernel, again, "cat /v/3") == "3\n"
    info = await kernel.volumes.inspect("disk")
    assert info.quota_bytes == 32 * MIB and 0 < (info.used_bytes or 0) < 32 * MIB


async def test_many_start_at_once_on_one_disk(kernel: Kernel) -> None:
    needs_image()
    await kernel.volumes.create("disk", owner="local", quota_bytes=16 * MIB)
    for _ in range(2):
        boxes = await asyncio.gather(*(make(kernel, "disk:/v") for _ in range(6)))
        await asyncio.gather(*(shell(kernel, box, f"echo x > /v/{box}") for box in boxes))
        assert loops(kernel.state_dir / "volumes") == 1
        await asyncio.gather(*(kernel.remove(box) for box in boxes))
    last = await make(kernel, "disk:/v")
    assert len((await shell(kernel, last, "ls /v")).split()) == 12


async def test_an_import_is_within_the_quota(kernel: Kernel) -> None:
    needs_image()
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        entry = tarfile.TarInfo("big")
        entry.size = 40 * MIB
        tar.addfile(entry, io.BytesIO(bytes(entry.size)))
    with pytest.raises(GuestDiskFullError):
        await kernel.volumes.import_archive(
            "disk", pieces_of(stream.getvalue()), owner="local", quota_bytes=16 * MIB
        )
    assert await kernel.volumes.list() == []
    await kernel.volumes.import_archive(
        "disk", pieces_of(stream.getvalue()), owner="local", quota_bytes=64 * MIB
    )


# -- archives ------------------------------------------------------------------------------------


async def test_an_archive_comes_back_as_it_was(kernel: Kernel) -> None:
    several = idmaps.is_host_root() or idmaps.find_subids() is not None
    id = await make(kernel, "one:/v")
    await shell(
        kernel, id,
        "cd /v; mkdir -p a/b c; echo text > a/b/f; head -c 300000 /dev/urandom > c/big; : > empty; "
        "ln -s ../nowhere a/link; chmod 600 a/b/f; chmod 1770 c; chmod 2755 a; chmod 711 .; "
        "touch -d '2001-02-03 04:05:06' a/b/f; mkfifo fifo; printf x > \"$(printf 'odd\\nname')\"; "
        + ("chown 33:44 a/b/f a/link c; chown 1000:1000 ." if several else "true"),
    )  # fmt: skip
    data = await exported(kernel, "one")
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        names = {member.name: member for member in tar}
    assert "fifo" not in names and {"odd\nname", "a/b/f", "a/link", "c/big", "empty"} <= set(names)
    assert int(names["a/b/f"].mtime) == 981173106
    made = await kernel.volumes.import_archive("two", pieces_of(data), owner="local")
    assert made.state == "ready"
    other = await make(kernel, "two:/v")
    await shell(kernel, id, "rm /v/fifo")
    look = (
        "cd /v; find . -printf '%P|%y|%m|%U|%G|%s|%l\\n' | grep -v '|d|' | sort; "
        "find . -type f -exec sha256sum {} + | sort; stat -c '%a %u %g' . a c; stat -c %Y a/b/f"
    )
    assert await shell(kernel, other, look) == await shell(kernel, id, look)
    with pytest.raises(ConflictError, match="named two already"):
        await kernel.volumes.import_archive("two", pieces_of(data), owner="local")


async def test_an_export_while_sandboxes_run(kernel: Kernel) -> None:
    id = await make(kernel, "one:/v")
    await shell(kernel, id, "echo 1 > /v/f")
    with tarfile.open(fileobj=io.BytesIO(await exported(kernel, "one"))) as tar:
        assert "f" in tar.getnames()
    assert await exported(kernel, "one")
    assert [record.id for record in (await kernel.list()).records] == [id]
    await kernel.volumes.create("never-used", owner="local")
    with tarfile.open(fileobj=io.BytesIO(await exported(kernel, "never-used"))) as tar:
        assert tar.getnames() == ["."]


async def test_what_takes_how_much(kernel: Kernel) -> None:
    id = await make(kernel, "one:/v", name="box")
    before = (await kernel.volumes.inspect("one")).used_bytes or 0
    await shell(
        kernel, id,
        "cd /v; head -c 3000000 /dev/zero > a; ln a b; ln a c; truncate -s 1G sparse; mkdir -m 0 d",
    )  # fmt: skip
    info = await kernel.volumes.inspect("one")
    assert 3_000_000 <= (info.used_bytes or 0) - before < 3_100_000
    assert info.used_complete and info.used_files == 7
    assert [(user.name, user.path, user.read_only) for user in info.sandboxes] == [
        ("box", "/v", False)
    ]
    assert (await kernel.volumes.list())[0].used_bytes is None


async def test_so_many_archives_at_once(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that may only look could have as many sandboxes as connections."""
    monkeypatch.setattr(volumes_module, "MAX_ARCHIVES", 1)
    await kernel.volumes.create("one", owner="local")
    async with kernel.volumes.export("one") as pieces:
        assert await anext(pieces)
        with pytest.raises(ResourceExhaustedError):
            async with kernel.volumes.export("one"):
                pass
    async with kernel.volumes.export("one") as pieces:
        assert await anext(pieces)
