"""tools/vm without a machine: its frames, its report, what QEMU is told."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))

from virtual import frames, image, initramfs, machine, results  # noqa: E402

JUNIT = b"""<testsuites><testsuite>
<testcase classname="tests.unit.test_a" name="test_good" time="1.5"/>
<testcase classname="tests.unit.test_a" name="test_bad"><failure message="1 != 2"/></testcase>
<testcase classname="tests.unit.test_a" name="test_out"><skipped message="no root"/></testcase>
<testcase classname="tests.unit.test_b" name="test_broken"><error message="at setup"/></testcase>
</testsuite></testsuites>"""


def test_frames_arrive_as_they_were_sent() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, ours.makefile("rwb", 0) as one, theirs.makefile("rwb", 0) as other:
        for kind, body in ((frames.HELLO, b""), (frames.STDOUT, bytes(range(256)) * 100)):
            frames.send(one, kind, body)
            assert frames.receive(other) == (kind, body)
        one.write(b"\x02\xff\xff\xff\xff")
        with pytest.raises(ValueError, match="a frame of"):
            frames.receive(other)
    ours, theirs = socket.socketpair()
    ours.close()
    with theirs, theirs.makefile("rwb", 0) as other, pytest.raises(EOFError):
        frames.receive(other)


def test_the_page_counts_and_says_why() -> None:
    result = results.ScenarioResult("root", "As root.", results.read_junit(JUNIT), 200)
    assert not result.good
    machine = {"kernel": "6.1", "system": "Debian", "systemd": "252"}
    text = results.section(result, machine, "abc")
    assert "| `tests/unit/test_a.py` | 1 | 1 | 1 |" in text
    assert "| all | 1 | 1 | 2 |" in text
    assert "- `test_bad`: 1 != 2" in text and "- `test_out`: no root" in text
    assert "3.3 minutes" in text and "commit abc" in text


def test_a_page_keeps_the_sections_that_were_not_made_anew() -> None:
    order = ["root", "reboot", "tester"]
    first = results.page("", {"tester": "## tester\n\nold", "root": "## root\n\nold"}, order)
    second = results.page(first, {"root": "## root\n\nnew"}, order)
    third = results.page(second, {"reboot": "## reboot\n\nnew"}, order)
    assert third.startswith(results.HEAD.strip())
    parts = third.split("\n## ")[1:]
    assert [part.split() for part in parts] == [
        ["root", "new"], ["reboot", "new"], ["tester", "old"],
    ]  # fmt: skip


def test_a_scenario_without_results_is_not_good() -> None:
    assert not results.ScenarioResult("root", "").good
    passed = results.Case("a", "b", "passed")
    assert results.ScenarioResult("root", "", [passed]).good
    assert not results.ScenarioResult("root", "", [passed], problem="hung").good


def test_the_machine_has_no_network_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    built = image.Image("bookworm", Path("/image"))
    command = machine.qemu_command(built, Path("/console"), 7, Path("/tree"), None)
    assert "-nodefaults" in command
    assert not [word for word in command if "net" in word or word == "-nic"]
    # Without a disk of its own it must not write to the image that everybody shares.
    (root,) = (word for word in command if word.startswith(f"file={built.disk}"))
    assert "snapshot=on" in root


def test_modules_come_after_what_they_need(tmp_path: Path) -> None:
    needs = {
        "overlay": [],
        "virtio": [],
        "virtio_ring": ["virtio"],
        "virtio_pci": ["virtio_ring", "virtio"],
        "virtio_blk": ["virtio_ring", "virtio"],
        "virtio_console": ["virtio_ring", "virtio"],
    }
    lines = [f"k/{name}.ko: {' '.join(f'k/{n}.ko' for n in of)}" for name, of in needs.items()]
    (tmp_path / "modules.dep").write_text("\n".join(lines))
    order = [path.stem for path in initramfs.needed_modules(tmp_path)]
    assert sorted(order) == sorted(needs)
    for name, of in needs.items():
        assert all(order.index(other) < order.index(name) for other in of)
