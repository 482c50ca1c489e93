"""Files that are broken, huge, no files or somebody else's: never an error, never a wider rule."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentkernel.network.registries.addresses import UnusableAddress, parse
from agentkernel.network.registries.machine import MachineReader, distribution_of
from agentkernel.network.registries.places import FILE_BYTES

from .machines import HOME, FakeMachine, public, urls

FILES = (
    "/etc/pip.conf",
    "/etc/uv/uv.toml",
    "/etc/apt/sources.list",
    "/etc/apt/sources.list.d/x.sources",
    "/etc/apt/auth.conf",
    "/etc/apt/apt.conf",
    "/etc/maven/settings.xml",
    "/etc/gemrc",
    "/etc/os-release",
    "~/.npmrc",
    "~/.netrc",
    "~/.cargo/config.toml",
    "~/.cargo/credentials.toml",
    "~/.config/go/env",
    "~/.bundle/config",
)
PIECES = (
    *("[global]\n", "index-url = ", "https://", "m.corp", ":8443", "/x", "user:pw@", "\n", " "),
    *("registry=", "//m.corp/:_authToken=", "${HOME}", "${", "}", "=", "'", '"', "\\", ";", "#"),
    *("deb ", "[arch=x] ", "stable main", "Types: deb\n", "URIs: ", "Enabled: no\n", "\n\n"),
    *("[source.crates-io]\n", 'replace-with = "crates-io"\n', "[registries.x]\n", "index = "),
    *("<settings>", "<mirrors><mirror>", "<url>", "</url>", "</mirror></mirrors>", "</settings>"),
    *("machine ", "login ", "password ", "default", "macdef ", "GOPROXY=", "GOSUMDB=", ",", "|"),
    *(":sources:\n- ", "sparse+", "*", "\0", "\ufeff", "é", "127.0.0.1", "[::1]", "%00", "..", "@"),
)
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=30).map("".join)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(TEXTS, min_size=len(FILES), max_size=len(FILES)), TEXTS)
def test_any_text_is_read(machine: FakeMachine, texts: list[str], value: str) -> None:
    for path, text in zip(FILES, texts, strict=True):
        machine.write(path, text.encode("utf-8", "surrogatepass"))
    found = machine.read(PIP_INDEX_URL=value, GOPROXY=value, npm_config_registry=value)
    for rule in found.rules:
        assert "*" not in rule.host
        assert rule.host not in ("localhost", "127.0.0.1", "::1", "0.0.0.0")
        assert len(rule.ports) == 1
        assert rule.methods == ("GET", "HEAD")


@given(st.binary(max_size=200))
def test_any_bytes_are_an_address_or_not(content: bytes) -> None:
    text = content.decode("latin-1")
    try:
        address = parse("https://" + text)
    except UnusableAddress:
        return
    assert parse(address.url).url == address.url, "what we write is read the same"


@pytest.mark.parametrize(
    "url",
    [
        "https://*/",
        "https://*.corp/",
        "https://localhost:3141/",
        "https://a.localhost/",
        "https://127.0.0.1/",
        "https://127.1/",
        "https://2130706433/",
        "https://0x7f.0.0.1/",
        "https://m.corp.0x7f/",
        "https://[::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://[fe80::1%25lo]/",
        "https://0.0.0.0/",
        "https://169.254.169.254/latest",
        "https://m.corp:0/",
        "https://m.corp:99999/",
        "https://m.corp:x/",
        "https://",
        "https:///x",
        "https://a..b/",
        "https://a b/",
        "https://m.corp\nevil/",
        "https://m.corp\\evil/",
        "ftp://m.corp/",
        "javascript:alert(1)",
        "https://" + "a" * 64 + ".corp/",
        "https://m.corp/" + "a" * 3000,
    ],
)
def test_addresses_that_would_say_more_than_a_host(machine: FakeMachine, url: str) -> None:
    control = machine.read(npm_config_registry="https://m.corp/")
    assert urls(control, "npm") == ["https://m.corp/"]
    found = machine.read(npm_config_registry=url)
    assert not urls(found, "npm")
    assert not public(found, "npm"), "the machine did not say: the public one"
    assert set(found.rules) <= set(machine.read().rules), "what is said is not another host"
    assert any("left out" in note for note in found.notes)
    assert url not in repr(found.notes), "an address may hold a secret"


def test_a_query_is_no_part_of_an_address() -> None:
    assert parse("https://m.corp/x?token=abc#y").url == "https://m.corp/x"


def test_addresses_have_one_form() -> None:
    assert parse("HTTPS://M.Corp.:443/X").url == "https://m.corp/X"
    assert parse("http://10.1.2.3:80/").url == "http://10.1.2.3/"
    assert parse("https://[2001:DB8::1]:8443/").url == "https://[2001:db8::1]:8443/"
    assert parse("https://bücher.corp/").host == "xn--bcher-kva.corp"


INDEX = "[global]\nindex-url = https://m.corp/\n"


def test_what_is_no_file_of_ours_counts_as_empty(machine: FakeMachine) -> None:
    path = machine.write("/etc/pip.conf", INDEX)
    assert urls(machine.read(), "pip") == ["https://m.corp/"]
    path.chmod(0o666)
    found = machine.read()
    assert not urls(found, "pip")
    assert "written by others" in found.notes[0]
    path.unlink()
    os.mkfifo(path)
    assert "not a regular file" in machine.read().notes[0]
    path.unlink()
    path.mkdir()
    assert "not a regular file" in machine.read().notes[0]
    path.rmdir()
    path.symlink_to(path)
    assert not machine.read().notes, "a link to itself is no file"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
def test_a_file_of_somebody_else_counts_as_empty(machine: FakeMachine) -> None:
    path = machine.write("/etc/pip.conf", INDEX)
    assert urls(machine.read(), "pip")
    os.chown(path, 12345, 12345)
    assert not urls(machine.read(), "pip")


def test_a_huge_file_counts_as_empty(machine: FakeMachine) -> None:
    machine.write("/etc/pip.conf", INDEX + "#" * (FILE_BYTES - len(INDEX)))
    assert urls(machine.read(), "pip")
    machine.write("/etc/pip.conf", INDEX + "#" * (FILE_BYTES - len(INDEX) + 1))
    assert not urls(machine.read(), "pip")


@pytest.mark.parametrize("path", FILES)
@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "a" + " " * 200_000 + "b",
        "\\" * 100_000 + "${",
        "${" * 50_000,
        "<a>" * 50_000,
        "\n ".join(["x = y"] * 20_000),
        "deb " * 50_000,
        '"' * 100_000,
        "a.b." * 50_000 + "= 1",
    ],
)
def test_long_ways_are_not_taken(machine: FakeMachine, path: str, text: str) -> None:
    """No pattern that tries every way through a line: the test's own time limit holds that."""
    machine.write(path, text)
    assert machine.read().rules


def test_entities_are_not_expanded(machine: FakeMachine) -> None:
    inner = "<settings><mirrors><mirror><id>m</id><mirrorOf>*</mirrorOf>"
    end = "</mirror></mirrors></settings>"
    machine.write("/etc/maven/settings.xml", f"{inner}<url>https://m.corp/</url>{end}")
    assert urls(machine.read(), "maven") == ["https://m.corp/"]
    machine.write(
        "/etc/maven/settings.xml",
        f'<!DOCTYPE x [<!ENTITY a "https://m.corp/">]>{inner}<url>&a;</url>{end}',
    )
    found = machine.read()
    assert not urls(found, "maven")
    assert "document type" in found.notes[0]


def test_values_cannot_add_lines_to_what_is_written(machine: FakeMachine) -> None:
    machine.write(
        "/etc/apt/sources.list",
        "deb [signed-by=/x] https://m.corp/ a main\rdeb https://evil.corp/ a main\n",
    )
    machine.write("~/.config/go/env", "GOPRIVATE=a\x1b[31m\n")
    found = machine.read()
    assert "GOPRIVATE" not in found.settings["go"]
    assert urls(found, "apt") == ["https://m.corp/"]
    assert found.settings["apt"]["/etc/apt/sources.list"].count("\n") == 1


def test_a_project_is_not_asked(machine: FakeMachine) -> None:
    for name in (".npmrc", "pip.conf", ".cargo/config.toml", "uv.toml"):
        machine.write(f"~/project/{name}", "registry=https://m.corp/\n" + INDEX)
    found = machine.read(PWD=f"{HOME}/project")
    assert not any(item.named for item in found.registries)


def test_a_reader_reads_again_after_a_change_only(machine: FakeMachine) -> None:
    reader = MachineReader(Path(HOME), machine.root)
    first = reader.read({})
    assert reader.read({}) is first
    assert reader.read({"LANG": "C"}) is first, "not a client's variable"
    machine.write("/etc/pip.conf", INDEX)
    second = reader.read({})
    assert urls(second, "pip") == ["https://m.corp/"]
    assert reader.read({}) is second
    assert urls(reader.read({"PIP_INDEX_URL": "https://n.corp/"}), "pip") == ["https://n.corp/"]
    machine.write("/etc/apt/sources.list.d/new.list", "deb https://apt.corp/ a main\n")
    assert urls(reader.read({}), "apt") == ["https://apt.corp/"]
    machine.write("~/.npmrc", "registry=https://${WHERE}/\n")
    assert urls(reader.read({"WHERE": "a.corp"}), "npm") == ["https://a.corp/"]
    assert urls(reader.read({"WHERE": "b.corp"}), "npm") == ["https://b.corp/"]


def test_distributions() -> None:
    text = 'NAME="Debian"\nID=debian\nVERSION_CODENAME="bookworm"\n'
    assert distribution_of(text) == "debian bookworm"
    assert distribution_of("ID=alpine\n") == ""
    assert distribution_of("ID=$(x)\nVERSION_CODENAME=y\n") == ""
