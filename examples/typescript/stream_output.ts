// Show what a command prints while it is running.
import { Sandbox } from "agentkernel";

await using sandbox = await Sandbox.create();
const stream = sandbox.stream("for i in 1 2 3; do echo step $i; sleep 0.1; done; echo done >&2");
// Nothing is read ahead: if this loop waits, the command waits.
for await (const chunk of stream) process[chunk.stream].write(chunk.data);
console.log("exit code:", stream.result.exitCode);

// A command that never ends is ended by leaving it.
for await (const chunk of sandbox.stream("yes")) {
  console.log("first line:", chunk.text.split("\n")[0]);
  break;
}
