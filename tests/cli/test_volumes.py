"""`agentkernel volume` and `agentkernel system`, as a user meets them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def cli(daemon_dir: Path, tmp_path: Path) -> Cli:
    def call(*words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "agentkernel", *words],
            input=stdin, capture_output=True, timeout=50, check=False, cwd=tmp_path,
        )  # fmt: skip
        return subprocess.CompletedProcess(
            words, done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode()
        )

    return call


def test_made_used_moved_and_removed(cli: Cli, tmp_path: Path) -> None:
    first = cli("run", "--volume", "notes:/n", "--", "sh", "-c", "echo hello > /n/f")
    assert first.returncode == 0
    assert "the volume notes at /n is new" in first.stderr
    again = cli("run", "--volume", "notes:/n:ro", "--", "sh", "-c", "cat /n/f; touch /n/g")
    assert again.stdout == "hello\n" and "ead-only" in again.stderr and "new" not in again.stderr
    listed = cli("volume", "list").stdout.splitlines()
    assert listed[0].split() == ["NAME", "ID", "USED", "QUOTA", "MODE", "AGE", "SANDBOXES"]
    assert listed[1].split()[0] == "notes"
    exported = cli("volume", "export", "notes", "notes.tar")
    assert exported.returncode == 0 and "written to notes.tar" in exported.stderr
    with tarfile.open(tmp_path / "notes.tar") as tar:
        assert "f" in tar.getnames()
    assert sorted(os.listdir(tmp_path)) == ["notes.tar"], "nothing else is left there"
    data = (tmp_path / "notes.tar").read_bytes()
    assert cli("volume", "import", "--exclusive", "copy", stdin=data).stdout == "copy\n"
    shown = json.loads(cli("volume", "inspect", "--json", "copy").stdout)
    assert shown["exclusive"] and shown["used_files"] == 3 and shown["sandboxes"] == []
    assert "exclusive" in cli("volume", "inspect", "copy").stdout
    taken = cli("volume", "create", "copy", "fresh")
    assert taken.returncode == 125 and "named copy already" in taken.stderr
    removed = cli("volume", "remove", "notes", "copy", "fresh", "never")
    assert removed.returncode == 125 and removed.stdout.split() == ["notes", "copy", "fresh"]
    assert "no volume never" in removed.stderr
    assert json.loads(cli("volume", "list", "--json").stdout) == {"volumes": []}


@pytest.mark.parametrize(
    ("volume", "words"),
    [
        ("notes", "not a volume"), ("notes:/etc", "needs"), ("./here:/x", "path of this machine"),
        ("notes:/a/../b", "plain path"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(cli: Cli, volume: str, words: str) -> None:
    done = cli("run", "--volume", volume, "--", "true")
    assert done.returncode == 125 and words in done.stderr and "hint: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_projects_file_that_names_one_needs_trust(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "agentkernel.toml").write_text('[sandbox]\nvolumes = ["shared:/s"]\n')
    refused = cli("run", "--", "true")
    assert refused.returncode == 125 and "shares files with other sandboxes" in refused.stderr
    assert cli("trust").returncode == 0
    script = "echo x > /s/f; echo y > /o/f; cat /s/f /o/f"
    done = cli("run", "--volume", "other:/o", "--", "sh", "-c", script)
    assert done.stdout == "x\ny\n", done.stderr
    assert cli("volume", "remove", "shared", "other").returncode == 0
    assert cli("trust", "--remove").returncode == 0


def test_what_the_disk_has_and_what_can_go(cli: Cli) -> None:
    assert cli("volume", "create", "loose").returncode == 0
    table = cli("system", "df").stdout
    assert "volumes" in table and "free" in table
    usage = json.loads(cli("system", "df", "--json").stdout)
    assert {part["kind"] for part in usage["parts"]} >= {"sandboxes", "volumes", "layers", "blobs"}
    planned = cli("system", "prune", "--volumes", "--dry-run")
    assert "loose" in planned.stdout and "would be removed" in planned.stdout
    asked = cli("system", "prune", "--volumes")
    assert asked.returncode == 125 and "--yes" in asked.stderr
    assert "loose" in cli("volume", "list").stdout
    done = json.loads(cli("system", "prune", "--volumes", "--yes", "--json").stdout)
    assert ("volumes", "loose") in [(item["kind"], item["name"]) for item in done["items"]]
    assert json.loads(cli("volume", "list", "--json").stdout) == {"volumes": []}
