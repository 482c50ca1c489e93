// What can go wrong, and how each kind looks. They never look alike.
import {
  AgentKernelError,
  CommandFailedError,
  GuestFileNotFoundError,
  run,
  Sandbox,
} from "agentkernel";

await using sandbox = await Sandbox.create();

// The command failed: a result. Ask for an error if you want one.
console.log("exit code:", (await sandbox.exec("exit 3")).exitCode);
try {
  await sandbox.exec("ls /nowhere", { check: true });
} catch (error) {
  if (!(error instanceof CommandFailedError)) throw error;
  console.log(error.code, "-", error.result?.outcome, error.result?.exitCode);
}

// It took too long: a result as well, and everything it had started is gone.
console.log("outcome:", (await sandbox.exec("sleep 1000", { timeoutSeconds: 0.2 })).outcome);

// You have had enough: the command is ended with all it started, and the call rejects.
try {
  await sandbox.exec("sleep 1000", { signal: AbortSignal.timeout(200) });
} catch (error) {
  console.log("aborted:", (error as Error).name);
}

// A file is not there.
try {
  await sandbox.files.read("/nowhere");
} catch (error) {
  if (!(error instanceof GuestFileNotFoundError)) throw error;
  console.log("file:", error.message);
}

// There is no such sandbox. `hint` says what to do, `retryable` whether waiting helps.
try {
  await Sandbox.connect("nobody");
} catch (error) {
  if (!(error instanceof AgentKernelError)) throw error;
  console.log(error.code, error.retryable, "-", error.message);
}

// What is worth trying again says so.
for (let attempt = 0; attempt < 3; attempt++) {
  try {
    process.stdout.write((await run("echo it works")).stdout);
    break;
  } catch (error) {
    if (!(error instanceof AgentKernelError) || !error.retryable || attempt === 2) throw error;
  }
}
