"""What people write to bind a secret, and what becomes of it."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest

from agentkernel.errors import InvalidInputError, NotFoundError
from agentkernel.network.policy.names import canonical_name
from agentkernel.network.secrets.bindings import (
    SecretRequest,
    bind,
    guest_environment,
    parse_binding,
)
from agentkernel.network.secrets.presets import SECRET_PRESETS, preset_of_name

VALUES = {"local/GITHUB_TOKEN": b"ghp_" + b"a1B2" * 9, "local/KEY": b"sk-proj-" + b"Zz9Y" * 10}


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("KEY@a.test", SecretRequest(name="KEY", env=("KEY",), hosts=("a.test",))),
        (
            "my-key@A.test.,*.b.test:8443",
            SecretRequest(
                name="my-key",
                env=("my_key",),
                hosts=("a.test", "*.b.test:8443"),
            ),
        ),
        (
            "API=KEY@a.test:443,header=X-Api-Key,header=cookie,in=query,in=body,git",
            SecretRequest(
                name="KEY",
                env=("API",),
                hosts=("a.test",),
                headers=("x-api-key", "cookie"),
                query=True,
                body=True,
                git=True,
            ),
        ),
        (
            "GITHUB_TOKEN",
            SecretRequest(
                name="GITHUB_TOKEN",
                env=("GITHUB_TOKEN", "GH_TOKEN"),
                hosts=SECRET_PRESETS["github"].hosts,
                git=True,
            ),
        ),
        (
            "MINE=work@anthropic,proxy.example.org",
            SecretRequest(
                name="work",
                env=("MINE",),
                hosts=("proxy.example.org",),
                headers=("x-api-key", "authorization"),
            ),
        ),
        ("KEY@github:443", SecretRequest(name="KEY", env=("KEY",), hosts=("github",))),
        ("1KEY@a.test", SecretRequest(name="1KEY", env=("_1KEY",), hosts=("a.test",))),
    ],
)
def test_what_can_be_written(text: str, request_: SecretRequest) -> None:
    assert parse_binding(text) == request_


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("KEY", "names no host"),
        ("KEY@", "is not a name"),
        ("@a.test", "not a secret's name"),
        ("a b@a.test", "not a secret's name"),
        ("x" * 65 + "@a.test", "not a secret's name"),
        ("9=KEY@a.test", "not a variable"),
        ("KEY@*", "not for all"),
        ("KEY@*.test", "more than one owner"),
        ("KEY@10.0.0.0/8", "not for all or for a range"),
        ("KEY@10.0.0.1", "is an address"),
        ("KEY@[2001:DB8::1]:444", "is an address"),
        ("KEY@a.test:0", "not a port"),
        ("KEY@a.test:*", "not a port"),
        ("KEY@https://a.test", "URL"),
        ("KEY@a.test,header=host", "can carry"),
        ("KEY@a.test,header=a b", "can carry"),
        ("KEY@a.test,in=path", "not known"),
        ("KEY@header=x-key", "names no host"),
        ("KEY@a\0.test", "is not a name"),
        ("KEY@" + ",".join(f"a{n}.test" for n in range(33)), "more than 32"),
    ],
)
def test_what_can_t(text: str, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words) as caught:
        parse_binding(text)
    assert caught.value.hint


def test_presets_are_well_formed() -> None:
    variables = [name for preset in SECRET_PRESETS.values() for name in preset.env]
    assert len(variables) == len(set(variables)), "a variable says which preset is meant"
    for name, preset in SECRET_PRESETS.items():
        assert parse_binding(f"KEY@{name}").hosts == preset.hosts
        assert all(canonical_name(host) == host for host in preset.hosts)
        assert all(header == header.lower() for header in preset.headers)
        assert preset_of_name(preset.env[0]) == preset


def test_one_secret_has_one_placeholder() -> None:
    requests = [parse_binding("GITHUB_TOKEN"), parse_binding("OTHER=GITHUB_TOKEN@ci.test")]
    bindings = bind(requests, "local", VALUES)
    assert [each.env for each in bindings] == ["GITHUB_TOKEN", "GH_TOKEN", "OTHER"]
    assert len({each.placeholder for each in bindings}) == 1
    assert bindings[0].placeholder != bind(requests, "local", VALUES)[0].placeholder


def test_what_can_t_be_bound() -> None:
    with pytest.raises(NotFoundError, match="no secret KEY") as caught:
        bind([parse_binding("KEY@a.test")], "token:ci", VALUES)
    assert "secret set KEY" in str(caught.value.hint)
    with pytest.raises(InvalidInputError, match="can't hold two"):
        bind([parse_binding("GITHUB_TOKEN"), parse_binding("GH_TOKEN=KEY@a.test")], "local", VALUES)
    with pytest.raises(InvalidInputError, match="at most 32"):
        bind([parse_binding(f"V{n}=KEY@a.test") for n in range(33)], "local", VALUES)


def test_git_inside_sends_the_placeholder(tmp_path: Path) -> None:
    bindings = bind([parse_binding("GITHUB_TOKEN"), parse_binding("KEY@a.test:8443,git")],
                    "local", VALUES)  # fmt: skip
    environment = guest_environment(bindings)
    assert environment["GH_TOKEN"] == environment["GITHUB_TOKEN"] == bindings[0].placeholder
    for url, placeholder in (
        ("https://github.com/owner/project.git", bindings[0].placeholder),
        ("https://a.test:8443/x", bindings[-1].placeholder),
    ):
        # git itself says what it would send.
        said = subprocess.run(
            ["git", "config", "--get-urlmatch", "http.extraHeader", url],
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **environment},
            capture_output=True, text=True, check=True, timeout=30,
        ).stdout.strip()  # fmt: skip
        scheme, _, credentials = said.removeprefix("Authorization: ").partition(" ")
        assert scheme == "Basic"
        assert base64.b64decode(credentials).decode() == f"x-access-token:{placeholder}"
    assert "GIT_CONFIG_COUNT" not in guest_environment(bind([parse_binding("KEY@a.test")],
                                                            "local", VALUES))  # fmt: skip
