"""What a caller asks for: the HTTP API's bodies and queries, specs, the words of a command line."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
from types import SimpleNamespace
from typing import Any, cast

import msgspec
from hypothesis import strategies as st
from starlette.requests import HTTPConnection

from agentkernel.audit.trail import Trail
from agentkernel.backends.local.idmaps import guest_uid
from agentkernel.cli import values as cli_values
from agentkernel.cli.fields import spec_fields
from agentkernel.client.remote import Remote
from agentkernel.config.addresses import check_address, check_host, check_origin
from agentkernel.errors import InvalidInputError
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.spec import SandboxSpec, expand
from agentkernel.kernel.store import Store, TokenRecord
from agentkernel.kernel.tokens import Tokens
from agentkernel.kernel.updates import SandboxUpdate
from agentkernel.network.policy.names import canonical_host, written_name
from agentkernel.network.policy.paths import canonical_path
from agentkernel.network.policy.targets import check_rule, parse_target
from agentkernel.security.capabilities import capability_set
from agentkernel.security.seccomp.profile import parse_json
from agentkernel.server import bodies as http
from agentkernel.server import problems
from agentkernel.server.app import Service
from agentkernel.server.bounds import Bounds
from agentkernel.server.door import NetworkEntrance
from agentkernel.server.multipart import MultipartReader, Part
from agentkernel.server.tracing import traceparent_of

from .making import bodies, leaves, texts, words
from .target import Target

_sizes = st.sampled_from([0, 1, 1 << 20, 1 << 30, 1 << 62, 1 << 63, 1 << 64, 1 << 200, -1])
_spec = {
    "backend": st.sampled_from(["native", "x"]),
    "image": st.sampled_from(["host", "/", "\0", "debian:12", "UP/er", "a@sha256:0"]),
    "pull": st.sampled_from(["missing", "never", "x"]),
    "profile": st.sampled_from(["moderate", "permissive", "restrictive", "x"]),
    "user": words,
    "toolchains": st.booleans(),
    "nested_userns": st.booleans(),
    "memory_bytes": _sizes,
    "cpus": st.floats(),
    "pids": _sizes,
    "disk_bytes": _sizes,
    "unlimited_disk": st.booleans(),
    "nofile": _sizes,
    "ephemeral": st.booleans(),
    "env": st.dictionaries(words, words, max_size=3),
}
_command = {
    "argv": st.lists(words, max_size=3),
    "shell": words,
    "cwd": words,
    "user": words,
    "timeout_seconds": st.floats(),
    "stdin": words,
    "stdin_b64": words,
    "output_bytes": _sizes,
    "pty": st.tuples(_sizes, _sizes),
    "env": st.dictionaries(words, words, max_size=3),
}
_others = {
    "name": words,
    "labels": st.dictionaries(words, words, max_size=2),
    "ttl_seconds": st.floats(),
    "grace_seconds": st.floats(),
    "on_ttl": st.sampled_from(["stop", "remove", "x"]),
    "signal": _sizes,
    "kill": st.booleans(),
    "rows": _sizes,
    "path": words,
    "to": words,
    "mode": words,
}
_KINDS: tuple[type[Any], ...] = (
    http.NewSandbox,
    http.Stop,
    http.Extend,
    http.Signal,
    http.Command,
    http.Exec,
    http.Run,
    http.RunStream,
    http.RunBatch,
    SandboxUpdate,
    http.MakeDirectory,
    http.Move,
    http.Control,
)


def read_body(given: tuple[type[Any], bytes]) -> None:
    kind, text = given
    body = problems.decode(text, kind)
    if isinstance(body, SandboxSpec):
        # What is made of it is written down, for this machine and the kernel to read.
        msgspec.msgpack.encode(_plain(expand(body, owned=True)))
    for method in ("words", "options", "input"):
        if hasattr(body, method):
            getattr(body, method)()
    if isinstance(body, http.MakeDirectory):
        http.octal(body.mode)


def _plain(blueprint: Any) -> Any:
    return msgspec.to_builtins(blueprint)


class _Query(msgspec.Struct):
    path: str = ""
    offset: int = 0
    follow: bool = True
    seconds: float = 0
    label: list[str] = []


def read_query(text: bytes) -> None:
    fake = SimpleNamespace(scope={"query_string": text})
    problems.read_query(cast(HTTPConnection, fake), _Query)


_SPEC_WORDS = ("image", "profile", "user", "toolchains", "backend", "nested_userns")


def read_words(text: str) -> None:
    """Each value of a command line by itself: a message for argparse, or a value."""
    for parse in (
        cli_values.size_or_unlimited,
        cli_values.duration,
        cli_values.environment_entry,
        cli_values.label_entry,
    ):
        try:
            value = parse(text)
        except argparse.ArgumentTypeError:
            continue
        if isinstance(value, float):
            assert 0 < value < float("inf"), value
    cli_values.printable(text)
    options = argparse.Namespace(**dict.fromkeys(_SPEC_WORDS, text))
    options.disk = options.memory = options.cpus = options.pids = options.nofile = None
    options.best_effort = None
    options.network, options.secret = cli_values.names(text), [text]
    options.allow = options.deny = [text]
    spec_fields(options)


def read_user(text: str) -> None:
    assert 0 <= guest_uid(text) < 65536


def read_capabilities(names: list[str]) -> None:
    capability_set(names)


_rules = bodies(
    {
        "names": st.lists(st.sampled_from(["read", "clone", "no_such"]), max_size=2),
        "action": st.sampled_from(["SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO", "x"]),
        "errnoRet": st.integers(-1, 5000),
        "args": st.lists(
            bodies(
                {
                    "index": st.integers(-1, 7),
                    "value": st.integers(0, 2**65),
                    "valueTwo": st.integers(0, 2**65),
                    "op": st.sampled_from(["SCMP_CMP_EQ", "SCMP_CMP_MASKED_EQ"]),
                },
                leaves,
            ),
            max_size=2,
        ),
        "includes": bodies(
            {
                "caps": st.lists(words, max_size=2),
                "minKernel": st.sampled_from(["4.8", "²", "9" * 5000 + ".1"]),
            },
            leaves,
        ),
    },
    leaves,
)
_profiles = bodies(
    {
        "defaultAction": st.sampled_from(["SCMP_ACT_ERRNO", "SCMP_ACT_ALLOW"]),
        "defaultErrnoRet": st.integers(-1, 5000),
        "archMap": st.lists(st.just({"architecture": "SCMP_ARCH_X86_64", "subArchitectures": []})),
        "syscalls": st.lists(_rules, max_size=3),
    },
    leaves,
)


def read_profile(text: bytes) -> None:
    parse_json(text).resolve(arch="x86_64")


def _could_be_an_argument(text: str) -> bool:
    """Arguments of a program are bytes without a NUL."""
    try:
        return b"\0" not in text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False


def _service() -> Service:
    """All that an entrance asks for: bounds, and a daemon with one token."""
    record = TokenRecord(
        id="a" * 20, name="a", owner="token:a", scopes=["read"],
        sha256=hashlib.sha256(b"0" * 64).hexdigest(), created_at=0, last_used_at=9e9,
    )  # fmt: skip
    tokens = Tokens(cast(Store, None), cast(Trail, None))
    tokens._records = {record.id: record}
    return Service(cast(Kernel, SimpleNamespace(tokens=tokens)), bounds=Bounds(failure_burst=10**9))


def knock(given: tuple[list[tuple[bytes, bytes]], list[str]]) -> None:
    """Whoever is let in over a network showed the token, by our name, from nowhere or our page."""
    headers, protocols = given
    scope = {"type": "websocket", "headers": headers, "subprotocols": protocols,
             "client": ("192.0.2.1", 1), "path": "/"}  # fmt: skip
    entrance = NetworkEntrance(_service(), {"localhost:1"}, ["https://page"])
    traceparent_of(headers)
    page = entrance.place(scope)
    caller = entrance.admit(scope)
    told = dict(headers)
    assert caller.token == "a" * 20 and told[b"host"].lower() == b"localhost:1"
    assert page == told.get(b"origin") and page in (None, b"https://page")
    assert b"agentkernel-owner" not in told


_TOKEN = f"ak_{'a' * 20}_{'0' * 64}"
_values = {
    b"host": [b"localhost:1", b"LOCALHOST:1", b"localhost", b"[", b"a:b:c", b"\xff", b""],
    b"origin": [b"https://page", b"null", b"https://page/", b"\xff"],
    b"authorization": [f"Bearer {_TOKEN}".encode(), b"Bearer", b"bearer  x", b"\xff \xff", b""],
    b"agentkernel-owner": [b"local", b""],
    b"traceparent": [b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01", b"\xff", b"0" * 60],
}
_headers = st.lists(
    st.sampled_from(sorted(_values)).flatmap(
        lambda name: st.tuples(
            st.just(name), st.one_of(st.sampled_from(_values[name]), st.binary(max_size=30))
        )
    ),
    max_size=6,
)
_protocols = st.lists(st.sampled_from([f"bearer.{_TOKEN}", "bearer.", "agentkernel.v1", ""]))


def read_address(text: str) -> None:
    """An address of a daemon, as the environment and files have it."""
    for check in (check_address, check_host, check_origin):
        with contextlib.suppress(ValueError):
            assert check(check(text)) == check(text)
    Remote(text)


def read_host(text: str) -> None:
    """Hosts, paths and rules, by guests and by people: one spelling, or refused."""
    plain = canonical_path(text)
    assert plain is None or canonical_path(plain) == plain
    for parse in (canonical_host, written_name):
        with contextlib.suppress(InvalidInputError):
            assert parse(parse(text)) == parse(text)
    for deny in (False, True):
        with contextlib.suppress(InvalidInputError):
            rule = parse_target(text, source="", deny=deny)
            assert check_rule(rule) == rule


def read_form(text: bytes) -> None:
    reader = MultipartReader(b"x")
    for begin in range(0, len(text), 7):
        for event in reader.feed(text[begin : begin + 7]):
            assert event is None or isinstance(event, bytes | Part)
    reader.finish()


TARGETS = [
    Target("door", st.tuples(_headers, _protocols), knock),
    Target(
        "addresses",
        st.one_of(
            words,
            st.from_regex(r"\A(https?://|unix:)?[][a-z0-9.:@/?#%-]{0,20}\Z"),
            st.sampled_from(["http://[::1", "http://h:99999", "https://a:b@c", "unix:\0", "a:²"]),
        ).filter(_could_be_an_argument),
        read_address,
    ),
    Target(
        "hosts",
        st.one_of(
            words,
            st.text(alphabet="0123456789abx.:/[]*%-_\u3002\uff0e", max_size=30),
            st.sampled_from(
                [
                    "0x7f.1",
                    "[::ffff:127.0.0.1]:80",
                    "fe80::1%lo",
                    "private:splice:a:1",
                    "a:²",
                    "/%c0%ae%c0%ae/",
                    "/..;/",
                    "/%252e%252e/",
                    "0." * 120 + "0",
                    "::1/129",
                ]
            ),
        ),
        read_host,
    ),
    Target(
        "bodies",
        st.tuples(st.sampled_from(_KINDS), texts(bodies({**_spec, **_command, **_others}, leaves))),
        read_body,
    ),
    Target("specs", st.tuples(st.just(http.NewSandbox), texts(bodies(_spec, leaves))), read_body),
    Target(
        "queries",
        st.one_of(
            st.binary(max_size=40),
            st.sampled_from(
                [b"path=%ff", b"offset=" + b"9" * 5000, b"a=1&" * 200, b"label=a&label=b"]
            ),
        ),
        read_query,
    ),
    Target(
        "forms",
        st.lists(
            st.sampled_from(
                [
                    b"--x",
                    b"\r\n",
                    b"--",
                    b"\r\n\r\n",
                    b":",
                    b";",
                    b'"',
                    b"\\",
                    b"=",
                    b"name",
                    b"Content-Disposition: form-data; name=a; filename=",
                    b"--x--",
                    b"\xff",
                ]
            )
            | st.binary(max_size=8),
            max_size=24,
        ).map(b"".join),
        read_form,
    ),
    Target(
        "cli-values",
        st.one_of(
            words,
            st.from_regex(r"\A[0-9]{0,3}(\.[0-9]*)? ?[kmgtKMGTsmhd]?i?[bB]?\Z"),
            st.sampled_from(
                ["9" * 400, "9" * 5000 + "G", "0." + "0" * 400 + "1", "²", "٣G", "\udcff"]
            ),
        ).filter(_could_be_an_argument),
        read_words,
    ),
    Target("users", st.one_of(words, st.sampled_from(["9" * 5000, "1000"])), read_user),
    Target("capabilities", st.lists(words, max_size=3), read_capabilities),
    Target("seccomp", texts(_profiles), read_profile),
]
