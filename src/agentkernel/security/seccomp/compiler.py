"""Compiles a seccomp profile to classic BPF.

The result is the array of `struct sock_filter` that `seccomp(SECCOMP_SET_MODE_FILTER)` takes: eight
bytes an instruction, little endian. The program is laid out as

    wrong architecture?     kill the process: a second ABI would bypass every number below
    search                  balanced binary search over ranges of system call numbers
    verdicts                return instructions of the search
    argument blocks         one for each distinct list of tests, with returns of their own

What holds for every program:

- The first rule of the file that matches decides; the tests within a rule must all hold.
- Arguments are unsigned 64-bit numbers, compared in two halves.
- x32 calls get ENOSYS. So does every number the tables do not know when the default is an errno:
  libc tries new calls first and falls back on ENOSYS, but takes EPERM for an answer.
- Before an argument block nothing but the number and the architecture is read, so the kernel
  (5.11 and later) caches each plain "allow" and never runs the filter for it.
- All jumps go forward. A conditional jump reaches 255 instructions; where that is too short the
  assembler puts a long jump beside it.
"""

from __future__ import annotations

import errno
import functools
import struct
from collections.abc import Collection
from typing import Final

from agentkernel.errors import InvalidInputError
from agentkernel.security.capabilities import capability_set
from agentkernel.security.seccomp import ownership, syscalls
from agentkernel.security.seccomp import profile as profile_module
from agentkernel.security.seccomp.profile import (
    ACTION_MASK,
    RET_ERRNO,
    RET_KILL_PROCESS,
    ArgTest,
    Profile,
    Rule,
    shipped_path,
    shipped_profile,
)

MAX_INSTRUCTIONS: Final = 4096
"""BPF_MAXINSNS: the kernel takes no longer program."""

INSTRUCTION: Final = struct.Struct("<HBBI")
"""`struct sock_filter`: code, jump if true, jump if false, k."""

RET_ENOSYS: Final = RET_ERRNO | errno.ENOSYS

_LD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_AND = 0x54  # BPF_ALU | BPF_AND | BPF_K
_JA = 0x05  # BPF_JMP | BPF_JA
_JEQ = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_JGT = 0x25
_JGE = 0x35
_RET = 0x06  # BPF_RET | BPF_K

# Offsets in struct seccomp_data; an argument's low half comes first on both architectures.
_NR, _ARCH, _ARGS = 0, 4, 16

_WORD = 0xFFFFFFFF

# What to do with one system call: tests in order, each with its return value. The last has none.
_Chain = tuple[tuple[tuple[ArgTest, ...], int], ...]


def compile_profile(
    name: str,
    caps: Collection[str] = (),
    arch: str | None = None,
    *,
    allow_userns: bool = False,
    emulate_ids: bool = False,
) -> bytes:
    """The filter of a shipped profile, compiled once for each distinct set of arguments.

    `caps` are the capabilities the filtered processes hold (some rules depend on them), `arch` is
    this machine's own by default, `allow_userns` opens what nested user namespaces need,
    `emulate_ids` is for sandboxes that have the id 0 and no other (see `ownership`).
    """
    return _compiled(*_normal(name, caps, arch, allow_userns), emulate_ids)


def cache_key(
    name: str,
    caps: Collection[str] = (),
    arch: str | None = None,
    *,
    allow_userns: bool = False,
    emulate_ids: bool = False,
) -> str:
    """A name under which `compile_profile`'s result may be stored beyond this process.

    It changes with the profile, the tables and the compiler, so a stale filter is never found.
    """
    import hashlib  # only a caller with a disk cache pays for it

    # The capabilities are taken as they are: leaving out those no rule names means parsing first.
    target = syscalls.arch_named(arch).name
    inputs = (name, sorted(capability_set(caps)), target, bool(allow_userns), bool(emulate_ids))
    digest = hashlib.sha256(repr(inputs).encode())
    sources = (__file__, ownership.__file__, profile_module.__file__, syscalls.__file__)
    for path in (*sources, syscalls.data_path(), shipped_path(name)):
        with open(path, "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()[:32]


def _normal(
    name: str, caps: Collection[str], arch: str | None, allow_userns: bool
) -> tuple[str, frozenset[str], str, bool]:
    """Arguments that give the same program made equal: only capabilities a rule names matter."""
    used = capability_set(caps) & _caps_named(name)
    return name, used, syscalls.arch_named(arch).name, bool(allow_userns)


@functools.cache
def _caps_named(name: str) -> frozenset[str]:
    rules = shipped_profile(name).rules
    return frozenset().union(*(rule.includes.caps | rule.excludes.caps for rule in rules))


@functools.lru_cache(maxsize=64)
def _compiled(
    name: str, caps: frozenset[str], arch: str, allow_userns: bool, emulate_ids: bool
) -> bytes:
    features = ("userns",) if allow_userns else ()
    profile = shipped_profile(name)
    if emulate_ids:
        profile = Profile(profile.default_action, (*ownership.EMULATION, *profile.rules))
    return compile_rules(profile, arch=arch, caps=caps, features=features)


def compile_rules(
    profile: Profile,
    *,
    arch: str | None = None,
    caps: Collection[str] = (),
    features: Collection[str] = (),
    kernel: tuple[int, int] | None = None,
) -> bytes:
    """The filter of any profile. Raises `InvalidInputError` when it would be too long."""
    target = syscalls.arch_named(arch)
    rules = profile.resolve(arch=target.name, caps=caps, features=features, kernel=kernel)
    ranges = _ranges(_chains(rules, target.name, profile.default_action), target.name, profile)

    asm = _Assembler()
    native = asm.new_label()
    asm.emit(_LD, _ARCH)
    asm.jump(_JEQ, target.audit, native, None)
    asm.emit(_RET, RET_KILL_PROCESS)
    asm.place(native)
    asm.emit(_LD, _NR)
    targets = {verdict: asm.new_label() for _, verdict in ranges}
    _search(asm, ranges, targets)
    blocks = []
    for verdict, label in targets.items():
        if len(verdict) > 1:
            blocks.append((verdict, label))
            continue
        asm.place(label)
        asm.emit(_RET, verdict[0][1])
    returns: dict[int, int] = {}
    for verdict, label in blocks:
        asm.place(label)
        _argument_block(asm, verdict, returns)
    for action, label in returns.items():
        asm.place(label)
        asm.emit(_RET, action)
    return asm.assemble()


def _chains(rules: tuple[Rule, ...], arch: str, default: int) -> dict[int, _Chain]:
    """Number to verdict, for every system call the architecture has."""
    numbers = syscalls.table(arch)
    chains: dict[int, list[tuple[tuple[ArgTest, ...], int]]] = {n: [] for n in numbers.values()}
    for rule in rules:
        for name in rule.names:
            number = numbers.get(name)
            if number is None:
                continue
            chain = chains[number]
            if not chain or chain[-1][0]:  # a rule without tests ends the list
                chain.append((rule.args, rule.action))
    finished: dict[int, _Chain] = {}
    for number, chain in chains.items():
        if not chain or chain[-1][0]:
            chain.append(((), default))
        while len(chain) > 1 and chain[-2][1] == chain[-1][1]:
            del chain[-2]  # its verdict is what follows anyway
        finished[number] = tuple(chain)
    return finished


def _ranges(chains: dict[int, _Chain], arch: str, profile: Profile) -> list[tuple[int, _Chain]]:
    """First numbers of the ranges with one verdict, ascending, covering all of 32 bits."""
    default = profile.default_action
    unknown: _Chain = (((), RET_ENOSYS if default & ACTION_MASK == RET_ERRNO else default),)
    found: list[tuple[int, _Chain]] = []

    def start(number: int, verdict: _Chain) -> None:
        if not found or found[-1][1] != verdict:
            found.append((number, verdict))

    expected = 0
    for number in sorted(chains):
        if number > expected:
            start(expected, unknown)
        start(number, chains[number])
        expected = number + 1
    start(expected, unknown)
    if arch == "x86_64":
        start(syscalls.X32_BIT, (((), RET_ENOSYS),))
    return found


def _search(asm: _Assembler, ranges: list[tuple[int, _Chain]], targets: dict[_Chain, int]) -> None:
    """Binary search: the accumulator holds the number, each leaf is a jump to a verdict."""
    if len(ranges) == 1:
        asm.emit(_JA, 0, targets[ranges[0][1]])
        return
    middle = len(ranges) // 2
    low, high = ranges[:middle], ranges[middle:]
    below = targets[low[0][1]] if len(low) == 1 else None
    above = targets[high[0][1]] if len(high) == 1 else asm.new_label()
    asm.jump(_JGE, high[0][0], above, below)
    if len(low) > 1:
        _search(asm, low, targets)
    if len(high) > 1:
        asm.place(above)
        _search(asm, high, targets)


def _argument_block(asm: _Assembler, chain: _Chain, returns: dict[int, int]) -> None:
    for tests, action in chain:
        if action not in returns:
            returns[action] = asm.new_label()
        failed = asm.new_label()
        for number, test in enumerate(tests):
            last = number == len(tests) - 1
            passed = returns[action] if last else asm.new_label()
            _compare(asm, test, passed, failed)
            if not last:
                asm.place(passed)
        if not tests:
            asm.emit(_JA, 0, returns[action])
        asm.place(failed)


def _compare(asm: _Assembler, test: ArgTest, passed: int, failed: int) -> None:
    """Jump to `passed` or `failed`; never falls through."""
    low, high = _ARGS + 8 * test.index, _ARGS + 8 * test.index + 4
    value_low, value_high = test.value & _WORD, test.value >> 32

    if test.op == "MASKED_EQ":
        halves = [
            (offset, mask, wanted)
            for offset, mask, wanted in (
                (high, value_high, test.value_two >> 32),
                (low, value_low, test.value_two & _WORD),
            )
            if mask
        ]
        for number, (offset, mask, wanted) in enumerate(halves):
            asm.emit(_LD, offset)
            if mask != _WORD:
                asm.emit(_AND, mask)
            asm.jump(_JEQ, wanted, passed if number == len(halves) - 1 else None, failed)
        if not halves:
            asm.emit(_JA, 0, passed)
        return
    if test.op in ("EQ", "NE"):
        equal, other = (passed, failed) if test.op == "EQ" else (failed, passed)
        asm.emit(_LD, high)
        asm.jump(_JEQ, value_high, None, other)
        asm.emit(_LD, low)
        asm.jump(_JEQ, value_low, equal, other)
        return
    # LT is "not GE" and LE is "not GT": the same code with the two ways swapped.
    greater, other = (passed, failed) if test.op in ("GT", "GE") else (failed, passed)
    asm.emit(_LD, high)
    asm.jump(_JGT, value_high, greater, None)
    asm.jump(_JEQ, value_high, None, other)
    asm.emit(_LD, low)
    asm.jump(_JGE if test.op in ("GE", "LT") else _JGT, value_low, greater, other)


class _Assembler:
    """Instructions and labels in program order; offsets are found at the end."""

    def __init__(self) -> None:
        # (code, k, label if true, label if false); a bare int is a label at that place.
        self._items: list[int | tuple[int, int, int, int]] = []
        self._labels = 0

    def new_label(self) -> int:
        self._labels += 1
        return self._labels

    def place(self, label: int) -> None:
        self._items.append(label)

    def emit(self, code: int, k: int, target: int = 0) -> None:
        """An instruction that is no conditional jump; `target` is for the long jump alone."""
        self._items.append((code, k, target, 0))

    def jump(self, code: int, k: int, true: int | None, false: int | None) -> None:
        """A conditional jump; None means the instruction that follows."""
        follows = self.new_label()
        self._items.append(
            (code, k, follows if true is None else true, follows if false is None else false)
        )
        self._items.append(follows)

    def assemble(self) -> bytes:
        self._drop_idle_jumps()
        while True:
            places, size = self._addresses()
            if size > MAX_INSTRUCTIONS:
                raise InvalidInputError(
                    f"the seccomp filter needs {size} instructions, the kernel takes at most "
                    f"{MAX_INSTRUCTIONS}"
                )
            if not self._stretch(places):
                return self._encode(places)

    def _drop_idle_jumps(self) -> None:
        """Remove long jumps to the place right behind them."""
        kept: list[int | tuple[int, int, int, int]] = []
        for number, item in enumerate(self._items):
            if isinstance(item, tuple) and item[0] == _JA:
                after = number + 1
                while after < len(self._items) and isinstance(self._items[after], int):
                    if self._items[after] == item[2]:
                        break
                    after += 1
                if after < len(self._items) and self._items[after] == item[2]:
                    continue
            kept.append(item)
        self._items = kept

    def _addresses(self) -> tuple[dict[int, int], int]:
        places: dict[int, int] = {}
        address = 0
        for item in self._items:
            if isinstance(item, int):
                places[item] = address
            else:
                address += 1
        return places, address

    def _stretch(self, places: dict[int, int]) -> bool:
        """Give each conditional jump that cannot reach its target a long jump right behind it.

        One round may push other targets out of reach, so the caller repeats until nothing changes.
        Nothing falls into an inserted jump: what stands before it is always a conditional jump
        whose two ways are labels.
        """
        stretched = False
        items: list[int | tuple[int, int, int, int]] = []
        address = 0
        for item in self._items:
            if isinstance(item, int):
                items.append(item)
                continue
            address += 1
            code, k, *ways = item
            far: list[int | tuple[int, int, int, int]] = []
            if code in (_JEQ, _JGT, _JGE):
                for number, way in enumerate(ways):
                    if places[way] - address > 255:
                        ways[number] = self.new_label()
                        far += [ways[number], (_JA, 0, way, 0)]
                        stretched = True
            items += [(code, k, ways[0], ways[1]), *far]
        self._items = items
        return stretched

    def _encode(self, places: dict[int, int]) -> bytes:
        program = bytearray()
        address = 0
        for item in self._items:
            if isinstance(item, int):
                continue
            address += 1
            code, k, true, false = item
            if code == _JA:
                program += INSTRUCTION.pack(_JA, 0, 0, places[true] - address)
            elif code in (_JEQ, _JGT, _JGE):
                program += INSTRUCTION.pack(
                    code, places[true] - address, places[false] - address, k
                )
            else:
                program += INSTRUCTION.pack(code, 0, 0, k)
        return bytes(program)
