"""Sandboxes of stored images: what of the config counts, who is who, and that the image stays.

What differs with the kind of ids a user has (root, subuids, one id) is said where it is expected.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from agentkernel.backends.local import idmaps
from agentkernel.backends.local.boot import emulates_ownership
from agentkernel.errors import InvalidInputError, NotFoundError, UnsupportedError
from agentkernel.guest.processes import Outcome, ProcessOptions
from agentkernel.images.oci.store import ImageStore
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.probe.running import probe_sandbox
from agentkernel.kernel.runs import Runs
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.network.guest_files.paths import AUTHORITY, BUNDLE

from ..oci_images import Layer, Node, add_image, busybox_image, busybox_layer, directory, link

ONE_ID = os.getuid() != 0 and idmaps.find_subids() is None
PASSWD = "root:x:0:0::/root:/bin/sh\napp:x:100:101::/home/app:/bin/sh\n"
GROUP = "root:x:0:\napp:x:101:\nstaff:x:50:app\n"
ACCOUNTS: Layer = {
    "etc": directory(),
    "etc/passwd": PASSWD,
    "etc/group": GROUP,
    "home": directory(),
    "home/app": directory(0o700, 100, 101),
    "srv": directory(),
    "srv/owned": Node(b"x", 0o640, 33, 34),
    "srv/setuid": Node(b"x", 0o4755),
}


@pytest.fixture(scope="module")
def store(state_dir: Path) -> ImageStore:
    store = ImageStore(state_dir / "images")
    busybox_image(store, "plain", ACCOUNTS)
    busybox_image(
        store, "speaking", ACCOUNTS,
        Env=["PATH=/bin", "GREETING=hello there"], WorkingDir="/made/for/it",
        Entrypoint=["/bin/echo", "entry"], Cmd=["and", "command"],
    )  # fmt: skip
    busybox_image(store, "as-app", ACCOUNTS, User="app", WorkingDir="/home/app")
    return store


async def output(runs: Runs, spec: SandboxSpec, script: str, **options: object) -> str:
    sandbox = await runs.create(spec)
    try:
        result = await runs.run(sandbox, ["sh", "-c", script], ProcessOptions(**options))  # type: ignore[arg-type]
        assert result.status.exit_code == 0, (result.status, result.stdout, result.stderr)
        return result.stdout.decode()
    finally:
        await runs.destroy(sandbox)


async def test_owners_on_disk_are_owners_inside(runs: Runs, store: ImageStore) -> None:
    script = "stat -c '%u:%g %a' /srv/owned /srv/setuid /home/app /bin/busybox"
    found = (await output(runs, SandboxSpec(image="plain"), script)).split("\n")
    if ONE_ID:
        assert found[:4] == ["0:0 640", "0:0 4755", "0:0 700", "0:0 755"]
    else:
        assert found[:4] == ["33:34 640", "0:0 4755", "100:101 700", "0:0 755"]


async def test_owners_can_be_changed(runs: Runs, store: ImageStore) -> None:
    """With one id that only seems so, and `info` says it."""
    script = (
        "touch /new && chown 7:8 /new && stat -c '%u:%g' /new;"
        " chown 9 /srv/owned && stat -c %u /srv/owned; chown 0:0 /missing 2>/dev/null || echo no"
    )
    sandbox = await runs.create(SandboxSpec(image="plain"))
    result = await runs.run(sandbox, ["sh", "-c", script])
    expected = [b"0:0", b"0", b"no"] if ONE_ID else [b"7:8", b"9", b"no"]
    assert result.stdout.split() == expected, result.stderr
    told = [line for line in sandbox.effective if line.what == "ownership"]
    assert bool(told) == ONE_ID


@pytest.mark.skipif(not ONE_ID, reason="there are other ids, so nothing is emulated")
async def test_a_process_that_becomes_another_user_stays_what_it_is(
    runs: Runs, store: ImageStore
) -> None:
    assert (await output(runs, SandboxSpec(image="plain"), "su app -c id")).startswith(
        "uid=0(root)"
    )


@pytest.mark.skipif(not ONE_ID, reason="there are other ids, so nothing is emulated")
async def test_nothing_is_emulated_for_other_images(runs: Runs) -> None:
    sandbox = await runs.create(SandboxSpec())
    assert not emulates_ownership(sandbox.root, idmaps.single_maps(0))
    result = await runs.run(sandbox, ["chown", "7", "/root"])
    assert result.status.exit_code != 0


async def test_the_environment_and_the_directory_are_the_images(
    runs: Runs, store: ImageStore
) -> None:
    found = await output(
        runs, SandboxSpec(image="speaking"), "echo $GREETING; pwd; echo $HOME $PATH"
    )
    assert found.splitlines() == ["hello there", "/made/for/it", "/root /bin"]
    found = await output(runs, SandboxSpec(image="plain"), "pwd; echo $PATH", cwd="/srv")
    assert found.splitlines()[0] == "/srv"
    assert "/usr/bin" in found.splitlines()[1]


async def test_a_working_directory_behind_a_link_is_made_where_it_leads(
    runs: Runs, store: ImageStore
) -> None:
    busybox_image(
        store, "linked", {"app": link("srv/app"), "srv": directory(), "srv/app": directory()},
        WorkingDir="/app/new",
    )  # fmt: skip
    found = await output(runs, SandboxSpec(image="linked"), "readlink -f .; stat -c %a .")
    assert found.split() == ["/srv/app/new", "755"]


async def test_its_user_is_who_commands_run_as(runs: Runs, store: ImageStore) -> None:
    spec = SandboxSpec(image="as-app")
    script = "id -u; id -g; echo $HOME $USER; touch /home/app/x && echo wrote; pwd"
    found = (await output(runs, spec, script)).split()
    group = "100" if ONE_ID else "101"
    assert found == ["100", group, "/home/app", "app", "wrote", "/home/app"]


@pytest.mark.parametrize(
    ("user", "ids"),
    [("root", "0 0"), ("app", "100 101"), ("app:staff", "100 50"), ("1234", "1234 0")],
)
async def test_users_by_name_and_number(runs: Runs, store: ImageStore, user: str, ids: str) -> None:
    uid = ids.split()[0]
    expected = [uid, uid] if ONE_ID else ids.split()
    spec = SandboxSpec(image="as-app", user=user)
    assert (await output(runs, spec, "cd /; id -u; id -g", cwd="/")).split() == expected


async def test_a_user_that_is_not_there(runs: Runs, store: ImageStore) -> None:
    with pytest.raises(NotFoundError, match="no user 'nobody'") as caught:
        await runs.create(SandboxSpec(image="plain", user="nobody"))
    assert "--user" in (caught.value.hint or "")
    if not ONE_ID:
        with pytest.raises(InvalidInputError, match="70000"):
            await runs.create(SandboxSpec(image="plain", user="70000"))


@pytest.mark.skipif(not ONE_ID, reason="there are other ids")
async def test_with_one_id_there_is_no_other_user(runs: Runs, store: ImageStore) -> None:
    sandbox = await runs.create(SandboxSpec(image="as-app"))
    with pytest.raises(UnsupportedError, match="one user id, 100"):
        await runs.run(sandbox, ["id"], ProcessOptions(user="root"))
    with pytest.raises(UnsupportedError, match="one user id, 100"):
        await runs.run(sandbox, ["id"], ProcessOptions(user="0:0"))
    result = await runs.run(sandbox, ["id"], ProcessOptions(user="nobody"))
    assert result.status.outcome is Outcome.NOT_STARTED


async def test_a_guest_reaches_nothing_more(runs: Runs, store: ImageStore) -> None:
    """Also where ownership is emulated: what the probe finds is as it is to be."""
    sandbox = await runs.create(SandboxSpec(image="plain"))
    found = await probe_sandbox(sandbox)
    assert found.fit, [finding for finding in found.findings if not finding.expected]


async def test_layers_are_merged_with_whiteouts(runs: Runs, store: ImageStore) -> None:
    busybox_image(
        store, "layered",
        {"d": directory(), "d/a": "1", "d/sub": directory(), "d/sub/x": "1", "gone": "x",
         "was-dir": directory(), "was-dir/f": "1", "was-file": "1", "kept": "1"},
        {"d/.wh..wh..opq": "", "d/b": "2", ".wh.gone": "", "was-dir": "now a file",
         ".wh.was-file": "", "kept": "2"},
        {"was-file": directory(), "was-file/g": "3", "gone": "back"},
    )  # fmt: skip
    script = (
        "echo $(ls /d) $(cat /kept) $(cat /gone) $(cat /was-dir) $(ls /was-file);"
        " rm -r /d && ls -d /d 2>/dev/null; mkdir /d && ls /d; echo end"
    )
    assert (await output(runs, SandboxSpec(image="layered"), script)).splitlines() == [
        "b 2 back now a file g", "end",
    ]  # fmt: skip


async def test_127_layers(runs: Runs, store: ImageStore) -> None:
    """As many as any engine takes, and the network's and our own besides."""
    layers: list[Layer] = [busybox_layer()]
    layers += [{f"l/{n}": str(n), "last": str(n)} for n in range(126)]
    add_image(store, "many", layers)
    script = "ls /l | wc -l; cat /last /l/0 /l/125"
    found = await output(
        runs, SandboxSpec(image="many"), script.replace("wc -l", "find /l -type f")
    )
    assert len(found.splitlines()) >= 126
    assert found.endswith("1250125")


async def test_an_image_that_is_not_here(runs: Runs) -> None:
    with pytest.raises(NotFoundError, match="no image") as caught:
        await runs.create(SandboxSpec(image="nobody/has-this:1"))
    assert caught.value.hint == "fetch it: agentkernel image pull nobody/has-this:1"
    with pytest.raises(InvalidInputError):
        await runs.create(SandboxSpec(image="No Name"))
    with pytest.raises(InvalidInputError, match="entrypoint"):
        await runs.create(SandboxSpec(entrypoint=["x"]))


async def test_a_stopped_sandbox_starts_from_its_own_image(tmp_path: Path) -> None:
    """Whatever became of the tag meanwhile, and with nothing to be fetched from."""
    store = ImageStore(tmp_path / "images")
    busybox_image(store, "app", {"version": "1"}, User="0")
    async with Kernel(tmp_path) as kernel:
        made = await kernel.create(SandboxSpec(image="app", ephemeral=False), name="kept")
        assert made.blueprint["image"].startswith("docker.io/library/app:latest@sha256:")
        assert made.blueprint["user"] == "0"
        async with kernel.files("kept") as files:
            await files.write("/own", b"mine")
        await kernel.stop("kept", grace_seconds=0)
        busybox_image(store, "app", {"version": "2"})
        new = await kernel.create(SandboxSpec(image="app"))
        store.untag("docker.io/library/app:latest")
        await kernel.images.prune(all=True)
        await kernel.start("kept")
        async with kernel.files("kept") as files, kernel.files(new.id) as newer:
            assert await files.read("/version") == b"1"
            assert await files.read("/own") == b"mine"
            assert await newer.read("/version") == b"2"
        await kernel.remove("kept")
        await kernel.remove(new.id)


async def test_the_gateways_authority_is_trusted(tmp_path: Path) -> None:
    """In an image that has no authorities, in one that has, and in one that has taken them away."""
    store = ImageStore(tmp_path / "images")
    own = "etc/ssl/certs/ca-certificates.crt"
    busybox_image(store, "none")
    busybox_image(store, "some", {own: "of the image\n"})
    whiteout = {"etc/ssl/certs/.wh.ca-certificates.crt": ""}
    busybox_image(store, "away", {own: "of the image\n"}, whiteout)
    async with Kernel(tmp_path) as kernel:
        for name in ("none", "some", "away"):
            made = await kernel.create(SandboxSpec(image=name))
            if made.blueprint["network"] is None:
                pytest.skip(made.blueprint["without_network"])
            async with kernel.files(made.id) as files:
                authority = await files.read(AUTHORITY)
                bundle = await files.read(BUNDLE)
                assert authority.strip() in bundle
                assert (b"of the image" in bundle) == (name == "some")
                assert await files.exists(f"/{own}") == (name == "some")
                if name == "some":
                    assert authority.strip() in await files.read(f"/{own}")
            await kernel.remove(made.id)


async def test_a_guest_can_not_spoil_the_next_start(tmp_path: Path) -> None:
    """Its working directory became a link, and then a file."""
    store = ImageStore(tmp_path / "images")
    busybox_image(store, "app", WorkingDir="/work/here")
    async with Kernel(tmp_path) as kernel:
        await kernel.create(SandboxSpec(image="app", ephemeral=False), name="kept")
        for script in ("rm -r /work; ln -s /bin /work", "rm /work; touch /work"):
            options = ProcessOptions(cwd="/")
            busybox = ["/bin/busybox", "sh", "-c", script.replace("ln ", "busybox ln ")]
            result = await kernel.run("kept", busybox, options)
            assert result.status.exit_code == 0, result.stderr
            await kernel.stop("kept", grace_seconds=0)
            await kernel.start("kept")
        await kernel.remove("kept")


@pytest.mark.skipif(ONE_ID, reason="there is one id, so nobody to become")
async def test_a_setuid_file_of_an_image_gives_no_rights(runs: Runs, store: ImageStore) -> None:
    program = busybox_layer()["bin/busybox"]
    assert isinstance(program, Node)
    busybox_image(store, "setuid", {"setuid/id": replace(program, mode=0o4755)})
    found = await output(
        runs, SandboxSpec(image="setuid", user="1000"), "stat -c '%u %a' /setuid/id; /setuid/id -u"
    )
    assert found.split() == ["0", "4755", "1000"]
