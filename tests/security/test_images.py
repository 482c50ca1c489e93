"""Images that lie: links where directories should be, devices, sockets, setuid programs.

Whatever an image holds, launching it either fails with a typed error or is harmless: nothing of the
host is written, read, or made reachable. The control of every lie is the same image without it.
"""

from __future__ import annotations

import os
import secrets
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from agentkernel.errors import AgentKernelError, InvalidInputError, LaunchError
from agentkernel.kernel.runs import Runs
from agentkernel.kernel.spec import SandboxSpec, expand

from .probes import compile_static

# A static program for images that hold nothing else: opens, connects, or tells who it is.
TOOL = r"""
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
int main(int argc, char **argv) {
    for (int i = 1; i + 1 < argc; i += 2) {
        int result = -1;
        char data[128] = "";
        if (argv[i][0] == 'r') {
            result = open(argv[i + 1], O_RDONLY | O_NONBLOCK);
            if (result >= 0) result = read(result, data, sizeof data - 1) < 0 ? -1 : 0;
        } else if (argv[i][0] == 'w') {
            result = open(argv[i + 1], O_WRONLY | O_CREAT, 0644);
            if (result >= 0) result = write(result, "guest", 5) == 5 ? 0 : -1;
        } else if (argv[i][0] == 'c') {
            struct sockaddr_un a = {.sun_family = AF_UNIX};
            strncpy(a.sun_path, argv[i + 1], sizeof a.sun_path - 1);
            int fd = socket(AF_UNIX, SOCK_STREAM, 0);
            result = connect(fd, (struct sockaddr *)&a, sizeof a);
        } else {
            printf("id %d %d\n", (int)getuid(), (int)geteuid());
            continue;
        }
        printf("%s %s\n", result < 0 ? strerror(errno) : "ok", data);
    }
    return 0;
}
"""


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_static(TOOL, tmp_path_factory.mktemp("tool") / "tool")


class Target:
    """A directory of the host that a lying image points to, and what it looked like before."""

    def __init__(self, path: Path) -> None:
        self.secret = secrets.token_hex(16)
        self.path = path
        path.mkdir()
        (path / "file").write_text(self.secret)
        for name in ("hostname", "hosts", "resolv.conf", "passwd"):
            (path / name).write_text(self.secret)
        self.before = self._look()

    def _look(self) -> dict[str, tuple[int, int, bytes]]:
        found = {}
        for place in [self.path, *sorted(self.path.rglob("*"))]:
            info = place.lstat()
            content = place.read_bytes() if place.is_file() else b""
            found[str(place)] = (info.st_mode, info.st_mtime_ns, content)
        return found

    def untouched(self) -> bool:
        return self._look() == self.before


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return Target(tmp_path / "target")


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """The smallest honest image: what makes a directory one, and nothing else."""
    path = tmp_path / "image"
    for name in ("bin", "etc", "proc", "dev", "sys", "tmp", "run", "root"):
        (path / name).mkdir(parents=True)
    (path / "bin" / "sh").write_text("no program")
    return path


async def launch(kernel: Runs, image: Path) -> str:
    """`ok` if a sandbox of the image came up and answered, else the code of the typed error."""
    try:
        sandbox = await kernel.backends["native"].create(
            expand(SandboxSpec(image=str(image)), owned=True)
        )
    except AgentKernelError as error:
        assert error.hint or isinstance(error, LaunchError), error
        return error.code
    try:
        await sandbox.channel.call("ping", seconds=5.0)
    finally:
        await sandbox.destroy()
    return "ok"


def replace_by_link(path: Path, to: str) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
    path.symlink_to(to)


async def test_an_honest_image_works(box_kernel: Runs, image: Path) -> None:
    assert await launch(box_kernel, image) == "ok"


@pytest.mark.parametrize("how", ["absolute", "relative", "via proc", "to the root"])
@pytest.mark.parametrize("name", ["proc", "dev", "etc", "tmp", "run", "sys"])
async def test_links_instead_of_directories(
    box_kernel: Runs, image: Path, target: Target, name: str, how: str
) -> None:
    """CVE-2021-30465 and its like: a mount or a file lands where a link of the image leads."""
    leads = {
        "absolute": str(target.path),
        "relative": "../" * 30 + str(target.path).lstrip("/"),
        "via proc": f"/proc/self/root{target.path}",
        "to the root": "/",
    }
    replace_by_link(image / name, leads[how])
    if how != "to the root":
        assert (image / name / "file").read_text() == target.secret or how == "relative", "control"
    before = _mounts()
    assert await launch(box_kernel, image) in ("ok", "launch_failed")
    assert target.untouched()
    assert _mounts() == before, "something was mounted on the host"


def _mounts() -> list[str]:
    with open("/proc/self/mountinfo") as file:
        return [line.split()[4] for line in file]


@pytest.mark.parametrize("name", ["hostname", "hosts", "resolv.conf", "passwd", "group"])
async def test_links_instead_of_files(
    box_kernel: Runs, image: Path, target: Target, name: str
) -> None:
    """A launcher that writes /etc/hostname through the image's link overwrites the host's file."""
    (image / "etc" / name).symlink_to(target.path / name)
    assert await launch(box_kernel, image) == "ok"
    assert target.untouched()
    if (target.path / name).exists():
        (image / "etc" / name).write_text("control")
        assert not target.untouched(), "control: a naive write goes through the link"


async def test_files_instead_of_directories(box_kernel: Runs, image: Path) -> None:
    for name in ("proc", "dev", "tmp"):
        (image / name).rmdir()
        (image / name).write_text("not a directory")
        assert await launch(box_kernel, image) == "launch_failed"
        (image / name).unlink()
        (image / name).mkdir()
    assert await launch(box_kernel, image) == "ok", "control"


async def test_fifo_and_socket_do_not_hang(box_kernel: Runs, image: Path) -> None:
    os.mkfifo(image / "etc" / "hostname")
    assert await launch(box_kernel, image) in ("ok", "launch_failed")
    assert stat.S_ISFIFO((image / "etc" / "hostname").stat().st_mode), "it was replaced on the host"


def install(tool: Path, image: Path, name: str, mode: int) -> None:
    program = image / "bin" / name
    program.write_bytes(tool.read_bytes())
    program.chmod(mode)


async def run_tool(kernel: Runs, image: Path, tool: Path, *words: str) -> list[str]:
    install(tool, image, "tool", 0o755)
    sandbox = await kernel.backends["native"].create(
        expand(SandboxSpec(image=str(image)), owned=True)
    )
    try:
        result = await kernel.run(sandbox, ["/bin/tool", *words])
        assert result.status.exit_code == 0, result.status
    finally:
        await sandbox.destroy()
    return result.stdout.decode().splitlines()


async def test_links_out_lead_to_the_image(
    box_kernel: Runs, image: Path, target: Target, tool: Path
) -> None:
    """Inside, a link's target is a path of the sandbox, absolute or climbing."""
    (image / "out").symlink_to(target.path / "file")
    (image / "up").symlink_to("../" * 30 + str(target.path / "file").lstrip("/"))
    (image / "proc-root").symlink_to(f"/proc/1/root{target.path}/file")
    (image / "real").write_text(target.secret)
    words = ["r", "/out", "r", "/up", "r", "/proc-root", "w", "/out", "r", "/real"]
    lines = await run_tool(box_kernel, image, tool, *words)
    assert target.secret not in "".join(lines[:4])
    assert target.untouched()
    assert lines[4] == f"ok {target.secret}", "control"


async def test_sockets_in_an_image_do_not_connect(
    box_kernel: Runs, image: Path, tool: Path
) -> None:
    """A listening socket of the host inside the image's directory: no way through the overlay."""
    with socket.socket(socket.AF_UNIX) as server:
        fd = os.open(image, os.O_PATH | os.O_DIRECTORY)
        try:
            server.bind(f"/proc/self/fd/{fd}/s")
            server.listen()
            with socket.socket(socket.AF_UNIX) as control:
                control.connect(f"/proc/self/fd/{fd}/s")
        finally:
            os.close(fd)
        lines = await run_tool(box_kernel, image, tool, "c", "/s")
    assert not lines[0].startswith("ok"), lines


@pytest.mark.skipif(os.getuid() != 0, reason="only root can put device nodes into a directory")
async def test_devices_in_an_image_do_not_open(box_kernel: Runs, image: Path, tool: Path) -> None:
    os.mknod(image / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    os.close(os.open(image / "zero", os.O_RDONLY))  # control: on the host it opens
    lines = await run_tool(box_kernel, image, tool, "r", "/zero", "r", "/dev/zero")
    assert not lines[0].startswith("ok"), lines
    assert lines[1].startswith("ok"), "control: the sandbox's own device opens"


async def test_setuid_in_an_image_is_ignored(box_kernel: Runs, image: Path, tool: Path) -> None:
    install(tool, image, "taken", 0o6755)
    sandbox = await box_kernel.backends["native"].create(
        expand(SandboxSpec(image=str(image), user="user"), owned=True)
    )
    try:
        result = await box_kernel.run(sandbox, ["/bin/taken", "i", "x"])
    finally:
        await sandbox.destroy()
    assert result.stdout == b"id 1000 1000\n", result


@pytest.mark.parametrize(
    "choose",
    [
        lambda image, state: "/",
        lambda image, state: "/usr/../",
        lambda image, state: str(state),
        lambda image, state: str(state.parent),
        lambda image, state: str(Path.home()),
        lambda image, state: "~",
        lambda image, state: str(image / "link-to-root"),
        lambda image, state: str(image / "bin" / "sh"),
        lambda image, state: str(image / "absent"),
        lambda image, state: str(image / "etc"),
        lambda image, state: "/dev/null",
        lambda image, state: "/proc/self/root",
        lambda image, state: "",
        lambda image, state: "../" * 40,
    ],
)
async def test_directories_that_are_no_image(
    box_kernel: Runs,
    image: Path,
    security_state: Path,
    choose: Callable[[Path, Path], str],
) -> None:
    """OpenSandbox#750: any host path could be mounted. Here / and what holds secrets is refused."""
    (image / "link-to-root").symlink_to("/")
    with pytest.raises(AgentKernelError) as caught:
        await box_kernel.create(SandboxSpec(image=choose(image, security_state)))
    assert caught.value.code in ("invalid_input", "not_found"), caught.value
    if isinstance(caught.value, InvalidInputError):
        assert caught.value.hint


async def test_the_image_itself_is_never_written(box_kernel: Runs, image: Path, tool: Path) -> None:
    (image / "data").write_text("original")
    words = ["w", "/data", "w", "/etc/new", "w", "/bin/sh", "r", "/data"]
    lines = await run_tool(box_kernel, image, tool, *words)
    assert lines[0].startswith("ok"), "the attack itself did not work"
    assert lines[3].startswith("ok guest")
    assert (image / "data").read_text() == "original"
    assert not (image / "etc" / "new").exists()
    assert (image / "bin" / "sh").read_text() == "no program"
