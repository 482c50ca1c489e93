"""What this machine has, and which image a command gets when nobody names one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agentkernel.detection import Choice, Detection, choose, detect
from agentkernel.detection.files import GivenFiles
from agentkernel.detection.host import Machine
from agentkernel.errors import NotFoundError

Place = Callable[[str, str], Path]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Puts a program that says something below the test's own /usr/bin."""

    def make(name: str, script: str) -> Path:
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n{script}\n')
        path.chmod(0o755)
        return path

    return make


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine({"PATH": str(tmp_path / "bin")}, memory=str(tmp_path / "tools.json"))


def wanted(command: str, **files: str) -> Detection:
    project = {name.replace("_", "."): text.encode() for name, text in files.items()}
    found = detect(command.split(), files=GivenFiles(project))
    assert found is not None
    return found


def chosen(
    found: Detection, machine: Machine, *, stored: bool = False, reachable: bool = False
) -> Choice:
    asked: list[str] = []

    def in_reach(reference: str) -> bool:
        asked.append(reference)
        return reachable

    choice = choose(found, machine, is_stored=lambda reference: stored, is_reachable=in_reach)
    # Nobody is asked over a network for what is here.
    assert not (asked and (stored or choice.plain and found.bundled))
    return choice


def test_what_is_here_and_fits(place: Place, machine: Machine, tmp_path: Path) -> None:
    place("python3", "echo Python 3.12.4")
    choice = chosen(wanted("python3 x", **{"_python-version": "3.12"}), machine, stored=True)
    assert (choice.image, choice.plain, choice.reason) == ("host", True, "this machine has 3.12.4")
    chosen(wanted("python3 x", **{"_python-version": "3.12"}), machine)
    assert (tmp_path / "asked").read_text() == "--version\n", "it was asked twice"
    # Where nobody asks for a version nothing is run at all.
    place("node", "exit 1")
    choice = chosen(wanted("node x.js"), machine)
    assert (choice.image, choice.plain) == ("host", True)
    assert (tmp_path / "asked").read_text() == "--version\n"


def test_a_program_that_was_replaced_is_asked_again(
    place: Place, machine: Machine, tmp_path: Path
) -> None:
    path = place("python3", "echo Python 3.12.4")
    found = wanted("python3 x", **{"_python-version": "3.12"})
    assert chosen(found, machine).plain
    path.unlink()
    place("python3", "echo Python 3.9.10 is another one")
    assert chosen(found, machine, stored=True).image == "python:3.12-slim"
    assert len(json.loads((tmp_path / "tools.json").read_text())) == 1


def test_a_version_that_differs(place: Place, machine: Machine) -> None:
    place("python3", "echo Python 3.11.7")
    found = wanted("python3 x", **{"_python-version": "3.12"})
    for having in ({"stored": True}, {"reachable": True}):
        choice = chosen(found, machine, **having)
        assert (choice.image, choice.plain) == ("python:3.12-slim", False)
        assert choice.why == (
            "python3 runs Python, and .python-version asks for 3.12; this machine has 3.11.7"
        )
    choice = chosen(found, machine)
    assert (choice.image, choice.plain) == ("host", False)
    assert choice.reason == "this machine has 3.11.7, and python:3.12-slim is not in reach"


def test_what_is_not_here(place: Place, machine: Machine) -> None:
    found = wanted("ruby x.rb")
    choice = chosen(found, machine, reachable=True)
    assert (choice.image, choice.reason) == ("ruby:3.4-slim", "this machine has no ruby")
    with pytest.raises(NotFoundError, match="ruby is not on this machine") as raised:
        chosen(found, machine)
    assert "image pull ruby:3.4-slim" in str(raised.value.hint)
    assert raised.value.details["missing"] == ["ruby"]
    with pytest.raises(NotFoundError, match="no official image"):
        chosen(wanted("lua x.lua"), machine, stored=True, reachable=True)


def test_a_shell_works_without_the_project_s_runtime(place: Place, machine: Machine) -> None:
    place("sh", "exit 0")
    found = wanted("sh", **{"deno_json": "{}"})
    choice = chosen(found, machine)
    assert (choice.image, choice.plain) == ("host", False)
    assert choice.reason.startswith("this machine has no deno")
    assert chosen(found, machine, stored=True).image == "denoland/deno:latest"


def test_programs_that_no_image_has(place: Place, machine: Machine) -> None:
    """They can't be started, which is said as of any other program."""
    choice = chosen(wanted("pytest"), machine, stored=True)
    assert (choice.image, choice.plain) == ("host", True)
    choice = chosen(wanted("frobnicate", **{"pyproject_toml": ""}), machine, stored=True)
    assert choice.image == "host"
    dockerfile = wanted("frobnicate", Dockerfile="FROM python:3.12")
    assert chosen(dockerfile, machine, stored=True).image == "python:3.12"


def test_a_version_in_the_command_s_name(place: Place, machine: Machine, tmp_path: Path) -> None:
    place("python3.12", "exit 1")
    assert chosen(wanted("python3.12 x"), machine).plain
    assert not (tmp_path / "asked").exists()


def test_versions_of_a_manager_are_read(tmp_path: Path) -> None:
    """pyenv's shims would obey the project's files; nothing is run, a variable chooses."""
    shims = tmp_path / "pyenv" / "shims"
    shims.mkdir(parents=True)
    (shims / "python3").write_text(f"#!/bin/sh\n: > {tmp_path}/ran\n")
    (shims / "python3").chmod(0o755)
    for version in ("3.9.1", "3.11.7", "3.12.1", "odd"):
        (tmp_path / "pyenv" / "versions" / version).mkdir(parents=True)
    (tmp_path / "pyenv" / "version").write_text("3.11.7\n3.9.1\n")
    machine = Machine({"PATH": str(shims)})
    for wish, version in (("3.12", "3.12.1"), (">=3.9", "3.11.7"), ("3.9", "3.9.1")):
        choice = chosen(
            wanted("python3", pyproject_toml=f'[project]\nrequires-python="{wish}"'), machine
        )
        assert (choice.image, choice.environment) == ("host", {"PYENV_VERSION": version})
    choice = chosen(wanted("python3", **{"_python-version": "3.8"}), machine)
    assert (choice.plain, choice.environment) == (False, {"PYENV_VERSION": "3.11.7"})
    assert "this machine has 3.11.7" in choice.reason
    assert not (tmp_path / "ran").exists()


def test_toolchains_of_rustup(place: Place, tmp_path: Path) -> None:
    place("cargo", "echo cargo 1.70.0")
    place("rustup", "exit 1")
    (tmp_path / "rustup" / "toolchains" / "1.80.1-x86_64-unknown-linux-gnu").mkdir(parents=True)
    machine = Machine({"PATH": str(tmp_path / "bin"), "RUSTUP_HOME": str(tmp_path / "rustup")})
    choice = chosen(wanted("cargo b", **{"rust-toolchain": "1.80"}), machine)
    assert (choice.image, choice.environment) == ("host", {"RUSTUP_TOOLCHAIN": "1.80.1"})
    assert chosen(wanted("cargo b", **{"rust-toolchain": "1.70"}), machine).environment == {}


def test_nothing_of_the_project_is_run(place: Place, tmp_path: Path) -> None:
    """The control runs the same program where it lies outside."""
    place("python3", f": > {tmp_path}/ran; echo Python 3.12.4")
    found = wanted("python3", **{"_python-version": "3.12"})
    inside = Machine({"PATH": str(tmp_path / "bin")}, projects=[str(tmp_path)])
    assert chosen(found, inside).plain
    assert not (tmp_path / "ran").exists()
    assert chosen(found, Machine({"PATH": str(tmp_path / "bin")})).plain
    assert (tmp_path / "ran").exists()


def test_the_project_s_place_and_the_caller_s_variables_stay_outside(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place("go", f"pwd > {tmp_path}/where; env > {tmp_path}/env; echo go version go1.22.1")
    monkeypatch.chdir(tmp_path)
    machine = Machine({"PATH": f"{tmp_path}/bin:/usr/bin", "SECRET": "x", "GOFLAGS": "-toolexec=y"})
    assert chosen(wanted("go test", **{"go_mod": "go 1.22"}), machine).plain
    assert (tmp_path / "where").read_text() == "/\n"
    environment = (tmp_path / "env").read_text()
    assert "GOTOOLCHAIN=local" in environment
    assert "SECRET" not in environment and "GOFLAGS" not in environment


@pytest.mark.parametrize("script", ["exit 1", "echo nothing", "kill -9 $$", "exec sleep 60"])
def test_programs_that_do_not_tell(
    place: Place, machine: Machine, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their being there has to do."""
    monkeypatch.setattr("agentkernel.detection.host.ASK_SECONDS", 0.2)
    place("python3", script)
    assert chosen(wanted("python3", **{"_python-version": "3.12"}), machine).plain


def test_relative_places_do_not_count(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place("ruby", "echo ruby 3.4.0")
    monkeypatch.chdir(tmp_path)
    for path in ("bin", "./bin", "", ":"):
        with pytest.raises(NotFoundError):
            chosen(wanted("ruby"), Machine({"PATH": path}))
    assert chosen(wanted("ruby"), Machine({"PATH": f"{tmp_path}/bin"})).plain


@pytest.mark.parametrize("content", ["", "[1]", "{", '{"x": [1]}', "\0", "[" * 5000])
def test_a_damaged_memory(place: Place, machine: Machine, tmp_path: Path, content: str) -> None:
    (tmp_path / "tools.json").write_text(content)
    place("python3", "echo Python 3.12.4")
    assert chosen(wanted("python3", **{"_python-version": "3.12"}), machine).plain
    assert "3.12.4" in (tmp_path / "tools.json").read_text()
    assert os.stat(tmp_path / "tools.json").st_mode & 0o777 in (0o600, 0o644)


def test_what_the_image_would_not_show(place: Place, tmp_path: Path) -> None:
    place("ruby", "echo ruby 3.4.0")
    hidden = Machine({"PATH": f"{tmp_path}/bin"}, visible=lambda path: False)
    assert chosen(wanted("ruby"), hidden, stored=True).image == "ruby:3.4-slim"
