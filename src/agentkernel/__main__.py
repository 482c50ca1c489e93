"""`python -m agentkernel`."""

from __future__ import annotations

from agentkernel.cli.main import program

if __name__ == "__main__":
    program()
