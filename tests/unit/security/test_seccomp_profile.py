"""Reading profiles: what is accepted, what is refused, which rules are kept."""

from __future__ import annotations

import contextlib
import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.errors import InvalidInputError
from agentkernel.security.seccomp.profile import (
    RET_ALLOW,
    RET_ERRNO,
    RET_KILL_PROCESS,
    RET_KILL_THREAD,
    RET_LOG,
    RET_TRACE,
    RET_TRAP,
    load_profile,
    parse_json,
    parse_profile,
    running_kernel,
    shipped_profile,
)

ARG = {"index": 0, "value": 2114060288, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}
RULE = {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [ARG]}
BASE: dict[str, Any] = {
    "defaultAction": "SCMP_ACT_ERRNO",
    "defaultErrnoRet": 1,
    "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"],
    "syscalls": [RULE],
}


def with_change(path: list[Any], value: Any) -> dict[str, Any]:
    document = copy.deepcopy(BASE)
    place: Any = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return document


def test_a_profile_in_the_oci_format_is_read() -> None:
    profile = parse_profile(BASE)
    assert profile.default_action == RET_ERRNO | 1
    (rule,) = profile.rules
    assert rule.names == ("clone",)
    assert rule.action == RET_ALLOW
    assert (rule.args[0].op, rule.args[0].value) == ("MASKED_EQ", 2114060288)


@pytest.mark.parametrize(
    ("action", "ret", "expected"),
    [
        ("SCMP_ACT_ALLOW", None, RET_ALLOW),
        ("SCMP_ACT_LOG", None, RET_LOG),
        ("SCMP_ACT_TRAP", None, RET_TRAP),
        ("SCMP_ACT_KILL", None, RET_KILL_THREAD),
        ("SCMP_ACT_KILL_THREAD", None, RET_KILL_THREAD),
        ("SCMP_ACT_KILL_PROCESS", None, RET_KILL_PROCESS),
        ("SCMP_ACT_ERRNO", None, RET_ERRNO | 1),
        ("SCMP_ACT_ERRNO", 38, RET_ERRNO | 38),
        ("SCMP_ACT_ERRNO", 0, RET_ERRNO),
        ("SCMP_ACT_TRACE", 0xFFFF, RET_TRACE | 0xFFFF),
    ],
)
def test_actions(action: str, ret: int | None, expected: int) -> None:
    entry: dict[str, Any] = {"names": ["read"], "action": action}
    if ret is not None:
        entry["errnoRet"] = ret
    assert parse_profile({**BASE, "syscalls": [entry]}).rules[0].action == expected


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["surprise"], 1, "unknown key 'surprise'"),
        (["listenerPath"], "/x", "unknown key"),
        (["defaultAction"], "ALLOW", "unknown value"),
        (["defaultAction"], 7, "unknown value"),
        (["defaultErrnoRet"], -1, "not in 0..4095"),
        (["defaultErrnoRet"], 4096, "not in 0..4095"),
        (["defaultErrnoRet"], True, "not in 0..4095"),
        (["architectures"], ["SCMP_ARCH_Z80"], "SCMP_ARCH_Z80"),
        (["architectures"], "SCMP_ARCH_X86", "not a list"),
        (["archMap"], [{"architecture": "Z80"}], "archMap"),
        (["archMap"], [{"architecture": "SCMP_ARCH_X86", "sub": []}], "unknown key"),
        (["flags"], ["SECCOMP_FILTER_FLAG_LOG"], "flags"),
        (["syscalls"], {}, "not a list"),
        (["syscalls", 0], "read", "not an object"),
        (["syscalls", 0, "name"], "read", "unknown key 'name'"),
        (["syscalls", 0, "names"], [], "empty"),
        (["syscalls", 0, "names"], ["read", 3], "not a name"),
        (["syscalls", 0, "names"], ["read\n"], "no system call name"),
        (["syscalls", 0, "names"], ["READ"], "no system call name"),
        (["syscalls", 0, "names"], "read", "not a list"),
        (["syscalls", 0, "action"], "SCMP_ACT_NOTIFY", "unknown value"),
        (["syscalls", 0, "errnoRet"], 1, "takes no errno"),
        (["syscalls", 0, "args", 0, "index"], 6, "not in 0..5"),
        (["syscalls", 0, "args", 0, "index"], -1, "not in 0..5"),
        (["syscalls", 0, "args", 0, "index"], 1.0, "not in 0..5"),
        (["syscalls", 0, "args", 0, "op"], "SCMP_CMP_LIKE", "unknown value"),
        (["syscalls", 0, "args", 0, "value"], 1 << 64, "not in"),
        (["syscalls", 0, "args", 0, "value"], "1", "not in"),
        (["syscalls", 0, "args", 0, "valueTwo"], 1, "can never match"),
        (["syscalls", 0, "args", 0, "mask"], 1, "unknown key"),
        (["syscalls", 0, "includes"], {"cap": []}, "unknown key"),
        (["syscalls", 0, "includes"], {"caps": ["CAP_FLY"]}, "CAP_FLY"),
        (["syscalls", 0, "includes"], {"caps": ["chown"]}, "chown"),
        (["syscalls", 0, "excludes"], {"features": ["wings"]}, "wings"),
        (["syscalls", 0, "excludes"], {"minKernel": "new"}, "minKernel"),
        (["syscalls", 0, "excludes"], {"minKernel": 5}, "minKernel"),
    ],
)
def test_what_is_not_understood_is_refused(path: list[Any], value: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as caught:
        parse_profile(with_change(path, value))
    assert caught.value.code == "invalid_input"


@pytest.mark.parametrize("key", ["names", "action"])
def test_what_is_missing_is_named(key: str) -> None:
    entry = {name: value for name, value in RULE.items() if name != key}
    with pytest.raises(InvalidInputError, match=f"lacks '{key}'"):
        parse_profile({**BASE, "syscalls": [entry]})


@pytest.mark.parametrize("key", ["index", "value", "op"])
def test_what_an_argument_lacks_is_named(key: str) -> None:
    arg = {name: value for name, value in ARG.items() if name != key}
    with pytest.raises(InvalidInputError, match=f"lacks '{key}'"):
        parse_profile({**BASE, "syscalls": [{**RULE, "args": [arg]}]})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"defaultAction": "SCMP_ACT_ERRNO", "defaultAction": "SCMP_ACT_ALLOW"}',
        "[" * 200_000,
        b"\xff\xfe{}",
    ],
)
def test_bad_json_is_a_typed_error(text: str | bytes) -> None:
    with pytest.raises(InvalidInputError):
        parse_json(text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
PLACES: list[list[Any]] = [
    ["defaultAction"],
    ["defaultErrnoRet"],
    ["architectures"],
    ["archMap"],
    ["flags"],
    ["syscalls"],
    ["syscalls", 0],
    ["syscalls", 0, "names"],
    ["syscalls", 0, "action"],
    ["syscalls", 0, "args"],
    ["syscalls", 0, "args", 0],
    ["syscalls", 0, "args", 0, "index"],
    ["syscalls", 0, "args", 0, "op"],
    ["syscalls", 0, "args", 0, "valueTwo"],
    ["syscalls", 0, "includes"],
    ["syscalls", 0, "excludes"],
]


@given(st.sampled_from(PLACES), json_values)
def test_no_value_anywhere_raises_anything_else(path: list[Any], value: Any) -> None:
    with contextlib.suppress(InvalidInputError):
        parse_profile(with_change(path, value))


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(BASE))
    assert load_profile(path) == parse_profile(BASE)
    path.write_bytes(b" " * (1 << 20) + b"{}")
    with pytest.raises(InvalidInputError, match="1 MiB"):
        load_profile(path)
    with pytest.raises(FileNotFoundError):
        load_profile(tmp_path / "none")


def test_the_keys_docker_adds_are_read() -> None:
    document = {
        "defaultAction": "SCMP_ACT_ERRNO",
        "archMap": [
            {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86"]},
            {"architecture": "SCMP_ARCH_RISCV64", "subArchitectures": None},
        ],
        "syscalls": [
            {
                "names": ["clone", "only_on_s390"],
                "action": "SCMP_ACT_ALLOW",
                "comment": "",
                "args": None,
                "includes": {"arches": ["s390", "s390x"], "minKernel": "4.8"},
                "excludes": {"caps": ["CAP_SYS_ADMIN"]},
            }
        ],
    }
    (rule,) = parse_profile(document).rules
    assert rule.includes.min_kernel == (4, 8)


@pytest.mark.parametrize(
    ("includes", "excludes", "kept"),
    [
        ({}, {}, True),
        ({"caps": ["CAP_KILL"]}, {}, True),
        ({"caps": ["CAP_KILL", "CAP_SYS_ADMIN"]}, {}, False),
        ({}, {"caps": ["CAP_KILL", "CAP_SYS_ADMIN"]}, False),
        ({}, {"caps": ["CAP_SYS_ADMIN"]}, True),
        ({"arches": ["arm64", "amd64"]}, {}, True),
        ({"arches": ["arm64"]}, {}, False),
        ({}, {"arches": ["amd64"]}, False),
        ({}, {"arches": ["arm64"]}, True),
        ({"minKernel": "5.10"}, {}, True),
        ({"minKernel": "5.11"}, {}, False),
        ({"minKernel": "5.9"}, {}, True),
        ({}, {"minKernel": "5.9"}, False),
        ({}, {"minKernel": "6.0"}, True),
        ({"features": ["userns"]}, {}, False),
        ({}, {"features": ["userns"]}, True),
        ({"caps": ["CAP_KILL"]}, {"arches": ["amd64"]}, False),
    ],
)
def test_conditions(includes: dict[str, Any], excludes: dict[str, Any], kept: bool) -> None:
    profile = parse_profile(
        {**BASE, "syscalls": [{**RULE, "includes": includes, "excludes": excludes}]}
    )
    rules = profile.resolve(arch="x86_64", caps=["CAP_KILL"], kernel=(5, 10))
    assert bool(rules) is kept


def test_features_are_asked_for_by_name() -> None:
    profile = parse_profile({**BASE, "syscalls": [{**RULE, "includes": {"features": ["userns"]}}]})
    assert profile.resolve(arch="x86_64", features=["userns"])
    with pytest.raises(InvalidInputError, match="wings"):
        profile.resolve(arch="x86_64", features=["wings"])


def test_shipped_profiles_are_found_by_name_alone() -> None:
    for name in ("unknown", "../profiles/moderate", "", "moderate.json"):
        with pytest.raises(InvalidInputError, match="unknown seccomp profile"):
            shipped_profile(name)
    assert running_kernel() > (3, 0)
