"""What a project's file may do unasked: narrow. Each rule has a case that widens and one that
does not.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from agentkernel.config import widening
from agentkernel.config.resolving import expand_env, network_body, resolve
from agentkernel.config.schema import KEYS, PROFILES
from agentkernel.config.widening import widenings
from agentkernel.errors import InvalidInputError, PolicyDeniedError
from agentkernel.security.profiles import SECURITY_PROFILES, Limits

from .conftest import Write


def keys(project: Write, text: str, user: Any = None, **flags: Any) -> list[str]:
    named = {name.replace("__", "."): value for name, value in flags.items()}
    return [entry.key for entry in widenings(project(text), user, named)]


@pytest.mark.parametrize(
    ("own", "wider", "narrower"),
    [
        ("", '[sandbox]\nbackend = "other"', '[sandbox]\nbackend = "native"'),
        ("", '[sandbox]\nprofile = "permissive"', '[sandbox]\nprofile = "restrictive"'),
        ('[sandbox]\nuser = "user"', '[sandbox]\nuser = "root"', '[sandbox]\nuser = "1000"'),
        ('[sandbox]\nuser = "user"', "[sandbox]\nuser = 0", "[sandbox]\nuser = 7"),
        ('[sandbox]\ntoolchains = "none"', '[sandbox]\ntoolchains = "host"', ""),
        ("", "[sandbox]\nnested_userns = true", "[sandbox]\nnested_userns = false"),
        ("", '[sandbox]\nimage = "/srv"', '[sandbox]\nimage = "./root"'),
        ("", '[sandbox]\nimage = "~/x"', '[sandbox]\nimage = "host"'),
        ("", '[sandbox]\nimage = ".."', '[sandbox]\nimage = "root"\n'.replace("root", "./a/b")),
        ("", '[sandbox]\nimage = "."', '[sandbox]\nimage = "./x"'),
        ("", '[sandbox]\nimage = "docker.io/x"', ""),
        ('[sandbox]\nimage = "/srv"', '[sandbox]\nimage = "host"', '[sandbox]\nimage = "/srv"'),
        ('[sandbox]\nttl = "1h"', '[sandbox]\nttl = "2h"', '[sandbox]\nttl = "1m"'),
        ('[sandbox]\nidle_timeout = "1h"', "[sandbox]\nidle_timeout = 3601", ""),
        ('[sandbox]\non_ttl = "remove"', '[sandbox]\non_ttl = "stop"', ""),
        ('[sandbox]\non_idle = "remove"', '[sandbox]\non_idle = "stop"', ""),
        ("", '[limits]\nmemory = "5G"', '[limits]\nmemory = "4G"'),
        ("[limits]\ncpus = 1", "[limits]\ncpus = 2", "[limits]\ncpus = 0.5"),
        ("", "[limits]\npids = 513", "[limits]\npids = 512"),
        ("", '[limits]\ndisk = "3G"', '[limits]\ndisk = "2G"'),
        ("", '[limits]\ndisk = "unlimited"', ""),
        ("", "[limits]\nnofile = 65537", "[limits]\nnofile = 65536"),
        ('[limits]\ntimeout = "1m"', '[limits]\ntimeout = "2m"', '[limits]\ntimeout = "1m"'),
        ("", '[limits]\noutput = "17M"', '[limits]\noutput = "1M"'),
        ("", '[network]\npresets = ["public"]', '[network]\npresets = ["none"]'),
        ("", '[network]\npresets = ["registries", "claude"]', "[network]\npresets = []"),
        ("", '[network]\nallow = ["a.org"]', "[network]\nallow = []"),
        ("", '[network]\nallow = ["none"]', "[network]\nallow = []"),
        (
            '[network]\nallow = ["a.org", "b.org"]',
            '[network]\nallow = ["a.org:*"]',
            '[network]\nallow = ["b.org"]',
        ),
        (
            '[network]\ndeny = ["a.org"]',
            '[network]\ndeny = ["b.org"]',
            '[network]\ndeny = ["a.org", "b.org"]',
        ),
        ("", '[network.phases.a]\nallow = ["a.org"]', "[network.phases.a]\nallow = []"),
        ("", '[network.phases.a]\npresets = ["registries"]', '[network.phases.a]\ndeny = ["x"]'),
        ('[network.phases.a]\ndeny = ["x"]', "[network.phases.a]", "[network.phases.b]"),
        (
            '[network.phases.a]\npresets = ["public"]\n[network.phases.b]',
            '[network]\nphase = "a"',
            '[network]\nphase = "b"',
        ),
        (
            '[network]\npresets = ["public"]\n[network.phases.a]\nallow = ["a.org"]',
            '[network]\nphase = "a"',
            '[network]\nphase = "default"',
        ),
        ("", '[network]\nsecrets = ["A@a.org"]', "[network]\nsecrets = []"),
        ("[network]\nports = [80]", "[network]\nports = [80, 81]", '[network]\nports = ["80"]'),
        ("", "[network]\nmax_connections = 257", "[network]\nmax_connections = 256"),
        ("", "[network]\nmax_connections_per_second = 201", "[network]\nmax_names = 8192"),
        ('[network]\nmax_upload = "1M"', '[network]\nmax_upload = "2M"', ""),
        (
            '[network]\nmax_download_rate = "1M"',
            '[network]\nmax_download_rate = "2M"',
            '[network]\nmax_download = "1M"',
        ),
        ("", '[env]\nA = { from = "HOME" }', '[env]\nA = "$HOME"'),
        ("", '[env]\nA = { from = "NO", default = "x" }', '[env]\nA = "x"'),
    ],
)
def test_rules(project: Write, user: Write, own: str, wider: str, narrower: str) -> None:
    config = user(own)
    assert len(widenings(project(wider), config, {})) == 1
    assert widenings(project(narrower), config, {}) == []


def test_every_key_has_a_rule() -> None:
    judged = {name for name in KEYS if "project" in KEYS[name].files}
    assert judged == widening._JUDGES.keys()


def test_a_stronger_profile_gives_no_more_of_anything() -> None:
    """Then a profile's own limits need no judging: the profile is."""
    profiles = [SECURITY_PROFILES[name] for name in PROFILES]
    for stronger, weaker in zip(profiles, profiles[1:], strict=False):
        assert stronger.capabilities <= weaker.capabilities
        assert set(stronger.network) <= set(weaker.network)
        for field in dataclasses.fields(Limits):
            less, more = (getattr(p.limits, field.name) for p in (stronger, weaker))
            assert more is None or (less is not None and less <= more), field.name


def test_judged_against_the_same_command_without_the_file(project: Write) -> None:
    text = '[limits]\nmemory = "4G"\n'
    assert keys(project, text) == [], "as much as moderate gives"
    assert keys(project, text, sandbox__profile="restrictive") == ["limits.memory"]
    big = '[limits]\nmemory = "8G"\n[sandbox]\nprofile = "permissive"\n'
    assert keys(project, big) == ["sandbox.profile", "limits.memory"]
    assert keys(project, big, sandbox__profile="permissive") == []
    assert keys(project, big, sandbox__profile="moderate", limits__memory=1 << 30) == []


def test_a_variable_that_a_flag_overrides_reads_nothing(project: Write) -> None:
    file = project('[env]\nA = { from = "HOME" }')
    assert widenings(file, None, {}, flag_env={"A": "mine"}) == []
    assert [entry.key for entry in widenings(file, None, {})] == ["env.A"]


def test_a_file_of_another_user_needs_trust(project: Write) -> None:
    file = project("")
    other = dataclasses.replace(file, owner=os.getuid() + 4321)
    assert widenings(file, None, {}) == []
    assert [entry.key for entry in widenings(other, None, {})] == ["file"]


def test_in_the_home_nothing_is_the_projects(home: Path, project: Write) -> None:
    from agentkernel.config.reading import read_file

    assert keys(project, '[sandbox]\nimage = "./x"') == [], "control"
    (home / "agentkernel.toml").write_text('[sandbox]\nimage = "./x"\n')
    file = read_file(str(home / "agentkernel.toml"), "project")
    assert [entry.key for entry in widenings(file, None, {})] == ["sandbox.image"]


def test_the_project_itself_is_no_wider_workspace(project: Write, tmp_path: Path) -> None:
    for text in (".", "./sub", ".:ro", "none"):
        assert keys(project, f'[sandbox]\nworkspace = "{text}"') == [], text
    for text in (".:rw", "..", str(tmp_path / "elsewhere"), "~"):
        assert keys(project, f'[sandbox]\nworkspace = "{text}"') == ["sandbox.workspace"], text


def test_a_link_out_of_the_project_is_refused_whoever_trusts(
    project: Write, directory: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (directory / "root").mkdir()
    file = project('[sandbox]\nimage = "./root"')
    assert resolve({}, file, None).value("sandbox.image") == str(directory / "root")
    (directory / "root").rmdir()
    (directory / "root").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PolicyDeniedError, match="through a link"):
        resolve({}, file, None)


def test_order_of_the_four(project: Write, user: Write) -> None:
    mine = user('[limits]\npids = 10\nnofile = 100\n[env]\nA = "user"\nB = "user"\n')
    theirs = project('[limits]\npids = 9\n[env]\nA = "project"\n[sandbox]\nprofile="restrictive"\n')
    found = resolve({"limits.cpus": 0.5}, theirs, mine, flag_env={"C": "flag"})
    shown = {n: (s.value, s.origin) for n, s in found.settings.items()}
    assert shown["limits.cpus"] == (0.5, "flag")
    assert shown["limits.pids"] == (9, "project")
    assert shown["limits.nofile"] == (100, "user")
    assert shown["limits.memory"] == (512 << 20, "profile")
    assert shown["limits.disk"] == (256 << 20, "profile"), "half of the memory"
    assert shown["sandbox.image"] == ("host", "default")
    assert expand_env(found, {}) == {"A": "project", "B": "user", "C": "flag"}


def test_variables_of_the_host(project: Write) -> None:
    found = resolve(
        {}, project('[env]\nA = { from = "X" }\nB = { from = "Y", default = "d" }'), None
    )
    assert expand_env(found, {"X": "1"}) == {"A": "1", "B": "d"}
    with pytest.raises(InvalidInputError, match="X, which is not set here"):
        expand_env(found, {})


def test_a_phase_of_its_own_that_is_closed_needs_no_trust(project: Write) -> None:
    assert keys(project, '[network]\nphase = "agent"\n[network.phases.agent]\n') == []
    opened = '[network]\nphase = "agent"\n[network.phases.agent]\nallow = ["a.org"]\n'
    assert keys(project, opened) == ["network.phase", "network.phases"]


def test_the_network_as_the_api_takes_it(project: Write, user: Write) -> None:
    assert network_body(resolve({}, project(""), None)) is None
    own = user('[network]\nallow = ["a.org"]\nmax_upload = "1M"\nfloor = ["a.org"]\n')
    text = '[network]\npresets = []\nphase = "x"\n[network.phases.x]\ndeny = ["b.org"]\n'
    assert network_body(resolve({}, project(text), own)) == {
        "presets": [],
        "allow": ["a.org"],
        "phase": "x",
        "phases": {"x": {"presets": [], "allow": [], "deny": ["b.org"]}},
        "caps": {"upload_bytes": 1 << 20},
    }
