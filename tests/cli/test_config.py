"""Configuration files as a user meets them: a cloned project, its file, and what is let in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Cli

Project = Callable[[str], Path]


@pytest.fixture
def clone(tmp_path: Path, daemon_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Writes the file of a cloned project and goes there; the user's own files are none."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "clone" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "clone")
    # The tests of a module share a state directory, and so its record of trust.
    (daemon_dir / "trust.json").unlink(missing_ok=True)

    def write(text: str) -> Path:
        path = tmp_path / "clone" / "agentkernel.toml"
        path.write_text(text)
        return path

    return write


def error_of(done: subprocess.CompletedProcess[bytes]) -> Any:
    assert done.returncode == 125, done
    return json.loads(done.stdout)["error"]


def test_the_file_is_what_the_sandbox_is(cli: Cli, clone: Project) -> None:
    clone('[limits]\npids = 33\nnofile = 99\n[env]\nA = "file"\nB = "file"\n')
    script = "echo $A $B; ulimit -n"
    assert cli("run", "--", "sh", "-c", script).stdout == b"file file\n99\n"
    assert cli("run", "-e", "A=flag", "--nofile", "55", "--", "sh", "-c", script).stdout == (
        b"flag file\n55\n"
    )
    assert cli("run", "-c", "none", "--", "sh", "-c", "echo $A").stdout == b"\n"
    lines = json.loads(cli("info", "--json").stdout)["effective"]
    assert {line["what"]: line["value"] for line in lines}["pids"] == "33"


def test_the_timeout_of_the_file(cli: Cli, clone: Project) -> None:
    clone('[limits]\ntimeout = "200ms"\n')
    assert cli("run", "--", "sleep", "30").returncode == 124
    assert cli("run", "--timeout", "30", "--", "sleep", "0.4").returncode == 0


def test_what_a_kept_sandbox_remembers(cli: Cli, clone: Project) -> None:
    path = clone(
        '[sandbox]\nname = "of-file"\nttl = "1h"\n[limits]\ntimeout = "300ms"\noutput = "4k"\n'
        '[labels]\nteam = "web"\n[env]\nSECRET = "hush"\n'
    )
    made = json.loads(cli("sandbox", "create", "--label", "more=1", "--json").stdout)
    try:
        assert (made["name"], made["ttl_seconds"]) == ("of-file", 3600)
        assert made["labels"] == {"team": "web", "more": "1"}
        (source,) = made["config"]["files"]
        assert (source["path"], source["kind"], source["trusted"]) == (str(path), "project", False)
        assert made["config"]["values"]["limits.timeout"] == {"value": 0.3, "from": "project"}
        assert made["config"]["env"] == {"SECRET": "project"}
        assert b"hush" not in cli("sandbox", "info", "of-file", "--json").stdout
        shown = cli("sandbox", "info", "of-file").stdout.decode()
        assert f"{path}  sha256 {source['sha256'][:16]}" in shown
        assert cli("exec", "of-file", "--", "sleep", "30").returncode == 124
        assert cli("exec", "--timeout", "30", "of-file", "--", "sleep", "0.5").returncode == 0
        result = json.loads(
            cli("exec", "--json", "of-file", "--", "head", "-c", "9000", "/dev/zero").stdout
        )
        assert (result["dropped_bytes"], result["truncated"]) == (9000 - 4096, True)
    finally:
        cli("sandbox", "remove", "of-file")


def test_untrusted_widening_is_refused_line_by_line(cli: Cli, clone: Project) -> None:
    path = clone('[sandbox]\nprofile = "permissive"\n\n[limits]\npids = 9999\n')
    error = error_of(cli("run", "--json", "--", "true"))
    assert error["code"] == "policy_denied"
    assert "line 2: sandbox.profile = permissive" in error["message"]
    assert "line 5: limits.pids = 9999" in error["message"]
    assert f"agentkernel trust {path}" in error["hint"]
    assert [entry["line"] for entry in error["details"]["widens"]] == [2, 5]
    assert error_of(cli("sandbox", "create", "no", "--json"))["code"] == "policy_denied"
    assert error_of(cli("info", "--json"))["code"] == "policy_denied"
    assert cli("run", "-c", "none", "--", "true").returncode == 0
    assert cli("run", "--profile", "moderate", "--pids", "64", "--", "true").returncode == 0

    told = cli("trust", str(path))
    assert told.returncode == 0 and b"line 2: sandbox.profile" in told.stdout
    assert cli("run", "--", "true").returncode == 0, "control: with trust it runs"
    path.write_text(path.read_text() + "\n")
    assert error_of(cli("run", "--json", "--", "true"))["code"] == "policy_denied"


def test_the_hosts_environment_is_read_for_the_trusted_alone(
    cli: Cli, clone: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SECRET", "hush")
    path = clone('[env]\nA = { from = "MY_SECRET" }\nB = "$MY_SECRET ${MY_SECRET}"\n')
    done = cli("run", "--", "sh", "-c", 'echo "$A|$B"')
    assert done.returncode == 125 and b"hush" not in done.stdout + done.stderr
    assert cli("run", "-e", "A=x", "--", "sh", "-c", 'echo "$A|$B"').stdout == (
        b"x|$MY_SECRET ${MY_SECRET}\n"
    )
    assert cli("trust", str(path)).returncode == 0
    assert cli("run", "--", "sh", "-c", 'echo "$A|$B"').stdout == (
        b"hush|$MY_SECRET ${MY_SECRET}\n"
    ), "control: with trust it is read"


def test_an_image_outside_of_the_project(cli: Cli, clone: Project, tmp_path: Path) -> None:
    for place in (tmp_path / "outside", tmp_path / "clone" / "inside"):
        for name in ("proc", "dev", "tmp", "run", "sys", "etc", "usr/bin"):
            (place / name).mkdir(parents=True)
    path = clone('[sandbox]\nimage = "../outside"\n')
    assert error_of(cli("info", "--json"))["code"] == "policy_denied"
    clone('[sandbox]\nimage = "./inside"\n')
    shown = cli("info")
    assert shown.returncode == 0 and str(tmp_path / "clone/inside").encode() in shown.stdout
    (tmp_path / "clone" / "inside").rename(tmp_path / "clone" / "was")
    (tmp_path / "clone" / "inside").symlink_to(tmp_path / "outside")
    assert cli("trust", str(path)).returncode == 125, "it can't even be judged"
    assert b"through a link" in cli("info").stderr


def test_trust_is_listed_and_taken_back(cli: Cli, clone: Project) -> None:
    path = clone("[limits]\npids = 9999\n")
    assert json.loads(cli("trust", "--json").stdout)["file"] == str(path)
    (entry,) = json.loads(cli("trust", "--list", "--json").stdout)["files"]
    assert (entry["file"], entry["state"]) == (str(path), "trusted")
    path.write_text("[limits]\npids = 99999\n")
    assert b"changed" in cli("trust", "--list").stdout
    path.unlink()
    assert b"gone" in cli("trust", "--list").stdout
    assert cli("trust", "--remove", str(path)).returncode == 0
    assert cli("trust", "--remove", str(path)).returncode == 125
    assert json.loads(cli("trust", "--list", "--json").stdout) == {"files": []}


def test_show_says_where_each_value_comes_from(cli: Cli, clone: Project, tmp_path: Path) -> None:
    path = clone("[limits]\npids = 40\n")
    assert cli("config", "set", "limits.nofile", "77").returncode == 0
    assert cli("config", "set", "sandbox.profile", "restrictive").returncode == 0
    rows = {
        line.split()[0]: line.split()[1:]
        for line in cli("config", "show").stdout.decode().splitlines()
        if line
    }
    user = tmp_path / "xdg/agentkernel/config.toml"
    assert rows["limits.pids"] == ["40", f"{path}:2"]
    assert rows["limits.nofile"] == ["77", f"{user}:2"]
    assert rows["limits.memory"] == ["512M", "profile", "restrictive"]
    assert cli("config", "get", "limits.memory").stdout == b"512M\n"
    assert json.loads(cli("config", "get", "limits.pids", "--json").stdout) == {
        "value": 40, "from": "project",
    }  # fmt: skip
    assert cli("run", "--", "sh", "-c", "ulimit -n").stdout == b"77\n"
    assert cli("config", "unset", "limits.nofile").returncode == 0
    assert cli("config", "get", "limits.nofile").stdout == b"1024\n"
    assert b"did you mean limits.pids" in cli("config", "get", "limit.pids").stderr
    assert cli("config", "path").stdout.split()[1].decode() == str(path)


def test_check_tells_by_its_status(cli: Cli, clone: Project) -> None:
    path = clone("[limits]\npids = 40\n")
    assert cli("config", "check").returncode == 0
    clone("[limits]\npids = 9999\n")
    assert cli("config", "check").returncode == 1
    cli("trust", str(path))
    assert cli("config", "check").returncode == 0
    clone("[limits]\nmemorry = 5\n")
    done = cli("config", "check")
    assert done.returncode == 125
    assert f"{path}:2: 'limits.memorry' is not a key".encode() in done.stderr
    assert b"did you mean memory?" in done.stderr


def test_a_hostile_file_prints_nothing_raw(cli: Cli, clone: Project) -> None:
    clone('[sandbox]\n"\\u001b]0;pwned" = 1\n')
    done = cli("run", "--", "true")
    assert done.returncode == 125 and b"\x1b" not in done.stderr
    clone('[sandbox]\nimage = "/\\u001b[2J"\n')
    done = cli("run", "--", "true")
    assert done.returncode == 125 and b"\x1b" not in done.stderr


def test_without_a_file_nothing_of_it_is_loaded(daemon_dir: Path, tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from agentkernel.cli.main import main\n"
        "code = main(['run', '--', 'true'])\n"
        "print(code, [m for m in sys.modules if m == 'tomllib' or m.startswith("
        "('agentkernel.config.', 'agentkernel.cli.m'))])\n"
    )
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=50, check=True,
    )  # fmt: skip
    assert done.stdout == "0 ['agentkernel.cli.main', 'agentkernel.config.finding']\n"


def test_the_daemon_obeys_the_users_file(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTKERNEL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.chdir(tmp_path)
    assert cli("config", "set", "daemon.max_sandboxes", "1").returncode == 0
    try:
        assert cli("sandbox", "create", "one").returncode == 0
        error = error_of(cli("sandbox", "create", "two", "--json"))
        assert error["code"] == "resource_exhausted"
        assert "daemon.max_sandboxes" in error["hint"]
        cli("config", "set", "daemon.max_sandboxes", "2")
        assert cli("daemon", "restart").returncode == 0
        assert cli("sandbox", "create", "two").returncode == 0
    finally:
        cli("sandbox", "remove", "--force", "one", "two")
        cli("daemon", "stop")
    (tmp_path / "xdg/agentkernel/config.toml").write_text("[daemon]\nmax = 1\n")
    error = error_of(cli("sandbox", "list", "--json"))
    assert error["code"] == "invalid_input" and "config.toml:2" in error["message"]
