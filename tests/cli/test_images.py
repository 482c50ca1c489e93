"""`agentkernel image …`: what is printed, where, and with which exit status."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentkernel.cli.layer_bars import LayerBars, size_words
from agentkernel.cli.outcome import say_progress
from agentkernel.client.results import LayerProgress

from ..unit.images.archives.making import Image, oci_archive
from .conftest import Cli, Json

IMAGE = Image(b"cli", created="2026-01-02T03:04:05.123456789Z")
NAME = "small:cli"


@pytest.fixture
def loaded(cli: Cli) -> Iterator[str]:
    cli("image", "prune", "--all")  # of other tests of this daemon
    done = cli("image", "load", input=oci_archive(IMAGE, NAME))
    assert done.returncode == 0, done
    assert done.stdout.decode() == f"{NAME}@{IMAGE.digest}\n"
    yield NAME
    cli("image", "prune", "--all")


def test_from_load_to_remove(cli: Cli, ask: Json, loaded: str, tmp_path: Path) -> None:
    lines = cli("image", "list").stdout.decode().splitlines()
    assert lines[0].split() == ["NAME", "DIGEST", "SIZE", "CREATED", "USED", "BY"]
    name, short, *rest = next(line for line in lines if line.startswith(NAME)).split()
    assert (name, short) == (NAME, IMAGE.digest[7:19]) and rest[-1] == "-"
    assert rest[-2].endswith("d")
    shown = cli("image", "inspect", short).stdout.decode()
    assert IMAGE.digest in shown and "unpacked" in shown and "cmd" in shown
    detail = ask("image", "inspect", NAME)
    assert detail["digest"] == IMAGE.digest and detail["created"].startswith("2026")
    assert cli("image", "tag", NAME, "other:1").stdout == b"other:1\n"
    target = tmp_path / "saved.tar"
    assert cli("image", "save", "-o", str(target), NAME).stdout == b""
    assert cli("image", "save", NAME).stdout == target.read_bytes()
    assert ask("image", "save", "-o", str(target), NAME)["bytes"] == target.stat().st_size
    done = cli("image", "remove", NAME, "absent:1")
    assert (done.returncode, done.stdout) == (125, f"{NAME}\n".encode())
    assert b"no image 'absent:1' is here" in done.stderr and b"hint: " in done.stderr
    done = cli("image", "load", "--json", str(target))
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["event"] for line in told][-1] == "image"
    assert told[0]["event"] == "progress" and told[-1]["digest"] == IMAGE.digest
    assert ask("image", "remove", "--force", IMAGE.digest)["images"][0]["deleted"] == [IMAGE.digest]
    assert ask("image", "prune")["blobs"] == 0


def test_progress_is_lines_where_there_is_no_terminal(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "image.tar"
    path.write_bytes(oci_archive(IMAGE, NAME))
    done = cli("image", "load", str(path))
    assert done.stderr.decode().splitlines()[-1].endswith(": ready")
    cli("image", "remove", NAME)
    assert cli("image", "load", "--quiet", str(path)).stderr == b""
    cli("image", "prune", "--all")


def test_a_sandbox_of_it(cli: Cli, ask: Json, loaded: str) -> None:
    made = ask("sandbox", "create", "of-image", "--image", loaded)
    assert made["image"].endswith(f"small:cli@{IMAGE.digest}")
    done = cli("image", "remove", loaded)
    assert done.returncode == 125 and b"sandboxes were made from it: of-image" in done.stderr
    assert b"--force" in done.stderr
    assert cli("image", "list").stdout.decode().splitlines()[1].endswith("of-image")
    assert cli("sandbox", "remove", "of-image").returncode == 0
    done = cli("run", "--image", "absent:1", "--pull", "never", "--", "true")
    assert done.returncode == 125 and b"agentkernel image pull absent:1" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("load", "/nonexistent.tar"), "/nonexistent.tar: No such file"),
        (("load", "/usr"), "no OCI layout"),
        (("load",), "can't be read"),
        (("save", "--json", "x:1"), "can't both go to stdout"),
        (("save", "-o", "/nonexistent/x.tar", "x:1"), "/nonexistent/x.tar"),
        (("import", "/nonexistent", "x:1"), "no directory of this machine"),
        (("import", "/usr/share/doc", "Up:1"), "no name of an image"),
        (("pull", "host@x"), "no name of an image"),
        (("pull", "--platform", "here", "x:1"), "no platform"),
        (("inspect", "absent:1"), "no image 'absent:1' is here"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(cli: Cli, arguments: tuple[str, ...], words: str) -> None:
    done = cli("image", *arguments)
    assert done.returncode == 125 and words in (done.stdout + done.stderr).decode(), done
    assert b"Traceback" not in done.stderr


def test_an_import(cli: Cli, ask: Json, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "word").write_text("here")
    done = cli("image", "import", "-q", "--cmd", "sh", "-e", "A=b", "./root", "in:1", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.startswith(b"in:1@sha256:"), done
    assert ask("image", "inspect", "in:1")["config"]["cmd"] == ["sh"]
    assert cli("image", "remove", "in:1").returncode == 0


def test_names_are_completed(cli: Cli, loaded: str) -> None:
    for words in (("image", "inspect", "sm"), ("run", "--image", "sm")):
        done = cli("completion", "bash", "--words", *words)
        assert done.stdout.decode().splitlines()[0].split("\t")[0] == NAME


def test_what_is_told_again_takes_the_place_of_what_was(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal: Any = _Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    for text in ("fetching a:1: 0 of 2 MiB", "fetching a:1: 1 of 2 MiB", "unpacking a:1"):
        say_progress(text)
    assert terminal.text.count("\x1b[1A") == 1
    assert terminal.text.splitlines()[-1] == "agentkernel: unpacking a:1 …"


class _Terminal:
    def __init__(self) -> None:
        self.text = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass


def test_bars_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal: Any = _Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr("agentkernel.cli.layer_bars._SECONDS", 0.0)
    with LayerBars() as bars:
        bars(LayerProgress("sha256:" + "a" * 64, "fetching", 512, 1024))
        assert (
            "aaaaaaaaaaaa  fetching  [############------------] 512 B of 1.0 KiB" in terminal.text
        )
        bars(LayerProgress("sha256:" + "b" * 64, "waiting", 0, 1 << 31))
        assert terminal.text.count("\x1b[1A") == 1 and "bbbbbbbbbbbb  waiting" in terminal.text
        for at in range(100):
            bars(LayerProgress(f"sha256:{at:064}", "waiting", 0, 1))
        assert "layers more" in terminal.text
    assert terminal.text.endswith("\x1b[J")
    assert [size_words(size) for size in (0, 2048, 5 << 20, 3 << 30)] == [
        "0 B", "2.0 KiB", "5.0 MiB", "3.00 GiB",
    ]  # fmt: skip
