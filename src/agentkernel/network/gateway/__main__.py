"""`python -m agentkernel.network.gateway STATE_DIR`: the gateway's process.

It belongs to a state directory and ends by itself: when no daemon is connected and no sandbox of it
lives, or when it is told to. Nothing else may read its memory, where secrets are.
"""

from __future__ import annotations

import sys

from agentkernel.network.gateway import process

if __name__ == "__main__":
    sys.exit(process.main(sys.argv[1:]))
