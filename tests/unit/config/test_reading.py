"""A file is right as a whole, or an error that says where and what instead."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.config.reading import MAX_BYTES, parse, read_file
from agentkernel.config.schema import KEYS, LATER, HostVariable
from agentkernel.errors import AgentKernelError, HostError, InvalidInputError, NotFoundError
from agentkernel.kernel.admission import Admission

from .conftest import Write

FULL = """\
[sandbox]
backend = "native"
image = "host"
profile = "restrictive"
user = 1000
toolchains = "none"
nested_userns = false
workspace = "."
volumes = ["cache:/var/cache", "models:/models:ro"]
workspace_secrets = false
workspace_ignored = "hide"
workspace_path = "same"
name = "web"
ttl = "2h"
idle_timeout = 90
on_ttl = "remove"
on_idle = "stop"

[limits]
memory = "512M"
cpus = 1
pids = 64
disk = "unlimited"
nofile = 1024
timeout = "5m"
output = 1048576

[network]
presets = ["registries", "claude"]
allow = ["api.example.org", "*.example.org:443"]
deny = "gist.github.com, *.evil.example"
phase = "setup"
secrets = ["TOKEN@api.example.org,b.example.org"]
ports = [8000, "127.0.0.1:8080:80", "[::1]:81:81", "8080:80"]
max_connections = 16
max_connections_per_second = 10
max_names = 100
max_upload = "1M"
max_download = "1G"
max_upload_rate = 1000
max_download_rate = "1M"

[network.phases.setup]
presets = ["public"]

[network.phases.agent]
allow = ["api.example.org"]

[env]
LANG = "C.UTF-8"
TOKEN = { from = "MY_TOKEN", default = "" }

[labels]
team = "web"
"""


def test_every_key_of_a_project(project: Write) -> None:
    file = project(FULL)
    assert file.values["limits.memory"] == 512 << 20
    assert file.values["limits.timeout"] == 300.0
    assert file.values["sandbox.user"] == "1000"
    assert file.tables["env"] == {"LANG": "C.UTF-8", "TOKEN": HostVariable("MY_TOKEN", "")}
    assert file.tables["labels"] == {"team": "web"}
    assert file.values["network.deny"] == ("gist.github.com", "*.evil.example")
    assert file.values["network.ports"] == ("8000", "127.0.0.1:8080:80", "[::1]:81:81", "8080:80")
    assert file.values["network.phases"] == {
        "setup": {"presets": ("public",), "allow": (), "deny": ()},
        "agent": {"presets": (), "allow": ("api.example.org",), "deny": ()},
    }
    assert file.lines["network.phases"] == FULL.split("\n").index("[network.phases.setup]") + 1
    wanted = {name for name, key in KEYS.items() if "project" in key.files}
    assert file.values.keys() == wanted
    assert file.lines["limits.memory"] == FULL.split("\n").index('memory = "512M"') + 1


def test_the_daemon_is_the_users_alone(user: Write, project: Write) -> None:
    text = '[daemon]\nmax_sandboxes = 5\nmemory_floor = "1G"\n'
    assert user(text).values == {"daemon.max_sandboxes": 5, "daemon.memory_floor": 1 << 30}
    with pytest.raises(InvalidInputError, match="'daemon' is not a key") as caught:
        project(text)
    assert caught.value.hint == "it belongs in the user's config.toml"


def test_the_operators_network(user: Write) -> None:
    file = user(
        '[network]\nfloor = ["registries", "*.corp:443"]\nresolver = "10.0.0.53"\n'
        'upstream_ca = "/etc/ca.pem"\nupstream_proxy = "http://proxy.corp:3128"\n'
        'patterns = ["AKIA[A-Z0-9]{16}"]\n[network.hosts]\n"git.corp" = "10.0.0.7"\n'
    )
    assert file.values == {
        "network.floor": ("registries", "*.corp:443"),
        "network.resolver": "10.0.0.53:53",
        "network.upstream_ca": "/etc/ca.pem",
        "network.upstream_proxy": "http://proxy.corp:3128",
        "network.patterns": ("AKIA[A-Z0-9]{16}",),
        "network.hosts": {"git.corp": "10.0.0.7"},
    }
    for text in (
        'resolver = "dns.corp"', 'resolver = "10.0.0.1:0"', 'resolver = "127.1"', "hosts = 5",
        'hosts = { a = "127.1" }', 'hosts = { a = "fe80::1%1" }', 'upstream_proxy = "socks5://a"',
        'patterns = ["("]', "patterns = [5]", 'upstream_ca = "ca.pem"',
    ):  # fmt: skip
        with pytest.raises(InvalidInputError, match="must be"):
            user(f"[network]\n{text}\n")


def test_registries_of_images_are_the_users_alone(user: Write, project: Write) -> None:
    text = (
        '[images]\ninsecure = ["Registry.lan:5000", "10.0.0.7"]\n[images.mirrors]\n'
        '"docker.io" = ["https://mirror.corp", "https://harbor.corp:8443/hub/"]\n'
        '"quay.io" = "http://[::1]:5000"\n'
    )
    assert user(text).values == {
        "images.insecure": ("registry.lan:5000", "10.0.0.7"),
        "images.mirrors": {
            "docker.io": ("https://mirror.corp", "https://harbor.corp:8443/hub"),
            "quay.io": ("http://[::1]:5000",),
        },
    }
    with pytest.raises(InvalidInputError, match="'images' is not a key") as caught:
        project(text)
    assert caught.value.hint == "it belongs in the user's config.toml"
    for wrong in (
        'mirrors = "https://mirror.corp"', 'mirrors = { "docker.io" = [] }',
        'mirrors = { "docker.io" = ["mirror.corp"] }', 'mirrors = { "a b" = ["https://c"] }',
        'mirrors = { "docker.io" = ["https://user:word@mirror.corp"] }',
        'mirrors = { "docker.io" = ["https://mirror.corp/../x"] }', "insecure = 5",
        'insecure = ["http://registry.lan"]', 'insecure = ["registry.lan:99999"]',
    ):  # fmt: skip
        with pytest.raises(InvalidInputError, match="must be"):
            user(f"[images]\n{wrong}\n")


@pytest.mark.parametrize(
    ("text", "line", "message", "hint"),
    [
        ('[sandbox]\nimagee = "host"', 2, "'sandbox.imagee' is not a key", "did you mean image?"),
        ("[limit]\npids = 9", 1, "'limit' is not a key", "did you mean limits?"),
        ('[sandbox]\nmemory = "1G"', 2, "not a key", "it stands in [limits]"),
        ('memory = "1G"', 1, "'memory' is not a key", "it stands in [limits]"),
        ('[limits]\nmemory = "many"', 2, "limits.memory must be a size", None),
        ("[limits]\nmemory = true", 2, "must be a size of 16M or more, such as", None),
        ('[limits]\nmemory = "1M"', 2, "16M or more", None),
        ("[limits]\npids = 9.5", 2, "a whole number, 4 or more, not 9.5", None),
        ("[limits]\ncpus = nan", 2, "a number from 0.01", None),
        ('[limits]\ntimeout = "0"', 2, "must be a time", None),
        ("[limits]\ntimeout = -4", 2, "must be a time", None),
        ('[sandbox]\nprofile = "open"', 2, "sandbox.profile must be", None),
        ('[sandbox]\nnested_userns = "yes"', 2, "must be true or false, not 'yes'", None),
        ('[sandbox]\nname = "A b"', 2, "must be a name of", None),
        ("[env]\nA = 1", 2, "env.A must be text", None),
        ('[env]\nA = { from = "X", to = "Y" }', 2, "env.A must be text", None),
        ("[network]\nallow = [5]", 2, "network.allow must be such as", None),
        ('[network]\nallow = ["a b"]', 2, "network.allow must be such as", None),
        ('[network]\npresets = ["A"]', 2, "network.presets must be names", None),
        ('[network]\nphase = "A"', 2, "network.phase must be a name", None),
        ("[network.phases.A]\n", 1, "network.phases must be sections", None),
        ("[network.phases.a]\nrules = []", 1, "network.phases must be sections", None),
        ("[network.phases]\na = 5", 1, "network.phases must be sections", None),
        ('[network]\nsecrets = ["A"]', 2, "network.secrets must be such as", None),
        ('[network]\nports = ["a"]', 2, "network.ports must be such as", None),
        ("[network]\nports = [true]", 2, "network.ports must be such as", None),
        ("[network]\nmax_connections = 0", 2, "from 1 to 65536", None),
        (
            '[network]\nhosts = { a = "1.1.1.1" }',
            2,
            "not a key",
            "it belongs in the user's config.toml",
        ),
        ("[network]\nfloor = []", 2, "not a key", "it belongs in the user's config.toml"),
        ("[secrets]\n", 1, "'secrets' is not a key", "it stands in [network]"),
        ("[ports]\n", 1, "'ports' is not a key", "it stands in [network]"),
        ("sandbox = 5", 1, "must be a section", None),
        ("[[sandbox]]\n", None, "must be a section", None),
    ],
)
def test_what_is_wrong_is_named(
    project: Write, text: str, line: int | None, message: str, hint: str | None
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        project(text)
    error = caught.value
    assert message in error.message
    assert error.details.get("line") == line
    assert error.details["file"].endswith("agentkernel.toml")
    if line is not None:
        assert f"agentkernel.toml:{line}: " in error.message
    if hint is not None:
        assert error.hint == hint


def test_the_daemon_takes_the_users_bounds(user: Write, home: Path) -> None:
    assert Admission.of_user() == Admission()
    user('[daemon]\nmax_sandboxes = 5\nmemory_floor = "1G"\n')
    assert Admission.of_user() == Admission(max_sandboxes=5, memory_floor_bytes=1 << 30)
    (home / ".config/agentkernel/config.toml").write_text("[daemon]\nmax = 5\n")
    with pytest.raises(InvalidInputError):
        Admission.of_user()


@pytest.mark.parametrize("section", LATER)
def test_sections_of_later_versions_are_refused(project: Write, section: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"\[{section}\] is not supported by this version"):
        project(f"[{section}]\n")


@pytest.mark.parametrize(
    "data",
    [b"[sandbox", b"\xff", b"a = " + b"[" * 20000, b"a\0", b"a = 1\na = 2", b"#" * (MAX_BYTES + 1)],
)
def test_what_is_no_toml(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "agentkernel.toml"
    path.write_bytes(data)
    with pytest.raises(InvalidInputError, match="agentkernel.toml"):
        read_file(str(path), "project")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_no_file_at_all(tmp_path: Path, make: Any) -> None:
    path = tmp_path / "agentkernel.toml"
    with pytest.raises(NotFoundError):
        read_file(str(path), "project")
    make(path)
    with pytest.raises(InvalidInputError):
        read_file(str(path), "project")


def test_a_users_file_that_others_may_write(user: Write, home: Path) -> None:
    path = home / ".config/agentkernel/config.toml"
    user("")
    path.chmod(0o666)
    with pytest.raises(HostError, match="can be written by others"):
        read_file(str(path), "user")


def test_lines_are_not_led_astray_by_long_strings(project: Write) -> None:
    text = '[env]\nA = """\n[limits]\nmemory = "9G"\n"""\n[limits]\nmemory = "1G"\n'
    assert project(text).lines["limits.memory"] == 7


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse(text.encode(errors="replace"), "/p/agentkernel.toml", "project", owner=0)
    except AgentKernelError as error:
        assert isinstance(error, InvalidInputError)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(st.sampled_from(sorted(KEYS)), _VALUES)
def test_a_check_gives_a_value_or_says_no(name: str, value: Any) -> None:
    try:
        found = KEYS[name].check(value)
    except (ValueError, TypeError):
        return
    assert KEYS[name].check(found) == found, "what was accepted is accepted again"
