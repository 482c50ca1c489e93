"""`python -m agentkernel`."""

from __future__ import annotations

import sys

from agentkernel.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
