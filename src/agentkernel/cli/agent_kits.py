"""`agentkernel agent list`."""

from __future__ import annotations

import argparse

from agentkernel.errors import UnsupportedError


def main(options: argparse.Namespace) -> int:
    raise UnsupportedError("`agentkernel agent list` is not built in yet")
