"""Paths in merged layers: as the kernel merges them, and never out of them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from agentkernel.errors import AgentKernelError, NotFoundError
from agentkernel.images.accounts import Account, find_account
from agentkernel.images.view import View

from .fake_files import link, put


@pytest.fixture
def layers(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Topmost first."""
    found = tmp_path / "top", tmp_path / "middle", tmp_path / "bottom"
    for path in found:
        path.mkdir()
    return found


def view_of(layers: tuple[Path, ...]) -> View:
    return View([("/", [str(layer) for layer in layers])])


def whiteout(layer: Path, path: str) -> None:
    (layer / path).parent.mkdir(parents=True, exist_ok=True)
    os.mknod(layer / path, stat.S_IFCHR, 0)


def opaque(layer: Path, path: str) -> None:
    (layer / path).mkdir(parents=True, exist_ok=True)
    os.setxattr(layer / path, "user.overlay.opaque", b"y")


def test_the_topmost_counts_and_directories_are_merged(layers: tuple[Path, Path, Path]) -> None:
    top, _, bottom = layers
    put(top, "etc/a", "top")
    put(bottom, "etc/a", "bottom")
    put(bottom, "etc/b", "bottom")
    view = view_of(layers)
    assert view.read("/etc/a") == b"top"
    assert view.read("/etc/b") == b"bottom"
    assert view.names("/etc") == ["a", "b"]
    assert view.host("/") == str(top)


def test_whiteouts_and_opaque_directories_hide(layers: tuple[Path, Path, Path]) -> None:
    top, middle, bottom = layers
    for path in ("gone", "d/below", "e/f/deep", "again"):
        put(bottom, path, "bottom")
    whiteout(middle, "gone")
    whiteout(middle, "again")
    whiteout(middle, "e")
    opaque(middle, "d")
    put(middle, "d/own", "middle")
    put(top, "again", "top")
    view = view_of(layers)
    assert view.host("/gone") is None
    assert view.host("/e/f/deep") is None
    assert view.host("/d/below") is None
    assert view.names("/d") == ["own"]
    assert view.read("/again") == b"top"
    # The control: without the layers that hide them, they are there.
    assert view_of((bottom,)).read("/d/below") == b"bottom"


def test_a_file_in_the_way_of_a_directory_hides_it(layers: tuple[Path, Path, Path]) -> None:
    top, _, bottom = layers
    put(top, "d", "a file")
    put(bottom, "d/below", "bottom")
    assert view_of(layers).host("/d/below") is None
    assert view_of(layers).resolve("/d") == "/d"


def test_a_link_of_a_lower_layer_leads_nowhere(
    layers: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    """/etc is a directory to the guest, while a layer below has a link there: out of everything."""
    top, _, bottom = layers
    put(tmp_path / "outside", "passwd", "secret")
    put(top, "etc/hosts", "x")
    link(bottom, "etc", str(tmp_path / "outside"))
    assert (bottom / "etc/passwd").read_text() == "secret"  # whoever follows it on the host
    assert view_of(layers).host("/etc/passwd") is None
    assert view_of(layers).read("/etc/passwd") == b""


def test_links_are_followed_inside_alone(layers: tuple[Path, Path, Path], tmp_path: Path) -> None:
    top, _, bottom = layers
    put(tmp_path, "secret", "secret")
    link(top, "out", f"../../../../../../..{tmp_path}/secret")
    link(top, "absolute", "/real/file")
    put(bottom, "real/file", "inside")
    link(bottom, "loop", "loop")
    view = view_of(layers)
    assert view.read("/out") == b""
    assert view.read("/absolute") == b"inside"
    assert view.resolve("/loop") is None


def test_what_is_no_file_is_not_read(layers: tuple[Path, Path, Path]) -> None:
    os.mkfifo(layers[0] / "pipe")
    assert view_of(layers).read("/pipe") == b""


def test_where_a_directory_would_be(layers: tuple[Path, Path, Path]) -> None:
    top, _, bottom = layers
    link(top, "app", "/srv/app")
    (bottom / "srv/app").mkdir(parents=True)
    view = view_of(layers)
    assert view.landing("/app/new/one") == "/srv/app/new/one"
    assert view.landing("/no/../srv/./x") == "/srv/x"
    assert view.landing("/") == "/"


PASSWD = (
    "root:x:0:0:root:/root:/bin/sh\nbroken:x:y:z\n\nshort\n"
    "app:x:100:101:an app:/home/app:/bin/sh\nsame:x:100:7::/same:\nhomeless:x:9:9\n"
)
GROUP = "root:x:0:\nstaff:x:50:app\nbad:x:-1:\n"


@pytest.fixture
def image(layers: tuple[Path, Path, Path]) -> View:
    put(layers[2], "etc/passwd", PASSWD)
    put(layers[2], "etc/group", GROUP)
    return view_of(layers)


@pytest.mark.parametrize(
    ("user", "account"),
    [
        ("root", Account(0, 0, "root", "/root")),
        ("app", Account(100, 101, "app", "/home/app")),
        ("100", Account(100, 101, "app", "/home/app")),
        ("app:staff", Account(100, 50, "app", "/home/app")),
        ("app:7", Account(100, 7, "app", "/home/app")),
        ("4321", Account(4321, 0, "4321", "/")),
        ("4321:50", Account(4321, 50, "4321", "/")),
        ("homeless", Account(9, 9, "homeless", "/")),
        ("70000:1", Account(70000, 1, "70000", "/")),
    ],
)
def test_users(image: View, user: str, account: Account) -> None:
    assert find_account(image, user) == account


@pytest.mark.parametrize(
    "user", ["", ":", "a:", ":b", "a:b:c", "nobody", "broken", "app:nogroup", "app:bad", "x" * 300]
)
def test_users_that_are_none(image: View, user: str) -> None:
    with pytest.raises(AgentKernelError) as caught:
        find_account(image, user)
    assert caught.value.hint


def test_root_needs_no_line(layers: tuple[Path, Path, Path]) -> None:
    assert find_account(view_of(layers), "root").uid == 0
    assert find_account(view_of(layers), "0:0").gid == 0
    with pytest.raises(NotFoundError):
        find_account(view_of(layers), "app")
