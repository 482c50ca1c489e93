"""Which secret a sandbox may use, where, and how: what people write, and what is stored.

NAME                            a preset's own variable, such as GITHUB_TOKEN: its hosts, headers
NAME@github                     a preset
NAME@api.example.org            a host; its port is 443
NAME@api.example.org:8443,*.example.org
NAME@github,ghe.example.org     as the preset says, but there
VARIABLE=NAME@…                 the variable inside, if it is not called NAME
…,header=x-api-key              the header it is swapped in, instead of Authorization
…,in=query  …,in=body           there, too
…,git                           git inside sends it to these hosts
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from agentkernel.errors import InvalidInputError, NotFoundError
from agentkernel.network.policy.model import SecretBinding
from agentkernel.network.policy.names import canonical_host, is_name, written_name
from agentkernel.network.policy.targets import parse_port, split_port
from agentkernel.network.secrets.names import made_by
from agentkernel.network.secrets.placeholders import make_placeholder
from agentkernel.network.secrets.presets import (
    AUTHORIZATION,
    SECRET_PRESETS,
    SecretPreset,
    preset_of_name,
)
from agentkernel.network.secrets.swapping import HTTPS, split_target

MOST_BINDINGS: Final = 32
_MOST_HOSTS: Final = 32
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_HEADER: Final = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,64}")
# What decides where a request goes, or where it ends: a secret in there would be read by nobody,
# or change what is sent.
_NO_SECRETS: Final = frozenset(
    (
        "host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer",
        "expect", "content-type", "content-encoding", "proxy-authorization", "proxy-connection",
    )
)  # fmt: skip
_HINT: Final = (
    "write NAME@HOST[,HOST], NAME@PRESET or VARIABLE=NAME@HOST; more words: header=NAME, in=query, "
    f"in=body, git; presets: {', '.join(SECRET_PRESETS)}"
)


class SecretRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A binding as it is asked for, with its preset's words in place."""

    name: str
    env: tuple[str, ...]
    hosts: Annotated[tuple[str, ...], Meta(min_length=1, max_length=_MOST_HOSTS)]
    headers: tuple[str, ...] = AUTHORIZATION
    query: bool = False
    body: bool = False
    git: bool = False


def check_secret_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidInputError(
            f"{name[:80]!a} is not a secret's name",
            hint="use letters, digits, '_' and '-', at most 64",
        )
    return name


def parse_binding(text: str) -> SecretRequest:
    """Raises InvalidInputError that says what is wrong with it."""
    try:
        return _parse(text)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"{text[:300]!a} does not say where a secret may go: {error.message}",
            hint=error.hint or _HINT,
        ) from None


def _parse(text: str) -> SecretRequest:
    left, at, right = text.partition("@")
    variable, equals, name = left.rpartition("=")
    check_secret_name(name)
    if equals and not _VARIABLE.fullmatch(variable):
        raise InvalidInputError(f"{variable[:80]!a} is not a variable's name")
    preset = None if at else preset_of_name(name)
    if not at and preset is None:
        raise InvalidInputError("it names no host", hint=_HINT)
    hosts: list[str] = []
    headers: list[str] = []
    places: set[str] = set()
    git = False
    for word in right.split(",") if at else ():
        key, has_value, value = word.partition("=")
        if word in SECRET_PRESETS and preset is None and not hosts:
            # The first word alone: a host of that name is written with its port.
            preset = SECRET_PRESETS[word]
        elif word == "git":
            git = True
        elif not has_value:
            hosts.append(_host(word))
        elif key == "header":
            headers.append(_header(value))
        elif key == "in" and value in ("query", "body"):
            places.add(value)
        else:
            raise InvalidInputError(f"{word[:80]!a} is not known")
    if preset is None and not hosts:
        raise InvalidInputError("it names no host")
    if len(hosts) > _MOST_HOSTS:
        raise InvalidInputError(f"it names more than {_MOST_HOSTS} hosts")
    base = preset or SecretPreset("", (), ())
    return SecretRequest(
        name=name,
        env=(variable,) if equals else base.env or (_variable_of(name),),
        hosts=tuple(dict.fromkeys(hosts)) or base.hosts,
        headers=tuple(dict.fromkeys(headers)) or base.headers,
        query="query" in places or base.query,
        body="body" in places,
        git=git or base.git,
    )


def bind(
    requests: Iterable[SecretRequest], owner: str, values: Mapping[str, bytes]
) -> tuple[SecretBinding, ...]:
    """What is stored of a sandbox. One secret has one placeholder, however many bindings it has.

    `values`: by reference. Raises NotFoundError, InvalidInputError.
    """
    made: list[SecretBinding] = []
    placeholders: dict[str, str] = {}
    variables: dict[str, str] = {}
    for request in requests:
        reference = reference_of(owner, request.name)
        if reference not in values:
            raise NotFoundError(
                f"there is no secret {request.name}",
                hint=f"`{made_by(request.name)}` makes it",
            )
        if reference not in placeholders:
            placeholders[reference] = make_placeholder(values[reference])
        for variable in request.env:
            if variables.setdefault(variable, reference) != reference:
                raise InvalidInputError(
                    f"the variable {variable} can't hold two secrets",
                    hint=f"give one of them another: VARIABLE={request.name}@…",
                )
            made.append(
                SecretBinding(
                    reference=reference,
                    env=variable,
                    placeholder=placeholders[reference],
                    hosts=request.hosts,
                    headers=request.headers,
                    query=request.query,
                    body=request.body,
                    git=request.git,
                )
            )
    if len(made) > MOST_BINDINGS:
        raise InvalidInputError(f"a sandbox has at most {MOST_BINDINGS} bindings of secrets")
    return tuple(made)


def guest_environment(bindings: Sequence[SecretBinding]) -> dict[str, str]:
    """The variables inside. git is told by its own: a header for each host, with the placeholder as
    the password, in the form that the gateway swaps."""
    environment = {each.env: each.placeholder for each in bindings if each.env}
    told: dict[str, str] = {}
    for binding in bindings:
        if binding.git:
            credentials = f"x-access-token:{binding.placeholder}".encode()
            header = "Authorization: Basic " + base64.b64encode(credentials).decode()
            for host in binding.hosts:
                name, port = split_target(host)
                where = name if port == HTTPS else f"{name}:{port}"
                told.setdefault(f"http.https://{where}/.extraHeader", header)
    if told:
        environment["GIT_CONFIG_COUNT"] = str(len(told))
        for number, (key, value) in enumerate(told.items()):
            environment[f"GIT_CONFIG_KEY_{number}"] = key
            environment[f"GIT_CONFIG_VALUE_{number}"] = value
    return environment


def reference_of(owner: str, name: str) -> str:
    return f"{owner}/{name}"


def _host(word: str) -> str:
    host, port = split_port(word)
    if host.startswith("*."):
        below = written_name(host[2:])
        if "." not in below:
            raise InvalidInputError(f"{host!a} is more than one owner's")
        name = f"*.{below}"
    elif host == "*" or "/" in host:
        raise InvalidInputError("a secret is for hosts that are named, not for all or for a range")
    else:
        name = written_name(host) if not host.isascii() else canonical_host(host)
        if not is_name(name):
            raise InvalidInputError(
                f"{host!a} is an address, and a secret is sent only where a certificate names it",
                hint="give it a name: network.hosts in your config.toml says which address it has",
            )
    number = parse_port(port) if port else HTTPS
    return name if number == HTTPS else f"{name}:{number}"


def _header(name: str) -> str:
    lowered = name.lower()
    if not _HEADER.fullmatch(lowered) or lowered in _NO_SECRETS:
        raise InvalidInputError(f"{name[:80]!a} is not a header that can carry a secret")
    return lowered


def _variable_of(name: str) -> str:
    variable = name.replace("-", "_")
    return variable if _VARIABLE.fullmatch(variable) else f"_{variable}"[:128]
