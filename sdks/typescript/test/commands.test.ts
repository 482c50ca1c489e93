import { setTimeout as pause } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  type Chunk,
  Client,
  CommandStream,
  InvalidInputError,
  run,
  runStream,
  Sandbox,
} from "../src/index.ts";
import { eventually, rejection } from "./waiting.ts";

let sandbox: Sandbox;
// Whose sandboxes are those of one test alone.
const client = new Client({ owner: "ts:commands" });
const count = async (): Promise<number> => (await Sandbox.list({ client })).length;
beforeAll(async () => {
  sandbox = await Sandbox.create();
});
afterAll(() => sandbox.remove());

async function all(stream: AsyncIterable<Chunk>): Promise<{ stdout: string; stderr: string }> {
  const found = { stdout: "", stderr: "" };
  for await (const chunk of stream) found[chunk.stream] += chunk.text;
  return found;
}

/** Whether a process with this in its arguments is there. */
async function runs(mark: string): Promise<boolean> {
  const look = `for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; echo; done 2>/dev/null`;
  const { stdout } = await sandbox.exec(look);
  return stdout.split("\n").some((line) => line.startsWith(mark));
}

describe("to the end", () => {
  test("a list is argv, a string is for a shell", async () => {
    expect((await sandbox.exec(["echo", "$HOME", "*"])).stdout).toBe("$HOME *\n");
    expect((await sandbox.exec("echo $((6 * 7))")).stdout).toBe("42\n");
  });

  test("environment, directory, user and input", async () => {
    const done = await sandbox.exec('echo "$A $(pwd)"; cat', {
      env: { A: "b" },
      cwd: "/tmp",
      stdin: "input",
    });
    expect(done).toMatchObject({ stdout: "b /tmp\ninput", exitCode: 0, outcome: "exited" });
  });

  test("bytes survive both ways", async () => {
    const data = Uint8Array.from({ length: 256 }, (_, index) => index);
    const done = await sandbox.exec(["cat"], { stdin: data });
    expect(Buffer.compare(done.stdoutBytes, data)).toBe(0);
    expect(done.stdout).toContain("\ufffd");
  });

  test("no exit code is invented", async () => {
    const killed = await sandbox.exec("kill -9 $$");
    expect(killed).toMatchObject({ outcome: "signaled", exitCode: null, signal: 9, ok: false });
    const late = await sandbox.exec("sleep 100", { timeoutSeconds: 0.2 });
    expect(late).toMatchObject({ outcome: "timeout", exitCode: null });
    const missing = await sandbox.exec(["/no/such/program"]);
    expect(missing).toMatchObject({ outcome: "not_started", exitCode: null, errno: "ENOENT" });
  });

  test("a time that no timer can hold is a time", async () => {
    expect((await sandbox.exec("echo 1", { timeoutSeconds: 3e6 })).stdout).toBe("1\n");
  });

  test("output is bounded and counted", async () => {
    const done = await sandbox.exec("head -c 100000 /dev/zero", { outputBytes: 1000 });
    expect(done).toMatchObject({ truncated: true, droppedBytes: 99_000 });
    expect(done.stdoutBytes).toHaveLength(1000);
  });

  test("with a signal it is the same", async () => {
    const { signal } = new AbortController();
    const done = await sandbox.exec("cat; echo oops >&2; exit 4", { stdin: "in", signal });
    expect(done).toMatchObject({ stdout: "in", stderr: "oops\n", exitCode: 4 });
    const much = await sandbox.exec("head -c 5000 /dev/zero", { outputBytes: 100, signal });
    expect(much).toMatchObject({ truncated: true, droppedBytes: 4900 });
    expect(await rejection(sandbox.exec("exit 1", { signal, check: true }))).toMatchObject({
      code: "command_failed",
    });
  });
});

describe("streams", () => {
  test("output comes while it runs, and then the result", async () => {
    const stream = sandbox.stream("echo one; read line; echo $line; echo err >&2; exit 5", {
      stdin: true,
    });
    const first = await stream.read();
    expect(first).toMatchObject({ stream: "stdout", text: "one\n", offset: 0 });
    expect(() => stream.result).toThrow(InvalidInputError);
    expect(stream.pid).toBeGreaterThan(0);
    await stream.write("two\n");
    expect(await all(stream)).toEqual({ stdout: "two\n", stderr: "err\n" });
    expect(stream.result.exitCode).toBe(5);
  });

  test("a character is never split", async () => {
    const stream = sandbox.stream(
      "printf '\\303'; read wait; printf '\\244\\n'; printf '\\342\\202'",
      { stdin: true },
    );
    const texts: string[] = [];
    for await (const chunk of stream) {
      texts.push(chunk.text);
      if (texts.length === 1) await stream.write("\n");
    }
    expect(texts.join("")).toBe("ä\n\ufffd");
    expect(texts[0]).toBe("");
  });

  test("a terminal, its size and its signals", async () => {
    const stream = sandbox.stream(
      "trap 'exit 9' INT; stty size; read x; stty size; while :; do sleep 0.05; done",
      { pty: [24, 80] },
    );
    let text = "";
    const until = async (words: string): Promise<void> => {
      while (!text.includes(words)) text += (await stream.read())?.text ?? "";
    };
    await until("24 80\r\n");
    await stream.resize(30, 100);
    await stream.write("\n");
    await until("30 100\r\n");
    await stream.write("\x03");
    expect(await stream.wait()).toMatchObject({ outcome: "exited", exitCode: 9 });
  });

  test("signals and kills", async () => {
    const trapped = sandbox.stream(
      "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.05; done",
    );
    await trapped.read();
    await trapped.signal("SIGINT");
    expect(await all(trapped)).toMatchObject({ stdout: "caught\n" });
    expect(trapped.result.exitCode).toBe(9);
    const killed = sandbox.stream("sleep 1000 & echo ready; wait");
    await killed.read();
    await killed.kill();
    expect(await killed.wait()).toMatchObject({ outcome: "signaled", signal: 9 });
  });

  test("24 MB of input to a command that reads late, and its echo", async () => {
    const size = 24 << 20;
    const stream = sandbox.stream("read go; cat | tee /dev/null", { stdin: true });
    await stream.open();
    const writing = (async () => {
      await stream.write("go\n");
      const piece = Buffer.alloc(1 << 20, "x");
      for (let sent = 0; sent < size; sent += piece.length) await stream.write(piece);
      await stream.closeStdin();
    })();
    let seen = 0;
    for await (const chunk of stream) seen += chunk.data.length;
    await writing;
    expect(seen).toBe(size);
    expect(stream.result.exitCode).toBe(0);
  });

  test("a loop that stops stops the command", async () => {
    const [steps, size] = [1024, 65536];
    const stream = sandbox.stream(
      `i=0; while [ $i -lt ${steps} ]; do head -c ${size} /dev/zero; i=$((i+1)); echo $i >/tmp/at; done`,
    );
    let seen = (await stream.read())?.data.length ?? 0;
    // It has stopped when it does not get further while many other commands do.
    const at = async (): Promise<number> => Number(await sandbox.files.read("/tmp/at"));
    await eventually(() => sandbox.files.exists("/tmp/at"));
    let before = -1;
    await eventually(async () => {
      const now = await at();
      const stopped = now === before;
      before = now;
      if (!stopped) await pause(300);
      return stopped;
    });
    expect(before).toBeLessThan(steps / 4);
    for await (const chunk of stream) seen += chunk.data.length;
    expect(seen).toBe(steps * size);
    expect(await at()).toBe(steps);
  });

  test("an output bound is told", async () => {
    const stream = sandbox.stream("head -c 5000 /dev/zero", { outputBytes: 1000 });
    let seen = 0;
    for await (const chunk of stream) seen += chunk.data.length;
    expect(seen).toBe(1000);
    expect(stream.truncated).toEqual({ stdout: 1000 });
    expect(stream.result).toMatchObject({ truncated: true, droppedBytes: 4000 });
  });

  test("an error of the stream is thrown, and again", async () => {
    const stream = sandbox.stream(["true"], { pty: [0, 0] });
    const first = await rejection(stream.read());
    expect(first).toBeInstanceOf(InvalidInputError);
    expect(await rejection(stream.read())).toBe(first);
  });

  test("one that was closed says so", async () => {
    const stream = sandbox.stream("sleep 1000");
    await stream.open();
    await stream.close();
    await stream.close();
    expect(await rejection(stream.read())).toBeInstanceOf(InvalidInputError);
  });
});

describe("abort", () => {
  test.each(["exec", "stream"] as const)("ends the tree: %s", async (how) => {
    const controller = new AbortController();
    const mark = `sleep 98765.${how.length}`;
    const command = `setsid ${mark} & ${mark}`;
    const { signal } = controller;
    const work =
      how === "exec"
        ? sandbox.exec(command, { signal })
        : sandbox.stream(command, { signal }).wait();
    work.catch(() => undefined);
    await eventually(() => runs(mark));
    controller.abort(new Error("enough"));
    expect(await rejection(work)).toMatchObject({ message: "enough" });
    await eventually(async () => !(await runs(mark)));
  });

  test("without it the command stays: the control", async () => {
    const stream = sandbox.stream("sleep 98765.99");
    await stream.open();
    await eventually(() => runs("sleep 98765.99"));
    expect(await runs("sleep 98765.99")).toBe(true);
    await stream.kill();
    expect(await stream.wait()).toMatchObject({ outcome: "signaled" });
  });

  test("removes the sandbox of a run", async () => {
    const controller = new AbortController();
    const work = run("sleep 1000", { client, signal: controller.signal });
    work.catch(() => undefined);
    await eventually(async () => (await count()) === 1);
    controller.abort();
    expect(await rejection(work)).toMatchObject({ name: "AbortError" });
    await eventually(async () => (await count()) === 0);
  });

  test("before the call nothing is done", async () => {
    const signal = AbortSignal.abort();
    await sandbox.exec("rm -f /tmp/never");
    expect(await rejection(sandbox.exec("touch /tmp/never", { signal }))).toMatchObject({
      name: "AbortError",
    });
    expect(await rejection(sandbox.files.read("/etc/hostname", { signal }))).toMatchObject({
      name: "AbortError",
    });
    expect(await sandbox.files.exists("/tmp/never")).toBe(false);
  });
});

describe("in sandboxes of their own", () => {
  test("they are gone afterwards", async () => {
    const done = await run(["cat", "/proc/sys/kernel/hostname"], { client, env: { A: "1" } });
    expect(done.stdout).toBe("sandbox\n");
    await using stream = runStream("echo $A; cat", { client, env: { A: "x" }, stdin: true });
    expect(stream).toBeInstanceOf(CommandStream);
    expect((await stream.read())?.text).toBe("x\n");
    expect(await count()).toBe(1);
    await stream.closeStdin();
    expect((await stream.wait()).exitCode).toBe(0);
    await eventually(async () => (await count()) === 0);
  });

  test("leaving the loop early removes the sandbox", async () => {
    for await (const chunk of runStream("echo up; sleep 1000", { client })) {
      expect(chunk.text).toBe("up\n");
      expect(await count()).toBe(1);
      break;
    }
    await eventually(async () => (await count()) === 0);
  });
});
