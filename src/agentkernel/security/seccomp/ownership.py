"""Rules that emulate ownership where a sandbox has the id 0 and no other.

The kernel knows no second id there: it refuses to give a file to one, and to become one. Installers
do both, and give up. With these rules in front of a profile's own such calls say that they have
worked and do nothing, while calls that name the id 0 alone are left to the profile and the kernel,
and so still tell of a file that is missing.

What must hold: no rule lets a call through that the profile stops; each only answers in its place.
A program that believes it has given up root's rights has the rights it had: those of the one id
that everything in the sandbox has, which is an ordinary user's outside.
"""

from __future__ import annotations

from typing import Final

from agentkernel.security.seccomp.profile import RET_ERRNO, ArgTest, Rule

_SUCCESS: Final = RET_ERRNO | 0
# The id that is there, and -1 ("leave it"), as a C program may pass it: in 32 bits or in 64.
_KNOWN: Final = (0, 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF)

# Which arguments of a call are ids.
_IDS: Final = {
    ("chown", "lchown", "fchown"): (1, 2),
    ("fchownat",): (2, 3),
    ("setuid", "setgid"): (0,),
    ("setreuid", "setregid"): (0, 1),
    ("setresuid", "setresgid"): (0, 1, 2),
}


def _others(index: int) -> tuple[ArgTest, ...]:
    return tuple(ArgTest(index, "NE", value) for value in _KNOWN)


EMULATION: Final = (
    *(
        Rule(names, _SUCCESS, _others(index))
        for names, indexes in _IDS.items()
        for index in indexes
    ),
    # Its ids are in memory, which a filter can't read; the kernel forbids it here in any case.
    Rule(("setgroups",), _SUCCESS),
)
"""To stand before the rules of a profile."""
