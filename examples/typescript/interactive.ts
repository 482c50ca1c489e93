// Talk to a program: first line by line, then on a terminal.
import { Sandbox } from "agentkernel";

await using sandbox = await Sandbox.create();

// An interpreter that stays, with its variables. `-u`: it answers at once.
const python = sandbox.stream(["python3", "-u", "-i", "-q"], { stdin: true });
for (const line of ["x = 6", "print('answer:', x * 7)"]) await python.write(`${line}\n`);
let answer = "";
while (!answer.endsWith("\n")) {
  // a line may come in several pieces
  const chunk = await python.read();
  if (chunk === undefined) throw new Error("it has ended");
  if (chunk.stream === "stdout") answer += chunk.text; // its prompts are on stderr
}
process.stdout.write(answer);
await python.closeStdin();
await python.wait();

// With a terminal, as a person would see it: rows and columns, and Ctrl-C.
const program = "import os, time; print(*os.get_terminal_size()); time.sleep(1000)";
const terminal = sandbox.stream(["python3", "-c", program], { pty: [24, 80] });
const size = await terminal.read();
console.log("terminal:", size?.text.trim());
await terminal.write("\x03"); // Ctrl-C
console.log("outcome:", (await terminal.wait()).outcome);
