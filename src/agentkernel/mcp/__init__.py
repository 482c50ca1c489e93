"""The Model Context Protocol: sandboxes as tools of a model.

Tools are written once against the daemon's client (`tools_*`), know nothing of the protocol, and
are served over stdio (`stdio`) and by the daemon (`http`). The `mcp` package is an extra and heavy:
`service`, `stdio` and `http` alone import it, and nobody imports them who does not serve.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

from agentkernel.errors import UnsupportedError

# The extra `mcp` of pyproject.toml. By name, not as `agentkernel[mcp]`: a clone is no package that
# pip knows, and whatever an index has under our name need not be ours.
EXTRA = ("mcp>=2,<3", "tomlkit>=0.13")


def require_extra(package: str = "mcp") -> None:
    """Raises UnsupportedError unless the extra is installed."""
    if find_spec(package) is None:
        raise UnsupportedError(
            f"this needs the package {package}, which is not installed",
            hint=f"{sys.executable} -m pip install {' '.join(map(repr, EXTRA))}",
        )
