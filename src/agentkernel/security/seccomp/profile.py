"""Reads seccomp profiles in the OCI runtime-spec format, with Docker's conditions.

A profile is checked whole before any of it is used: an unknown key, action, operator or condition
is an `InvalidInputError` that says where, because a word that is silently ignored in a security
policy is a hole. Only system call *names* may be unknown: a profile lists calls of many
architectures and kernels, and a call that does not exist needs no rule.

Of the keys the OCI runtime-spec does not have, these are read:

    comment                 any text, ignored
    archMap                 Docker's, checked and otherwise ignored
    includes, excludes      conditions on a rule: `caps`, `arches`, `minKernel` as Docker has them,
                            and `features`, our own: names of things the spec asked for ("userns")

A rule is kept when all of `includes` hold and none of `excludes` does.
"""

from __future__ import annotations

import errno
import functools
import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from agentkernel.errors import InvalidInputError
from agentkernel.security.capabilities import ALL_CAPABILITIES, capability_set
from agentkernel.security.seccomp.syscalls import arch_named

RET_KILL_PROCESS: Final = 0x80000000
RET_KILL_THREAD: Final = 0x00000000
RET_TRAP: Final = 0x00030000
RET_ERRNO: Final = 0x00050000
RET_TRACE: Final = 0x7FF00000
RET_LOG: Final = 0x7FFC0000
RET_ALLOW: Final = 0x7FFF0000
ACTION_MASK: Final = 0xFFFF0000

_ACTIONS = {
    "SCMP_ACT_KILL": RET_KILL_THREAD,
    "SCMP_ACT_KILL_THREAD": RET_KILL_THREAD,
    "SCMP_ACT_KILL_PROCESS": RET_KILL_PROCESS,
    "SCMP_ACT_TRAP": RET_TRAP,
    "SCMP_ACT_ERRNO": RET_ERRNO,
    "SCMP_ACT_TRACE": RET_TRACE,
    "SCMP_ACT_LOG": RET_LOG,
    "SCMP_ACT_ALLOW": RET_ALLOW,
}
_OPERATORS = frozenset(
    f"SCMP_CMP_{word}" for word in ("EQ", "NE", "LT", "LE", "GT", "GE", "MASKED_EQ")
)
_SCMP_ARCHES = frozenset(
    f"SCMP_ARCH_{word}"
    for word in (
        *("X86", "X86_64", "X32", "ARM", "AARCH64", "RISCV64", "LOONGARCH64"),
        *("MIPS", "MIPS64", "MIPS64N32", "MIPSEL", "MIPSEL64", "MIPSEL64N32"),
        *("PPC", "PPC64", "PPC64LE", "S390", "S390X", "PARISC", "PARISC64", "M68K", "SH", "SHEB"),
    )
)
FEATURES: Final = frozenset({"userns"})
"""What a `features` condition may name. `userns`: the spec asked for nested user namespaces."""

SHIPPED: Final = ("permissive", "moderate", "restrictive")

MAX_ERRNO: Final = 4095
_U64 = (1 << 64) - 1
_MAX_FILE = 1 << 20
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,63}", re.ASCII)
_KERNEL = re.compile(r"(\d{1,4})\.(\d{1,4})", re.ASCII)


@dataclass(frozen=True, slots=True)
class ArgTest:
    """One comparison of a 64-bit argument, unsigned.

    For `MASKED_EQ` the spec's order holds: `value` is the mask, `value_two` the wanted result.
    """

    index: int
    op: str
    value: int
    value_two: int = 0


@dataclass(frozen=True, slots=True)
class Conditions:
    """When a rule belongs to the profile at all; decided before compilation."""

    caps: frozenset[str] = frozenset()
    arches: frozenset[str] = frozenset()
    min_kernel: tuple[int, int] | None = None
    features: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Rule:
    """System calls, the argument tests that must all hold, and the value the filter returns."""

    names: tuple[str, ...]
    action: int
    args: tuple[ArgTest, ...] = ()
    includes: Conditions = Conditions()
    excludes: Conditions = Conditions()


@dataclass(frozen=True, slots=True)
class Profile:
    """A checked profile. Rules are in file order: the first that matches a call decides it."""

    default_action: int
    rules: tuple[Rule, ...]

    def resolve(
        self,
        *,
        arch: str,
        caps: Collection[str] = (),
        features: Collection[str] = (),
        kernel: tuple[int, int] | None = None,
    ) -> tuple[Rule, ...]:
        """The rules whose conditions hold, in order. `kernel` is the running one by default."""
        have = capability_set(caps)
        asked = frozenset(features)
        if unknown := asked - FEATURES:
            raise InvalidInputError(f"unknown seccomp feature {min(unknown)!r}")
        docker_arch = arch_named(arch).docker
        kernel = kernel or running_kernel()

        def holds(rule: Rule) -> bool:
            inc, exc = rule.includes, rule.excludes
            if exc.caps & have or docker_arch in exc.arches or exc.features & asked:
                return False
            if exc.min_kernel is not None and kernel >= exc.min_kernel:
                return False
            if inc.arches and docker_arch not in inc.arches:
                return False
            if inc.min_kernel is not None and kernel < inc.min_kernel:
                return False
            return inc.caps <= have and inc.features <= asked

        return tuple(rule for rule in self.rules if holds(rule))


def running_kernel() -> tuple[int, int]:
    """Major and minor version of this kernel."""
    match = _KERNEL.match(os.uname().release)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def shipped_path(name: str) -> str:
    """The file of a shipped profile; `InvalidInputError` when there is none of that name."""
    if name not in SHIPPED:
        raise InvalidInputError(
            f"unknown seccomp profile {name!r}", hint=f"one of: {', '.join(SHIPPED)}"
        )
    return os.path.join(os.path.dirname(__file__), "profiles", f"{name}.json")


@functools.cache
def shipped_profile(name: str) -> Profile:
    """A profile that comes with the package."""
    return load_profile(shipped_path(name))


def load_profile(path: str | os.PathLike[str]) -> Profile:
    """Read a profile file. OS errors pass through; every fault in the content is typed."""
    with open(path, "rb") as file:
        content = file.read(_MAX_FILE + 1)
    if len(content) > _MAX_FILE:
        raise InvalidInputError(f"seccomp profile {os.fspath(path)} is larger than 1 MiB")
    return parse_json(content)


def parse_json(content: bytes | str) -> Profile:
    """A profile from JSON text."""
    import json

    try:
        document = json.loads(content, object_pairs_hook=_no_duplicates)
    except InvalidInputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"seccomp profile is not valid JSON: {error}") from None
    return parse_profile(document)


def parse_profile(document: Any) -> Profile:
    """A profile from decoded JSON."""
    body = _object(
        document,
        "profile",
        required={"defaultAction"},
        optional={"defaultErrnoRet", "architectures", "archMap", "flags", "syscalls", "comment"},
    )
    default = _action(body["defaultAction"], body.get("defaultErrnoRet"), "defaultAction")
    for name in _strings(body.get("architectures"), "architectures"):
        _one_of(name, _SCMP_ARCHES, "architectures")
    _check_arch_map(body.get("archMap"))
    if body.get("flags"):
        # They change how a filter is installed, which is the launcher's business alone.
        raise InvalidInputError("seccomp profile: 'flags' are not supported")
    rules = [
        _rule(entry, f"syscalls[{number}]")
        for number, entry in enumerate(_list(body.get("syscalls"), "syscalls"))
    ]
    return Profile(default, tuple(rules))


def _rule(entry: Any, where: str) -> Rule:
    body = _object(
        entry,
        where,
        required={"names", "action"},
        optional={"errnoRet", "args", "includes", "excludes", "comment"},
    )
    names = tuple(_strings(body["names"], f"{where}.names"))
    if not names:
        raise InvalidInputError(f"seccomp profile: {where}.names is empty")
    for name in names:
        if not _NAME.fullmatch(name):
            raise InvalidInputError(f"seccomp profile: {where}: {name!r} is no system call name")
    return Rule(
        names,
        _action(body["action"], body.get("errnoRet"), f"{where}.action"),
        tuple(
            _arg_test(arg, f"{where}.args[{number}]")
            for number, arg in enumerate(_list(body.get("args"), f"{where}.args"))
        ),
        _conditions(body.get("includes"), f"{where}.includes"),
        _conditions(body.get("excludes"), f"{where}.excludes"),
    )


def _arg_test(arg: Any, where: str) -> ArgTest:
    body = _object(arg, where, required={"index", "value", "op"}, optional={"valueTwo"})
    test = ArgTest(
        _integer(body["index"], 5, f"{where}.index"),
        _one_of(body["op"], _OPERATORS, f"{where}.op").removeprefix("SCMP_CMP_"),
        _integer(body["value"], _U64, f"{where}.value"),
        _integer(body.get("valueTwo", 0), _U64, f"{where}.valueTwo"),
    )
    if test.op == "MASKED_EQ" and test.value_two & ~test.value:
        raise InvalidInputError(
            f"seccomp profile: {where} can never match: valueTwo has bits outside the mask",
            hint="for SCMP_CMP_MASKED_EQ, value is the mask and valueTwo the wanted result",
        )
    return test


def _conditions(value: Any, where: str) -> Conditions:
    if value is None:
        return Conditions()
    body = _object(value, where, optional={"caps", "arches", "minKernel", "features"})
    min_kernel = None
    if (text := body.get("minKernel")) is not None:
        match = _KERNEL.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise InvalidInputError(f"seccomp profile: {where}.minKernel {text!r} is not like 4.8")
        min_kernel = (int(match[1]), int(match[2]))
    caps = frozenset(_strings(body.get("caps"), f"{where}.caps"))
    for cap in caps:
        _one_of(cap, ALL_CAPABILITIES, f"{where}.caps")
    features = frozenset(_strings(body.get("features"), f"{where}.features"))
    for feature in features:
        _one_of(feature, FEATURES, f"{where}.features")
    # Any architecture may be named: Docker's own profile names a dozen we carry no table for.
    arches = frozenset(_strings(body.get("arches"), f"{where}.arches"))
    return Conditions(caps, arches, min_kernel, features)


def _action(value: Any, errno_ret: Any, where: str) -> int:
    action = _ACTIONS[_one_of(value, _ACTIONS, where)]
    if action in (RET_ERRNO, RET_TRACE):
        if errno_ret is None:
            return action | errno.EPERM
        # Beyond MAX_ERRNO the kernel would quietly clip an errno; a tracer gets 16 bits whole.
        limit = MAX_ERRNO if action == RET_ERRNO else 0xFFFF
        return action | _integer(errno_ret, limit, f"{where} errno")
    if errno_ret is not None:
        raise InvalidInputError(f"seccomp profile: {where}: {value} takes no errno")
    return action


def _check_arch_map(value: Any) -> None:
    for number, entry in enumerate(_list(value, "archMap")):
        where = f"archMap[{number}]"
        keys = {"architecture"}
        body = _object(entry, where, required=keys, optional={"subArchitectures"})
        _one_of(body["architecture"], _SCMP_ARCHES, where)
        for name in _strings(body.get("subArchitectures"), where):
            _one_of(name, _SCMP_ARCHES, where)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    body = dict(pairs)
    if len(body) != len(pairs):
        raise InvalidInputError("seccomp profile: a key appears twice in one object")
    return body


def _object(
    value: Any,
    where: str,
    *,
    required: Collection[str] = frozenset(),
    optional: Collection[str] = frozenset(),
) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidInputError(f"seccomp profile: {where} is not an object")
    for key in value:
        if key not in required and key not in optional:
            raise InvalidInputError(f"seccomp profile: {where} has an unknown key {key!r}")
    for key in sorted(required):
        if key not in value:
            raise InvalidInputError(f"seccomp profile: {where} lacks {key!r}")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidInputError(f"seccomp profile: {where} is not a list")
    return value


def _strings(value: Any, where: str) -> list[str]:
    items = _list(value, where)
    for item in items:
        if not isinstance(item, str):
            raise InvalidInputError(f"seccomp profile: {where} holds {item!r}, not a name")
    return items


def _integer(value: Any, limit: int, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= limit:
        raise InvalidInputError(f"seccomp profile: {where} is {value!r}, not in 0..{limit}")
    return value


def _one_of(value: Any, known: Iterable[str], where: str) -> str:
    if not isinstance(value, str) or value not in known:
        raise InvalidInputError(f"seccomp profile: {where}: unknown value {value!r}")
    return value
