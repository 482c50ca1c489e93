"""Each client's configuration is read as the client reads it."""

from __future__ import annotations

import base64

import pytest

from agentkernel.network.policy.presets import expand_presets
from agentkernel.network.registries.model import Ecosystem

from .machines import SECRET, FakeMachine, of, public, urls, with_login


def test_a_machine_that_says_nothing_uses_the_clients_defaults(machine: FakeMachine) -> None:
    found = machine.read()
    assert public(found, "pip") == ["pypi.org", "files.pythonhosted.org"]
    assert public(found, "npm") == ["registry.npmjs.org", "registry.yarnpkg.com"]
    assert public(found, "cargo") == ["index.crates.io", "static.crates.io", "crates.io"]
    assert public(found, "go") == ["proxy.golang.org", "sum.golang.org"]
    assert "repo.maven.apache.org" in public(found, "maven")
    assert "plugins.gradle.org" in public(found, "maven")
    assert "rubygems.org" in public(found, "gems")
    assert "deb.debian.org" in public(found, "apt")
    # Where TLS proves who answers, names may lead anywhere; where nothing does, only to the public.
    assert {rule.private for rule in found.rules if rule.ports == (443,)} == {True}
    assert {rule.private for rule in found.rules if rule.ports == (80,)} == {False}
    assert {rule.methods for rule in found.rules} == {("GET", "HEAD")}
    assert not found.notes
    assert not found.credentials


@pytest.mark.parametrize(
    ("path", "text", "ecosystem"),
    [
        ("/etc/pip.conf", "[global]\nindex-url = https://m.corp:8443/x\n", "pip"),
        ("/etc/xdg/pip/pip.conf", "[global]\nindex_url: https://m.corp:8443/x\n", "pip"),
        ("~/.config/pip/pip.conf", "[install]\nindex-url=https://m.corp:8443/x\n", "pip"),
        ("~/.pip/pip.conf", "# c\n[global]\nINDEX-URL = https://M.corp.:8443/x\n", "pip"),
        ("~/.config/uv/uv.toml", 'index-url = "https://m.corp:8443/x"\n', "pip"),
        ("/etc/uv/uv.toml", '[[index]]\nurl = "https://m.corp:8443/x"\ndefault = true\n', "pip"),
        ("~/.npmrc", "registry=https://m.corp:8443/x\n", "npm"),
        ("/etc/npmrc", 'registry = "https://m.corp:8443/x"\n', "npm"),
        ("/usr/local/etc/npmrc", "; c\nregistry='https://m.corp:8443/x'\n", "npm"),
        ("~/.config/pnpm/rc", "registry=https://m.corp:8443/x\n", "npm"),
        ("/etc/apt/sources.list", "deb [arch=amd64] https://m.corp:8443/x stable main\n", "apt"),
        ("/etc/apt/sources.list.d/a.list", "deb https://m.corp:8443/x stable main # x\n", "apt"),
        (
            "/etc/apt/sources.list.d/a.sources",
            "# c\nTypes: deb\nURIs: https://m.corp:8443/x\nSuites: a b\nComponents: main\n",
            "apt",
        ),
        (
            "~/.cargo/config.toml",
            '[source.crates-io]\nreplace-with = "m"\n'
            '[source.m]\nregistry = "sparse+https://m.corp:8443/x"\n',
            "cargo",
        ),
        ("~/.config/go/env", "GOPROXY=https://m.corp:8443/x,direct\n", "go"),
        (
            "~/.m2/settings.xml",
            '<settings xmlns="http://maven.apache.org/SETTINGS/1.0.0"><mirrors><mirror><id>m</id>'
            "<mirrorOf>*</mirrorOf><url>https://m.corp:8443/x</url></mirror></mirrors></settings>",
            "maven",
        ),
        ("~/.gemrc", "---\n:sources:\n- https://m.corp:8443/x\n:verbose: true\n", "gems"),
        ("~/.bundle/config", '---\nBUNDLE_MIRROR__ALL: "https://m.corp:8443/x"\n', "gems"),
    ],
)
def test_a_mirror_stands_in_for_the_public_hosts(
    machine: FakeMachine, path: str, text: str, ecosystem: Ecosystem
) -> None:
    machine.write(path, text)
    found = machine.read()
    assert [url.removeprefix("sparse+") for url in urls(found, ecosystem)] == [
        "https://m.corp:8443/x"
    ]
    expected = {"go": ["sum.golang.org"]}.get(ecosystem, [])
    assert public(found, ecosystem) == expected
    rule = next(rule for rule in found.rules if rule.host == "m.corp")
    assert (rule.ports, rule.private, rule.action, rule.tls) == ((8443,), True, "allow", "auto")
    assert rule.source == f"registries: {ecosystem} ({path.replace('~', '/home/me')})"


@pytest.mark.parametrize(
    ("variable", "ecosystem"),
    [
        ("PIP_INDEX_URL", "pip"),
        ("UV_INDEX_URL", "pip"),
        ("UV_DEFAULT_INDEX", "pip"),
        ("npm_config_registry", "npm"),
        ("NPM_CONFIG_REGISTRY", "npm"),
        ("GOPROXY", "go"),
        ("BUNDLE_MIRROR__ALL", "gems"),
    ],
)
def test_variables_come_before_files(
    machine: FakeMachine, variable: str, ecosystem: Ecosystem
) -> None:
    machine.write("/etc/pip.conf", "[global]\nextra-index-url = https://extra.corp/\n")
    machine.write("~/.npmrc", "registry=https://old.corp/\n")
    machine.write("~/.config/go/env", "GOPROXY=https://old.corp/\n")
    found = machine.read(**{variable: "https://m.corp/x"})
    assert "https://m.corp/x" in urls(found, ecosystem)
    assert "https://old.corp/" not in urls(found, ecosystem)
    rule = next(rule for rule in found.rules if rule.host == "m.corp")
    assert rule.source == f"registries: {ecosystem} ({variable})"


def test_a_host_of_several_clients_has_one_rule(machine: FakeMachine) -> None:
    machine.write("/etc/pip.conf", "[global]\nindex-url = https://m.corp/pip\n")
    machine.write("/etc/npmrc", "registry=https://m.corp/npm\n@a:registry=https://m.corp/a\n")
    found = machine.read()
    [rule] = [rule for rule in found.rules if rule.host == "m.corp"]
    assert rule.source == "registries: pip (/etc/pip.conf), npm (/etc/npmrc)"
    for preset in ("registries", "pip", "npm"):
        assert rule in expand_presets([preset], found.rules)
    assert rule not in expand_presets(["cargo"], found.rules)


def test_pip_has_extra_indexes_links_and_trusted_hosts(machine: FakeMachine) -> None:
    machine.write(
        "/etc/pip.conf",
        "[global]\nextra-index-url =\n    http://a.corp:8080/simple\n    https://b.corp/simple\n"
        "find-links = /opt/wheels https://c.corp/wheels file:///srv\ntrusted-host = a.corp:8080\n",
    )
    found = machine.read()
    assert [(item.role, item.url) for item in of(found, "pip") if item.named] == [
        ("extra", "http://a.corp:8080/simple"),
        ("extra", "https://b.corp/simple"),
        ("links", "https://c.corp/wheels"),
    ]
    assert "pypi.org" in public(found, "pip"), "the index itself is still the default"
    assert found.settings["pip"] == {"trusted-host": "a.corp:8080"}


def test_the_public_index_brings_the_host_of_its_files(machine: FakeMachine) -> None:
    machine.write("/etc/pip.conf", "[global]\nindex-url = https://pypi.org/simple\n")
    found = machine.read()
    assert {rule.host: rule.source for rule in found.rules if "py" in rule.host} == {
        "pypi.org": "registries: pip (/etc/pip.conf)",
        "files.pythonhosted.org": "registries: pip (its default)",
    }


def test_pip_can_be_told_to_read_no_file(machine: FakeMachine) -> None:
    machine.write("/etc/pip.conf", "[global]\nindex-url = https://m.corp/\n")
    assert urls(machine.read(), "pip")
    assert not urls(machine.read(PIP_CONFIG_FILE="/dev/null"), "pip")


def test_npm_has_scopes_and_the_users_file_comes_first(machine: FakeMachine) -> None:
    machine.write(
        "/opt/node/etc/npmrc", "registry=https://one.corp/\n@a:registry=https://a.corp/\n"
    )
    machine.write("/opt/node/bin/node", "")
    machine.write("~/.npmrc", "registry=https://${WHERE}.corp/npm/\n")
    found = machine.read(PATH="/opt/node/bin", WHERE="two")
    assert {(item.name, item.url) for item in of(found, "npm") if item.named} == {
        ("", "https://two.corp/npm/"),
        ("@a", "https://a.corp/"),
    }


def test_apt_leaves_out_what_is_off_or_on_a_disc(machine: FakeMachine) -> None:
    machine.write(
        "/etc/apt/sources.list",
        "# deb https://no1.corp/ a b\ndeb cdrom:[x]/ a b\ndeb file:/srv a b\n"
        "deb mirror+https://no2.corp/list a b\ndeb-src http://yes.corp/src a b\n",
    )
    machine.write(
        "/etc/apt/sources.list.d/x.sources",
        "Enabled: no\nTypes: deb\nURIs: https://no3.corp/\nSuites: a\n\n"
        "Types: deb\nURIs: https://yes.corp/a http://yes.corp/b\nSuites: a\nX-Other: y\n"
        "Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n",
    )
    machine.write("/etc/apt/sources.list.d/x.list.save", "deb https://no4.corp/ a b\n")
    machine.write("/etc/apt/sources.list.d/a b.list", "deb https://no5.corp/ a b\n")
    machine.write("/etc/apt/apt.conf.d/99x", 'Acquire::Check-Valid-Until "false";\n')
    found = machine.read()
    assert urls(found, "apt") == [
        "http://yes.corp/src",
        "https://yes.corp/a",
        "http://yes.corp/b",
    ]
    assert {(rule.host, rule.ports) for rule in found.rules if rule.host == "yes.corp"} == {
        ("yes.corp", (80,)),
        ("yes.corp", (443,)),
    }
    assert found.settings["apt"] == {
        "/etc/apt/sources.list": "deb-src http://yes.corp/src a b\n",
        "/etc/apt/sources.list.d/x.sources": (
            "Types: deb\nURIs: https://yes.corp/a http://yes.corp/b\nSuites: a\n"
            "Signed-By: \n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n"
        ),
        "Check-Valid-Until": "false",
    }
    assert len(found.notes) == 1, "mirror lists lead to hosts that nobody named"


def test_public_archives_stay_allowed_beside_each_other_only(machine: FakeMachine) -> None:
    machine.write("/etc/apt/sources.list", "deb http://deb.debian.org/debian a main\n")
    assert "archive.ubuntu.com" in public(machine.read(), "apt")
    machine.write("/etc/apt/sources.list.d/m.list", "deb http://m.corp/debian a main\n")
    assert not public(machine.read(), "apt")


def test_cargo_has_registries_by_name_and_chains_of_sources(machine: FakeMachine) -> None:
    machine.write(
        "/opt/cargo/config.toml",
        '[source.crates-io]\nreplace-with = "a"\n[source.a]\nreplace-with = "b"\n'
        '[source.b]\nregistry = "sparse+https://b.corp/index/"\n'
        '[registries.my-own]\nindex = "sparse+https://own.corp/"\n',
    )
    machine.write("/opt/cargo/credentials.toml", f'[registries.my-own]\ntoken = "{SECRET}"\n')
    found = machine.read(
        CARGO_HOME="/opt/cargo", CARGO_REGISTRIES_OTHER_INDEX="https://git.corp/index"
    )
    assert [(item.role, item.name, item.url) for item in of(found, "cargo")] == [
        ("index", "b", "sparse+https://b.corp/index/"),
        ("registry", "my-own", "sparse+https://own.corp/"),
        ("registry", "other", "https://git.corp/index"),
    ]
    assert [(item.host, item.kind, item.value) for item in found.credentials] == [
        ("own.corp", "bearer", SECRET)
    ]
    assert "git repository" in found.notes[0]


@pytest.mark.parametrize(
    "text",
    [
        '[source.crates-io]\nreplace-with = "a"\n[source.a]\nreplace-with = "crates-io"\n',
        '[source.crates-io]\nreplace-with = "a"\n[source.a]\ndirectory = "/srv/vendor"\n',
        '[source.crates-io]\nreplace-with = "missing"\n',
    ],
)
def test_cargo_without_crates_io_is_not_given_it(machine: FakeMachine, text: str) -> None:
    machine.write("~/.cargo/config.toml", text)
    assert not of(machine.read(), "cargo")


def test_go_has_several_proxies_and_its_own_checksums(machine: FakeMachine) -> None:
    found = machine.read(
        GOPROXY="https://a.corp/go|http://b.corp:81,file:///srv,direct",
        GOSUMDB="sum.corp+1a2b https://sum.corp/db",
        GOPRIVATE="*.corp",
        GOFLAGS="-mod=mod",
    )
    assert urls(found, "go") == ["https://a.corp/go", "http://b.corp:81", "https://sum.corp/db"]
    assert not public(found, "go")
    assert found.settings["go"] == {
        "GOPROXY": "https://a.corp/go|http://b.corp:81,direct",
        "GOSUMDB": "sum.corp+1a2b https://sum.corp/db",
        "GOPRIVATE": "*.corp",
    }
    assert not of(machine.read(GOPROXY="direct", GOSUMDB="off"), "go")


def test_maven_has_profiles_and_servers_but_no_blocked_mirrors(machine: FakeMachine) -> None:
    machine.write(
        "/etc/maven/settings.xml",
        "<settings><mirrors><mirror><id>blocker</id><mirrorOf>external:http:*</mirrorOf>"
        "<url>http://0.0.0.0/</url><blocked>true</blocked></mirror>"
        "<mirror><id>c</id><mirrorOf>central</mirrorOf><url>https://c.corp/m2</url></mirror>"
        "</mirrors><servers><server><id>c</id><username>me</username>"
        "<password>${env.MVN_PASSWORD}</password></server>"
        "<server><id>r</id><username>me</username><password>{abc=}</password></server></servers>"
        "<profiles><profile><id>on</id><repositories><repository><id>r</id>"
        "<url>https://r.corp/</url></repository></repositories></profile>"
        "<profile><id>off</id><repositories><repository><id>s</id>"
        "<url>https://s.corp/</url></repository></repositories></profile></profiles>"
        "<activeProfiles><activeProfile>on</activeProfile></activeProfiles></settings>",
    )
    found = machine.read(MVN_PASSWORD=SECRET)
    assert [(item.role, item.name, item.url) for item in of(found, "maven") if item.named] == [
        ("mirror", "c", "https://c.corp/m2"),
        ("repository", "r", "https://r.corp/"),
    ]
    assert public(found, "maven") == ["plugins.gradle.org", "plugins-artifacts.gradle.org"]
    assert [(item.host, item.username, item.value) for item in found.credentials] == [
        ("c.corp", "me", SECRET)
    ]
    assert "encrypted" in found.notes[0]


def test_a_mirror_of_all_but_central_leaves_central(machine: FakeMachine) -> None:
    text = "<settings><mirrors><mirror><id>m</id><mirrorOf>{}</mirrorOf><url>https://m.corp/</url>"
    end = "</mirror></mirrors></settings>"
    machine.write("~/.m2/settings.xml", text.format("external:*,!central") + end)
    assert "repo.maven.apache.org" in public(machine.read(), "maven")
    machine.write("~/.m2/settings.xml", text.format("external:*,!other") + end)
    assert not public(machine.read(), "maven")


def test_passwords_are_taken_out_of_addresses(machine: FakeMachine) -> None:
    machine.write("/etc/pip.conf", f"[global]\nindex-url = {with_login('https://m.corp/simple')}\n")
    found = machine.read()
    [credential] = found.credentials
    assert (credential.username, credential.value, credential.kind) == ("me", SECRET, "basic")
    assert SECRET not in repr(found)
    machine.write(
        "/etc/pip.conf",
        f"[global]\nindex-url = {with_login('https://m.corp/simple', password='n')}",
    )
    [changed] = machine.read().credentials
    assert (changed.reference, changed.value) == (credential.reference, "n")


@pytest.mark.parametrize("password", ["", "x-oauth-basic"])
def test_a_token_may_come_as_a_users_name(machine: FakeMachine, password: str) -> None:
    found = machine.read(PIP_INDEX_URL=with_login("https://m.corp/", SECRET, password))
    [credential] = found.credentials
    assert (credential.username, credential.password) == ("", password)
    assert credential.value == SECRET
    assert SECRET not in repr(found)


def test_secrets_for_plain_text_are_left_out(machine: FakeMachine) -> None:
    found = machine.read(PIP_INDEX_URL=with_login("http://m.corp/"))
    assert urls(found, "pip") == ["http://m.corp/"]
    assert not found.credentials
    assert "plain text" in found.notes[0]
    assert SECRET not in repr(found)


@pytest.mark.parametrize(
    ("line", "kind", "username"),
    [
        (f"//m.corp/npm/:_authToken={SECRET}", "bearer", ""),
        (f"//m.corp/:_authToken={SECRET}", "bearer", ""),
        ("//m.corp/npm/:_authToken=${TOKEN}", "bearer", ""),
        (
            f"//m.corp/npm/:_auth={base64.b64encode(f'me:{SECRET}'.encode()).decode()}",
            "basic",
            "me",
        ),
        (
            "//m.corp/npm/:username=me\n"
            f"//m.corp/npm/:_password={base64.b64encode(SECRET.encode()).decode()}",
            "basic",
            "me",
        ),
    ],
)
def test_npm_tokens_in_all_forms(machine: FakeMachine, line: str, kind: str, username: str) -> None:
    machine.write("~/.npmrc", f"registry=https://m.corp/npm/\n{line}\n")
    [credential] = machine.read(TOKEN=SECRET).credentials
    assert (credential.kind, credential.username, credential.value) == (kind, username, SECRET)


def test_a_token_for_another_host_is_nobodys(machine: FakeMachine) -> None:
    machine.write("~/.npmrc", f"registry=https://m.corp/npm/\n//n.corp/:_authToken={SECRET}\n")
    assert not machine.read().credentials


def test_netrc_is_for_hosts_that_are_used(machine: FakeMachine) -> None:
    machine.write(
        "~/.netrc",
        f"machine m.corp\n  login me\n  password {SECRET}\nmacdef init\nmachine evil\n\n"
        "machine other.corp login you password other\ndefault login any password thing\n",
        0o600,
    )
    found = machine.read(PIP_INDEX_URL="https://m.corp/", GOPROXY="https://n.corp/")
    assert [(item.host, item.username, item.value) for item in found.credentials] == [
        ("m.corp", "me", SECRET)
    ]


def test_apt_passwords_are_for_a_path(machine: FakeMachine) -> None:
    machine.write("/etc/apt/auth.conf.d/m.conf", f"machine m.corp/a login me password {SECRET}\n")
    machine.write(
        "/etc/apt/sources.list",
        "deb https://m.corp/a/debian x main\ndeb https://m.corp/ab x main\n",
    )
    assert [bool(item.credential) for item in of(machine.read(), "apt") if item.named] == [
        True,
        False,
    ]
