"""Addresses, names and paths that people type for the daemon."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

from agentkernel.config.addresses import check_address, check_host, check_origin


def _typed(check: Callable[[Any], str], wants: str) -> Callable[[str], str]:
    def convert(text: str) -> str:
        try:
            return check(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not {wants}") from None

    return convert


address = _typed(check_address, "an address such as 127.0.0.1:8700")
host_name = _typed(check_host, "a name such as ak.example.org")
origin = _typed(check_origin, "an origin such as https://app.example.org")


def real_path(text: str) -> str:
    """The daemon works in another directory than whoever starts it."""
    return os.path.abspath(os.path.expanduser(text))
