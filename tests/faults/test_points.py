"""At every fault point the owner is killed, or the system refuses; the next start makes it good."""

from __future__ import annotations

import ast
import errno
import os
import resource
import shutil
from pathlib import Path

import pytest

from agentkernel import faults
from agentkernel.errors import AgentKernelError, HostError, ResourceExhaustedError, StateError
from agentkernel.ids import new_id
from agentkernel.kernel.kernel import Kernel

from .cases import (
    BUILD_CASES,
    CASES,
    ERROR,
    GONE,
    KIT_CASES,
    LOGIN_CASES,
    REMOVING,
    SESSION_CASES,
    STOPPED,
    VOLUME_CASES,
    Case,
)
from .conftest import Die
from .leftovers import World, eventually_in
from .operations import CONTENT, IMAGE, KEPT, OPERATIONS, WRITTEN, arm, exists, read

SOURCES = Path(faults.__file__).parent
FAILING = [case for case in CASES if case.fails]


def named_points() -> list[str]:
    found = []
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if node.func.attr == "point" and ast.unparse(node.func.value) == "faults":
                name = ast.literal_eval(node.args[0])  # a literal, or this fails
                assert isinstance(name, str)
                found.append(name)
    return found


def test_every_point_is_known_and_used_once() -> None:
    assert sorted(named_points()) == sorted(faults.POINTS)


def test_every_point_has_a_case() -> None:
    """Without one nobody knows what a crash there leaves."""
    volumes = {case.point for case in (*VOLUME_CASES, *KIT_CASES)}
    volumes |= {point for point, _ in (*BUILD_CASES, *LOGIN_CASES)} | set(SESSION_CASES)
    assert {case.point for case in CASES} | volumes == faults.POINTS.keys()


def test_a_point_that_is_not_armed_does_nothing() -> None:
    faults.point("create.row")
    with pytest.raises(ValueError, match="no fault point"):
        faults.arm("create.nowhere", lambda: None)
    hits: list[str] = []
    faults.arm("create.row", lambda: hits.append("hit"))
    for name in ("start.begin", "create.row", "create.row"):
        faults.point(name)
    assert hits == ["hit"]


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_killed_there(case: Case, world: World, die: Die) -> None:
    _need(case)
    id = new_id()
    assert die(case.operation, case.points, id) == -9
    async with world.kernel() as kernel:
        await _check(case, case.after, world, kernel, id)
        if case.after != GONE:
            await kernel.remove(id)
        assert await world.remains(id) == []


async def test_control_a_killed_start_leaves_something_for_the_next(world: World, die: Die) -> None:
    id = new_id()
    assert die("start", "launch.recorded", id) == -9
    found = world.orphans_now({world.bystander})
    assert [line.split()[0] for line in found][:1] == ["process"]
    if not os.getuid():
        assert any(line.startswith("id range") for line in found)
    async with world.kernel() as kernel:
        await kernel.remove(id)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EMFILE], ids=errno.errorcode.get)
@pytest.mark.parametrize("case", FAILING, ids=str)
async def test_refused_there(case: Case, number: int, world: World) -> None:
    _need(case)
    id = new_id()
    before, do = OPERATIONS[case.operation]

    def refuse() -> None:
        raise OSError(number, os.strerror(number))

    async with world.kernel() as kernel:
        await before(kernel, id)
        arm(case.points, refuse)
        with pytest.raises(AgentKernelError) as caught:
            await do(kernel, id)
        assert type(caught.value) in _expected(case, number), repr(caught.value)
        await _check(case, case.after_error, world, kernel, id)
        if case.operation.startswith(("create", "run", "start", "stop", "remove", "load")):
            await do(kernel, id)
        if case.operation not in ("remove", "load image"):
            await kernel.remove(id)
        assert await world.remains(id) == []


async def _check(case: Case, state: str, world: World, kernel: Kernel, id: str) -> None:
    """What must hold soon after a fault, or after the next start."""
    if state == ERROR:
        await eventually_in(kernel, id, ERROR)
    await world.check(kernel, set() if state == GONE else {id})
    if case.operation == "load image":
        await _check_images(case, kernel)
    if state == GONE:
        assert await world.remains(id) == []
        return
    assert (await kernel.get(id)).state == state
    if state == STOPPED:
        assert await world.remains_stopped(id) == []
        await kernel.start(id)
    elif state in (ERROR, REMOVING):
        return
    if case.operation != "create":
        assert await read(kernel, id, KEPT) == b"acknowledged"
    assert (await kernel.run(id, ["echo", "alive"])).stdout == b"alive\n"
    await _check_what_was_under_way(case, kernel, id)


async def _check_images(case: Case, kernel: Kernel) -> None:
    """An image is there with all of it, or it is not; what is left of it goes."""
    found = [image.names for image in await kernel.images.list()]
    assert found == ([[IMAGE]] if case.point == "image.named" else [])
    if found:
        await kernel.images.ready(IMAGE, pull="never")
        kernel.images.release((await kernel.images.inspect(IMAGE)).digest)
    await kernel.images.prune(all=True)
    place = kernel.images.store.directory
    left = [*place.glob("blobs/sha256/*"), *place.glob("partial/*"), *place.glob("layers/oci*")]
    assert left + list(place.glob("layers/.tmp-*")) == []


async def _check_what_was_under_way(case: Case, kernel: Kernel, id: str) -> None:
    jobs = [(row.state, row.status) for row in await kernel.jobs.list(id)]
    outcomes = [(state, status and status["outcome"]) for state, status in jobs]
    match case.point:
        case "job.row":
            assert outcomes == [("ended", "not_started")]
        case "job.started":
            assert outcomes == [("running", None)]
        case "job.ended":
            assert outcomes == [("ended", "exited")]
            assert jobs[0][1] and jobs[0][1]["exit_code"] == 3
        case "file.before" | "file.midway":
            assert not await exists(kernel, id, WRITTEN)
        case "file.sent":
            written = await exists(kernel, id, WRITTEN)
            assert not written or await read(kernel, id, WRITTEN) == CONTENT
        case _:
            assert jobs == []


def _expected(case: Case, number: int) -> set[type[AgentKernelError]]:
    records = case.point in ("audit.append", "store.commit")
    if number == errno.ENOSPC or (number == errno.EMFILE and not records):
        return {ResourceExhaustedError}
    return {StateError if records else HostError}


def _need(case: Case) -> None:
    if case.operation == "create by runc":
        if shutil.which("runc") is None:
            pytest.skip("runc is not installed")
        if os.getuid():
            pytest.skip("runc needs an id 0 inside, which not every user can give")


@pytest.mark.parametrize("point", ["create.row", "launch.ids", "launch.groups", "launch.launched"])
async def test_no_descriptor_is_left_from_there_on(point: str, world: World) -> None:
    """Not for tidying up either: what could not be undone is known, and can be once there are."""
    id = new_id()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with world.kernel() as kernel:
        arm(point, lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard)))
        try:
            with pytest.raises(ResourceExhaustedError):
                await OPERATIONS["create"].do(kernel, id)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        rows = {row.id for row in (await kernel.list()).records}
        if id in rows:
            await kernel.remove(id)
        await world.check(kernel, set())
        assert await world.remains(id) == []
