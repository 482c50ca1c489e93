"""Show what a command prints while it is running."""

import sys

from agentkernel import Sandbox

with Sandbox.create() as sandbox:
    stream = sandbox.stream("for i in 1 2 3; do echo step $i; sleep 0.1; done; echo done >&2")
    # Nothing is read ahead: if this loop waits, the command waits.
    for chunk in stream:
        where = sys.stdout if chunk.stream == "stdout" else sys.stderr
        print(chunk.text, end="", file=where, flush=True)
    print("exit code:", stream.result.exit_code)

    # A command that never ends is ended by leaving it.
    with sandbox.stream("yes") as stream:
        for chunk in stream:
            print("first line:", chunk.text.splitlines()[0])
            break
