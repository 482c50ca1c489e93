"""A control group for a normal user's sandboxes: systemd's to give, so systemd is asked.

A login session's group belongs to root. The user's own systemd (`user@UID.service`) has a subtree
and gives parts of it away: a scope with `Delegate=yes`. The daemon is started inside one; what it
then makes there is its own business, and stays when it ends.

`systemd-run` and not the bus by hand: it is there where systemd is, and it ends by exec, so the
process keeps its pid, its descriptors and its parent.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence

from agentkernel.backends.local.hierarchy import Hierarchy

# In the environment of a process that has been through this, whatever came of it.
_DONE = "AGENTKERNEL_SCOPE"
_PROBE_SECONDS = 10.0


def enter_own_scope(words: Sequence[str]) -> None:
    """Runs `python -m agentkernel WORDS` in a scope of its own in place of this process; returns
    if there is no need, or no way. Then `Hierarchy` says what can't be enforced."""
    if os.environ.pop(_DONE, None) is not None:
        return
    hierarchy = Hierarchy()
    if not hierarchy.unified or hierarchy.parents:
        return
    if (found := _find()) is None:
        return
    program, environment = found
    command = [sys.executable, "-P", "-m", "agentkernel", *words]
    os.execve(program, scope_words(program, command), {**environment, _DONE: "1"})


def is_possible() -> bool:
    return _find() is not None


def _find() -> tuple[str, dict[str, str]] | None:
    """The program that gives scopes away and the environment it needs, if that works."""
    program = shutil.which("systemd-run")
    environment = _environment(os.environ)
    if program is None or environment is None or not _works(program, environment):
        return None
    return program, environment


def scope_words(program: str, command: Sequence[str]) -> list[str]:
    unit = f"agentkernel-{os.getpid()}-{secrets.token_hex(4)}.scope"
    options = ["--user", "--scope", "--quiet", "--collect", f"--unit={unit}"]
    return [program, *options, "--property=Delegate=yes", "--", *command]


def _environment(here: Mapping[str, str]) -> dict[str, str] | None:
    """Ours, with the place of the user's systemd; None if it does not run."""
    place = here.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    if not os.path.exists(os.path.join(place, "systemd", "private")):
        return None
    return {**here, "XDG_RUNTIME_DIR": place}


def _works(program: str, environment: Mapping[str, str]) -> bool:
    """Tried before, because a process that has been replaced can't come back."""
    try:
        tried = subprocess.run(
            scope_words(program, ["true"]),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=environment,
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return tried.returncode == 0
