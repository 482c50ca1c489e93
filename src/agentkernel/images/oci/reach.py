"""How near to this machine somebody may have an image fetched from.

A registry is dialled by this process, which stands in the machine's own network. Its user may name
any; who acts with less only those that everybody can reach, and those of the user's config.toml.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

public_only: Final[ContextVar[bool]] = ContextVar("agentkernel_public_only", default=False)
