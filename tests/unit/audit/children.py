"""A process that writes a log until it is killed: `children.py DIRECTORY`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from agentkernel.audit.log import AuditLog, Retention


def main() -> None:
    log = AuditLog(Path(sys.argv[1]), Retention(file_bytes=64 << 10, keep_bytes=64 << 20))
    while True:
        seq = log.append("test", args={"text": "x" * 300})
        os.write(1, b"%d\n" % seq)  # said only after it was written


main()
