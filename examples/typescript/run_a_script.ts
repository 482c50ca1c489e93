// Run a script that somebody else wrote, with input and limits, and look at how it ended.
import { run } from "agentkernel";

const SCRIPT = `
import json, sys

numbers = json.load(sys.stdin)
print(sum(numbers))
`;

// One command in a sandbox of its own, which is gone afterwards whatever happens.
const result = await run(["python3", "-c", SCRIPT], {
  stdin: "[1, 2, 39]",
  timeoutSeconds: 20, // it is ended then, with all it started
  pids: 32, // limits hold, or the call is refused
});
console.log("outcome:", result.outcome); // exited, signaled, timeout, oom, not_started or lost
console.log("exit code:", result.exitCode); // null unless it exited
console.log("printed:", result.stdout.trim());

// A command that fails is a result, not an exception.
const failed = await run("echo something is wrong >&2; exit 3");
console.log("failed with", failed.exitCode, "and said:", failed.stderr.trim());
