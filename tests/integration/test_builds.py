"""Builds in real sandboxes: what an image holds, what is cached, what a failure leaves."""

from __future__ import annotations

import asyncio
import gzip
import importlib
import io
import json
import os
import shutil
import sys
import tarfile
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agentkernel import space
from agentkernel.backends.local.idmaps import own_maps
from agentkernel.errors import (
    ImageBuildError,
    InvalidInputError,
    NotFoundError,
    ResourceExhaustedError,
    UnsupportedError,
)
from agentkernel.images.building.cache import BuildCache, build_cache_bytes, prune_build_cache
from agentkernel.images.building.listing import Listings
from agentkernel.images.building.tree import Entry
from agentkernel.images.oci.model import ImageConfig
from agentkernel.kernel.building.model import (
    BuildEvent,
    BuildOutput,
    BuildStep,
    BuildStepDone,
    Built,
)
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.spec import SandboxSpec

from ..unit.images.building.making import Files
from .building import BASE, build, busybox

sys.path.append(str(Path(__file__).parents[2] / "tools"))


# With one id whatever a command makes is root's in the layer.
SINGLE = own_maps().mode == "single"


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all: what one test has built, the others find in the cache."""
    path = tmp_path_factory.mktemp("builds") / "state"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
async def kernel(state: Path) -> AsyncIterator[Kernel]:
    async with Kernel(state) as kernel:
        yield kernel
        assert (await kernel.list()).records == []
        assert list((state / "runs").glob("*")) == []


def entries(kernel: Kernel, built: Built) -> dict[str, Entry]:
    store = kernel.images.store
    tree = Listings(store, BuildCache(store).lists).tree(
        [layer.digest for layer in store.image(built.digest).manifest.layers]
    )
    return dict(tree.below(tree.root))


def config(kernel: Kernel, built: Built) -> ImageConfig:
    return kernel.images.store.image(built.digest).config


def last_layer(kernel: Kernel, built: Built) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
    store = kernel.images.store
    blob = store.blob_path(store.image(built.digest).manifest.layers[-1].digest)
    found = {}
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(blob.read_bytes()))) as archive:
        for info in archive:
            file = archive.extractfile(info) if info.isreg() else None
            found[info.name] = (info, file.read() if file else b"")
    return found


async def test_a_command_sees_its_stage_and_its_changes_are_a_layer(kernel: Kernel) -> None:
    events: list[BuildEvent] = []
    built = await build(
        kernel,
        """\
ENV GREETING=hello
ARG NAME=nobody
WORKDIR /srv/app
RUN echo "$GREETING $NAME" | tee said; pwd; echo two >&2; \\
    echo t > /tmp/t; mkdir /run/r; rm /bin/vi; chmod 4711 said; chown 12:34 /srv
"""
        + ("" if SINGLE else "USER 1000:1001\nRUN id -u > /tmp/who\n"),
        events=events,
        build_args={"NAME": "you"},
        tags=["greeting:1"],
    )
    output = "".join(event.text for event in events if isinstance(event, BuildOutput))
    assert "hello you\n/srv/app\n" in output and "two\n" in output
    found = entries(kernel, built)
    said = found["srv/app/said"]
    assert (said.mode, said.size) == (0o4711, len("hello you\n"))
    owner = (0, 0) if SINGLE else (12, 34)
    assert (found["srv"].uid, found["srv"].gid, found["srv/app"].uid) == (*owner, 0)
    assert "bin/vi" not in found and "bin/ls" in found
    assert found["tmp/t"].size == 2 and found["run/r"].kind == "directory"
    if not SINGLE:
        assert (found["tmp/who"].uid, found["tmp/who"].gid) == (1000, 1001)
    assert not {"etc/hosts", "etc/hostname", "etc/resolv.conf"} & found.keys()
    process = config(kernel, built).process
    assert process.user == ("" if SINGLE else "1000:1001") and process.working_dir == "/srv/app"
    assert process.environment["GREETING"] == "hello" and "NAME" not in process.environment
    assert built.names == ["greeting:1"]
    steps = [event for event in events if isinstance(event, BuildStep)]
    assert [step.number for step in steps] == list(range(1, steps[0].steps + 1))


async def test_the_second_build_is_all_cache_and_the_same_image(kernel: Kernel) -> None:
    text = "RUN date +%N > /now\nCOPY a /a\nWORKDIR /late"
    first = await build(kernel, text, {"a": b"1"})
    events: list[BuildEvent] = []
    again = await build(kernel, text, {"a": b"1"}, events=events)
    assert again.cached == again.layers == first.layers
    assert again.digest == first.digest
    done = [event for event in events if isinstance(event, BuildStepDone) and event.layer]
    assert all(event.cached for event in done) and len(done) == again.layers
    # Another content is another layer, and what comes after it, too; what comes before is not.
    other = await build(kernel, text.replace("COPY a /a", "COPY a /a\nRUN true"), {"a": b"2"})
    assert other.layers - other.cached == 2
    assert (await build(kernel, text, {"a": b"1"}, modes={"a": 0o755})).cached == 5
    anew = await build(kernel, text, {"a": b"1"}, no_cache=True)
    assert anew.cached == 0 and anew.digest != first.digest


async def test_a_step_that_fails_leaves_nothing(kernel: Kernel) -> None:
    with pytest.raises(ImageBuildError) as caught:
        await build(kernel, "COPY a /a\nRUN echo one; echo two >&2; exit 3", {"a": b""}, tags=["f"])
    assert caught.value.message.startswith("line 7: the command ended with status 3")
    details = caught.value.details
    assert (details["line"], details["exit_code"]) == (7, 3)
    assert sorted(details["output"]) == ["one", "two"]
    with pytest.raises(NotFoundError):
        await kernel.images.inspect("f")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("RUN /no/such/program", "line 6: the command ended with status 127"),
        ('RUN ["/no/such/program"]', "line 6: the command could not be started"),
        ("COPY missing /x", "line 6: missing is not in the context"),
        ("COPY --chown=nobody:x a /x", "line 6: --chown=nobody:x: the image knows no nobody"),
        ("COPY --chmod=u+x a /x", "line 6: --chmod=u+x is not supported"),
        ("COPY --from=9 a /x", "line 6: there is no stage 9"),
        ("EXPOSE much", "line 6: 'much' is no port"),
        ("ENV X=${Y:?needed}", "line 6: '${Y:?needed}' can't be worked out"),
    ],
)
async def test_errors_have_their_line(kernel: Kernel, text: str, said: str) -> None:
    with pytest.raises(ImageBuildError) as caught:
        await build(kernel, text, {"a": b""})
    assert caught.value.message.startswith(said), caught.value.message


async def test_another_user_needs_another_id(kernel: Kernel) -> None:
    if not SINGLE:
        await build(kernel, "USER 1000\nRUN true")
        return
    with pytest.raises(ImageBuildError, match="line 7: this sandbox has one user id") as caught:
        await build(kernel, "USER 1000\nRUN true")
    assert caught.value.hint


async def test_stages(kernel: Kernel) -> None:
    text = (
        BASE
        + """\
FROM base AS made
RUN mkdir /out && echo made > /out/x && chown 5:6 /out/x
FROM base AS broken
RUN exit 1
FROM scratch AS last
COPY --from=made /out /
COPY --from=0 /etc/passwd /passwd
FROM base AS other
COPY --from=last /x /from-scratch
"""
    )
    built = await build(kernel, text, target="last")
    found = entries(kernel, built)
    owner = (0, 0) if SINGLE else (5, 6)
    assert set(found) == {"x", "passwd"} and (found["x"].uid, found["x"].gid) == owner
    assert "from-scratch" in entries(kernel, await build(kernel, text))
    with pytest.raises(InvalidInputError, match="no stage"):
        await build(kernel, text, target="nowhere")


async def test_a_built_image_is_a_base_and_runs(kernel: Kernel) -> None:
    await build(kernel, 'ENTRYPOINT ["echo"]\nCMD ["from", "below"]', tags=["below:1"])
    built = await build(kernel, 'FROM below:1\nCMD ["from above"]\nRUN echo on > /top')
    process = config(kernel, built).process
    assert (process.entrypoint, process.cmd) == (["echo"], ["from above"])
    record = await kernel.create(SandboxSpec(image=f"x@{built.digest}"))
    try:
        result = await kernel.run(record.id, ["cat", "/top"])
        assert result.stdout == b"on\n"
    finally:
        await kernel.remove(record.id)


async def test_heredocs(kernel: Kernel) -> None:
    built = await build(
        kernel,
        """\
ARG WHO=you
RUN <<EOF
echo "script for $WHO" > /one
echo second >> /one
EOF
RUN <<'EOF'
#!/bin/sh -e
echo $- ${0##*/} > /two
EOF
COPY <<three <<"four" /texts/
hello $WHO
three
hello $WHO
four
""",
    )
    found = entries(kernel, built)
    assert found["one"].size == len("script for you\nsecond\n")
    assert found["two"].size == len("e agentkernel-heredoc\n")
    assert found["texts/three"].size == len("hello you\n")
    assert found["texts/four"].size == len("hello $WHO\n")
    assert not [path for path in found if "heredoc" in path]


async def test_what_the_network_needs_is_no_part_of_a_layer(kernel: Kernel) -> None:
    """With the profile's own network: a resolver, clients' files, an authority."""
    built = await build(
        kernel,
        "RUN test -s /etc/resolv.conf && test -s /etc/agentkernel/ca.crt "
        "&& cp /etc/agentkernel/ca.crt /seen && mkdir -p /etc/app && echo x > /etc/app/x",
        network=None,
    )
    found = set(last_layer(kernel, built)) - {"sys"}  # where control groups are mounted
    assert found == {".", "etc", "etc/app", "etc/app/x", "seen"}


async def test_a_guest_can_not_lead_the_cleaning_astray(kernel: Kernel, tmp_path: Path) -> None:
    """It makes /etc a link to a directory of the host that has files of the same names."""
    outside = tmp_path / "etc"
    outside.mkdir(mode=0o777)
    for name in ("hosts", "hostname", "resolv.conf"):
        (outside / name).write_text("the host's")
    built = await build(kernel, f"RUN rm -rf /etc && ln -s {outside} /etc", network=None)
    assert last_layer(kernel, built)["etc"][0].linkname == str(outside)
    assert sorted(os.listdir(outside)) == ["hostname", "hosts", "resolv.conf"]
    assert {path.read_text() for path in outside.iterdir()} == {"the host's"}


async def test_a_platform_of_another_machine_is_refused(kernel: Kernel) -> None:
    with pytest.raises(ImageBuildError, match="line 1: images for linux/s390x can't be built here"):
        await build(kernel, "FROM --platform=linux/s390x scratch\n")
    built = await build(kernel, "ARG P=linux/$TARGETARCH\nFROM --platform=$P scratch\nLABEL a=b\n")
    assert config(kernel, built).process.labels == {"a": "b"}


async def test_whoever_leaves_ends_the_build(kernel: Kernel) -> None:
    started = asyncio.Event()

    class Told(list[BuildEvent]):
        def append(self, event: BuildEvent) -> None:
            if isinstance(event, BuildOutput):
                started.set()

    task = asyncio.ensure_future(
        build(kernel, "RUN echo here; sleep 1000", events=Told(), tags=["left"])
    )
    await asyncio.wait_for(started.wait(), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await kernel.list()).records == []
    with kernel.images.store.removing():
        pass  # nothing is held any more


async def test_a_workdir_is_there_though_no_step_needs_it(kernel: Kernel) -> None:
    built = await build(kernel, "FROM scratch\nWORKDIR /a/b\nWORKDIR c\nCMD x\n")
    assert set(entries(kernel, built)) == {"a", "a/b", "a/b/c"}
    image = config(kernel, built)
    assert [line.empty_layer for line in image.history] == [True, False, True]
    assert len(image.rootfs.diff_ids) == 1


async def test_the_cache_can_be_pruned(kernel: Kernel) -> None:
    text = "FROM scratch\nCOPY a /pruned\n"
    await build(kernel, text, {"a": b"x"})
    assert (await build(kernel, text, {"a": b"x"})).cached == 1
    store = kernel.images.store
    assert build_cache_bytes(store) > 0
    with store.removing():
        assert prune_build_cache(store, unused_seconds=3600)[0] == 0
        count, freed = prune_build_cache(store)
    assert count >= 1 and freed > 0
    assert (await build(kernel, text, {"a": b"x"})).cached == 0


async def test_an_unknown_step_is_refused(kernel: Kernel) -> None:
    with pytest.raises(UnsupportedError, match="line 2: ONBUILD"):
        await build(kernel, "FROM scratch\nONBUILD RUN x\n")


_COMPARED = """\
ENV A=1 B="two $A"
RUN mkdir -p /d/e && echo x > /d/e/x && ln /d/e/x /d/hard && ln -s e /d/l && chown -R 7:8 /d/e
COPY --chown=3:4 src /d/e
COPY src/in/* /other/
RUN rm /d/e/x && rm -r /other && mkdir /other && chmod 2750 /other
LABEL a=b
HEALTHCHECK --retries=2 CMD true
EXPOSE 80
USER 5:6
CMD ["x"]
"""


@pytest.mark.skipif(os.getuid() != 0, reason="buildah in a chroot needs root")
async def test_the_same_as_buildah(kernel: Kernel, tmp_path: Path) -> None:
    """A small one; `tools/compare_builds.py` has the large ones."""
    if shutil.which("buildah") is None or shutil.which("umoci") is None:
        pytest.skip("buildah or umoci is not installed")
    files: Files = {
        **{"src": None, "src/f": b"f", "src/in": None, "src/in/g": b"g", "src/link": ("f",)},
    }
    modes = {"src/in": 0o700, "src/f": 0o640}
    built = await build(kernel, _COMPARED, files, modes=modes)
    ours = {
        path: (entry.kind, oct(entry.mode), entry.uid, entry.gid, entry.link, entry.size)
        for path, entry in entries(kernel, built).items()
    }
    document = json.loads(kernel.images.store.read_document(built.id))
    theirs, differences = await asyncio.to_thread(_by_buildah, tmp_path, files, modes, document)
    for stub in ("etc/hosts", "etc/hostname", "etc/resolv.conf"):
        theirs.pop(stub, None)
    assert ours == theirs
    assert differences == []


def _by_buildah(
    directory: Path, files: Files, modes: dict[str, int], document: dict[str, Any]
) -> tuple[dict[str, tuple[object, ...]], list[str]]:
    """The names of what buildah makes of the same, and how its config differs."""
    compare = importlib.import_module("compare_builds")
    context = directory / "context"
    context.mkdir()
    for path, what in files.items():
        if what is None:
            (context / path).mkdir()
        elif isinstance(what, tuple):
            (context / path).symlink_to(what[0])
        else:
            (context / path).write_bytes(what)
    for path, mode in modes.items():
        (context / path).chmod(mode)
    (context / "busybox").write_bytes(busybox())
    (context / "Dockerfile").write_text(BASE + _COMPARED)
    work = compare.Work(directory)
    # One layer for all, which is quicker: so the history differs.
    words = ("bud", "--isolation", "chroot", "--format", "docker", "-t", "it")
    work.buildah(*words, str(context))
    inspected = json.loads(work.buildah("inspect", "--type", "image", "it"))["Docker"]
    root = compare.unpack_theirs(work, "it", directory)
    found: dict[str, tuple[object, ...]] = {}
    for path in compare.names_of(root):
        place = root / path
        status = place.lstat()
        kind = "link" if place.is_symlink() else "directory" if place.is_dir() else "file"
        found[path] = (
            *(kind, oct(status.st_mode & 0o7777), status.st_uid, status.st_gid),
            *(os.readlink(place) if kind == "link" else "", status.st_size * (kind == "file")),
        )
    differences = compare.config_differences(document, inspected)
    return found, [line for line in differences if not line.startswith("history")]


async def test_a_command_ends_before_the_disk_is_full(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Told(list[BuildEvent]):
        def append(self, event: BuildEvent) -> None:
            if isinstance(event, BuildOutput) and "begun" in event.text:
                monkeypatch.setattr(space, "_chosen", 1 << 60)

    async with asyncio.timeout(60):
        with pytest.raises(ResourceExhaustedError, match="nearly full"):
            await build(kernel, "RUN echo begun; sleep 600", events=Told())


async def test_values_that_grow(kernel: Kernel) -> None:
    """A few lines of a Dockerfile are no gigabytes of the daemon's memory."""
    grown = "FROM scratch\nARG A=" + "x" * 60000 + "\nARG B=" + "$A" * 15 + "\n"
    many = "".join(f"ARG V{number}=$B\n" for number in range(200))
    with pytest.raises(ImageBuildError, match="more than 32 MiB together"):
        await build(kernel, grown + many)
    envs = "".join(f"ENV V{number}=$A\n" for number in range(80))
    with pytest.raises(InvalidInputError, match="no image: the image's config has more than 4 MiB"):
        await build(kernel, grown + envs)
    with pytest.raises(InvalidInputError, match="no image: .*Env"):
        await build(kernel, grown + "ENV V=$B\n")
    assert (await build(kernel, grown + "ENV V=$A\n")).digest


@pytest.mark.parametrize(
    "lines",
    [
        "ENV " + " ".join(f"A{n}={n}" for n in range(5000)),
        "\n".join(f"ENV A{n}={n}" for n in range(5000)),
        "ARG " + " ".join(f"A{n}={n}" for n in range(5000)),
        "LABEL " + " ".join(f"a{n}={n}" for n in range(5000)),
    ],
    ids=["one env", "many env", "arg", "label"],
)
async def test_variables_are_so_many(kernel: Kernel, lines: str) -> None:
    """With 30,000 of them the daemon would do nothing else for a minute."""
    with pytest.raises(ImageBuildError, match="more than 4096 variables or labels"):
        await build(kernel, f"FROM scratch\n{lines}\n")


async def test_others_have_their_turn_between_steps(kernel: Kernel) -> None:
    turns = 0
    seen: set[int] = set()

    class Told(list[BuildEvent]):
        def append(self, event: BuildEvent) -> None:
            seen.add(turns)

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    await build(kernel, "FROM scratch\n" + "ENV A=b\n" * 1000, events=Told())
    counting.cancel()
    assert len(seen) > 900


async def test_layers_are_read_beside_the_event_loop(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a base may have a hundred thousand files."""
    threads: list[threading.Thread] = []
    read = Listings.of

    def watched(self: Listings, digest: str) -> Any:
        threads.append(threading.current_thread())
        return read(self, digest)

    monkeypatch.setattr(Listings, "of", watched)
    await build(kernel, "RUN echo beside > /beside\nCOPY busybox /again\nWORKDIR /new\n")
    assert threads and threading.main_thread() not in threads
