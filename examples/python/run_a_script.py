"""Run a script that somebody else wrote, with input and limits, and look at how it ended."""

import agentkernel

SCRIPT = """
import json, sys

numbers = json.load(sys.stdin)
print(sum(numbers))
"""

# One command in a sandbox of its own, which is gone afterwards whatever happens.
result = agentkernel.run(
    ["python3", "-c", SCRIPT],
    stdin="[1, 2, 39]",
    timeout_seconds=20,  # it is ended then, with all it started
    pids=32,  # limits hold, or the call is refused
)
print("outcome:", result.outcome)  # exited, signaled, timeout, oom, not_started or lost
print("exit code:", result.exit_code)  # None unless it exited
print("printed:", result.stdout.strip())

# A command that fails is a result, not an exception.
result = agentkernel.run("echo something is wrong >&2; exit 3")
print("failed with", result.exit_code, "and said:", result.stderr.strip())
