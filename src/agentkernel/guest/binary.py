"""Where this machine's agentd is."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from agentkernel.errors import BuildError

ENVIRONMENT = "AGENTKERNEL_AGENTD"
_PACKAGE_DATA = Path(__file__).resolve().parent.parent / "_agentd"


def agentd_path() -> Path:
    """The agentd named by AGENTKERNEL_AGENTD, else the package's own for this architecture.

    Raises BuildError where there is none that could be run.
    """
    if named := os.environ.get(ENVIRONMENT):
        path = Path(named).absolute()
        hint = f"correct {ENVIRONMENT}, or unset it to use the one that comes with agentkernel"
    else:
        path = _PACKAGE_DATA / platform.machine() / "agentd"
        hint = (
            "in a clone, start ./agentkernel, which builds it, or run "
            f"python tools/agentd_build.py --out {path}"
        )
    if not path.is_file():
        raise BuildError(f"there is no agentd at {path}", hint=hint)
    if not os.access(path, os.X_OK):
        raise BuildError(f"{path} may not be executed by this user", hint=hint)
    return path
