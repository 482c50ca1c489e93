"""Linux capabilities: names, numbers and masks.

Everywhere in the project a capability is its upper-case name with the prefix (`CAP_CHOWN`), and a
set of them is a frozenset of such names; masks exist only where the kernel or the guest agent wants
one. Numbers are kernel ABI (`linux/capability.h`) and never change.
"""

from __future__ import annotations

from collections.abc import Iterable

from agentkernel.errors import InvalidInputError

CAPABILITIES: tuple[str, ...] = (
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_LINUX_IMMUTABLE",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_BROADCAST",
    "CAP_NET_ADMIN",
    "CAP_NET_RAW",
    "CAP_IPC_LOCK",
    "CAP_IPC_OWNER",
    "CAP_SYS_MODULE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",
    "CAP_SYS_PACCT",
    "CAP_SYS_ADMIN",
    "CAP_SYS_BOOT",
    "CAP_SYS_NICE",
    "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG",
    "CAP_MKNOD",
    "CAP_LEASE",
    "CAP_AUDIT_WRITE",
    "CAP_AUDIT_CONTROL",
    "CAP_SETFCAP",
    "CAP_MAC_OVERRIDE",
    "CAP_MAC_ADMIN",
    "CAP_SYSLOG",
    "CAP_WAKE_ALARM",
    "CAP_BLOCK_SUSPEND",
    "CAP_AUDIT_READ",
    "CAP_PERFMON",
    "CAP_BPF",
    "CAP_CHECKPOINT_RESTORE",
)
"""Every capability, at the index that is its number."""

ALL_CAPABILITIES: frozenset[str] = frozenset(CAPABILITIES)
LAST_CAP: int = len(CAPABILITIES) - 1

_NUMBERS = {name: number for number, name in enumerate(CAPABILITIES)}


def capability_name(word: str) -> str:
    """The canonical name of `cap_chown`, `CHOWN` or `CAP_CHOWN`; anything else is refused."""
    name = word.strip().upper() if word.isascii() else ""
    if not name.startswith("CAP_"):
        name = f"CAP_{name}"
    if name not in _NUMBERS:
        raise InvalidInputError(f"unknown capability {word!r}", hint="names are like CAP_CHOWN")
    return name


def capability_number(word: str) -> int:
    """The number of a capability, by any spelling `capability_name` takes."""
    return _NUMBERS[capability_name(word)]


def capability_set(words: Iterable[str]) -> frozenset[str]:
    """Canonical names for a list of words, as a user or a file wrote them."""
    if isinstance(words, str):
        raise InvalidInputError("capabilities are a list of names, not one string")
    return frozenset(capability_name(word) for word in words)


def to_mask(words: Iterable[str]) -> int:
    """The bit mask of a set, as `capset` and `/proc/PID/status` write it."""
    mask = 0
    for name in capability_set(words):
        mask |= 1 << _NUMBERS[name]
    return mask


def from_mask(mask: int) -> frozenset[str]:
    """The names in a mask. A bit no capability has is refused rather than dropped."""
    if mask < 0 or mask >> len(CAPABILITIES):
        raise InvalidInputError(f"capability mask {mask:#x} has bits beyond CAP {LAST_CAP}")
    return frozenset(name for number, name in enumerate(CAPABILITIES) if mask >> number & 1)
