"""Owners of a state directory that are killed: a process that forks one for each line it reads.

Forked from one that has everything loaded, an owner costs milliseconds. The line is a list of
state directory, operation, point and id; the answer is how the owner ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from operations import run_and_die  # type: ignore[import-not-found]

NOT_REACHED, FAILED = 3, 4


def main() -> None:
    for line in sys.stdin:
        state_dir, operation, points, id = json.loads(line)
        pid = os.fork()
        if not pid:
            status = FAILED
            try:
                asyncio.run(run_and_die(Path(state_dir), operation, points, id))
                status = NOT_REACHED
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        sys.stdout.write(f"{status}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
