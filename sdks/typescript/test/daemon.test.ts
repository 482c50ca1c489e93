/** Daemons that are started on demand, and programs that have to end by themselves. */

import { execFileSync, spawn } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import * as path from "node:path";
import { afterAll, afterEach, beforeAll, expect, inject, test } from "vitest";
import {
  Client,
  type ClientOptions,
  DaemonError,
  Host,
  HostError,
  NotFoundError,
  Sandbox,
} from "../src/index.ts";
import { eventually, rejection } from "./waiting.ts";

const PACKAGE = path.resolve(import.meta.dirname, "..");
const program = inject("program");
let place: string;
beforeAll(() => {
  place = mkdtempSync(path.join(tmpdir(), "agentkernel-ts-"));
});
afterAll(() => rmSync(place, { recursive: true }));
afterEach(() => {
  process.env["AGENTKERNEL_BIN"] = program;
});

const version = (options: ClientOptions) => new Host({ client: new Client(options) }).version();

/** Runs a module that may use the built package by its name; what it printed. */
function node(source: string, environment: NodeJS.ProcessEnv = {}): Promise<string> {
  const folder = path.join(PACKAGE, ".build", "programs");
  mkdirSync(folder, { recursive: true });
  const file = path.join(folder, `${process.pid}-${Math.random().toString(36).slice(2)}.mjs`);
  writeFileSync(file, source);
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [file], {
      env: { ...process.env, ...environment },
      stdio: ["ignore", "pipe", "pipe"],
      timeout: 40_000,
    });
    let [out, err] = ["", ""];
    child.stdout.on("data", (data) => (out += data));
    child.stderr.on("data", (data) => (err += data));
    child.on("close", (code, signal) => {
      rmSync(file);
      if (code === 0) resolve(out);
      else reject(new Error(`ended with ${code ?? signal}: ${out}${err}`));
    });
  });
}

test("however many need one, one is started, at any path", async () => {
  // Longer than the address of a socket may be.
  const stateDir = path.join(place, "a".repeat(100));
  const environment = { AGENTKERNEL_STATE_DIR: stateDir };
  const source = `
    import { Host } from "agentkernel";
    console.log((await new Host().version()).pid);
  `;
  try {
    const client = new Client({ stateDir });
    const here = new Host({ client });
    const answers = await Promise.all([
      ...[1, 2, 3].map(() => node(source, environment)),
      ...[1, 2, 3].map(async () => String((await here.version()).pid)),
    ]);
    const pids = new Set(answers.map((answer) => answer.trim()));
    expect(pids.size).toBe(1);
    client.close();
  } finally {
    execFileSync(program, ["daemon", "stop"], { env: { ...process.env, ...environment } });
  }
  expect((await rejection(version({ stateDir, start: false }))) as Error).toMatchObject({
    code: "daemon_unavailable",
    hint: expect.stringContaining("agentkernel daemon"),
  });
});

test("a call after the daemon was ended and started again just works", async () => {
  const stateDir = path.join(place, "again");
  const environment = { ...process.env, AGENTKERNEL_STATE_DIR: stateDir };
  const client = new Client({ stateDir });
  try {
    const first = await new Host({ client }).version();
    for (let round = 0; round < 3; round++) {
      execFileSync(program, ["daemon", "restart"], { env: environment, stdio: "ignore" });
      // One that is not repeated once it may have been heard, and one that is.
      const start = client.call("POST", "/v1/sandboxes/none/start");
      expect(await rejection(start)).toBeInstanceOf(NotFoundError);
      expect(await Sandbox.list({ client })).toEqual([]);
    }
    expect((await new Host({ client }).version()).pid).not.toBe(first.pid);
  } finally {
    execFileSync(program, ["daemon", "stop"], { env: environment });
  }
});

test("without a program there is a hint", async () => {
  process.env["AGENTKERNEL_BIN"] = "/no/such/agentkernel";
  const error = await rejection(version({ stateDir: path.join(place, "none") }));
  expect(error).toBeInstanceOf(DaemonError);
  expect(error).toMatchObject({
    message: expect.stringContaining("/no/such/agentkernel"),
    hint: expect.stringContaining("AGENTKERNEL_BIN"),
    retryable: true,
  });
});

test("a program that is no daemon is told of, with its log", async () => {
  const wrong = path.join(place, "wrong");
  writeFileSync(wrong, "#!/bin/sh\necho what >&2\nexit 3\n");
  chmodSync(wrong, 0o755);
  process.env["AGENTKERNEL_BIN"] = wrong;
  const error = await rejection(version({ stateDir: path.join(place, "wrong-state") }));
  expect(error).toBeInstanceOf(DaemonError);
  expect(error).toMatchObject({ hint: expect.stringContaining("daemon.log") });
});

test("a state directory that can't be made is told of", async () => {
  writeFileSync(path.join(place, "file"), "");
  const error = await rejection(version({ stateDir: path.join(place, "file/state") }));
  expect(error).toMatchObject({ hint: expect.stringContaining("AGENTKERNEL_STATE_DIR") });
  expect(error instanceof HostError || error instanceof DaemonError).toBe(true);
});

test("a program ends by itself, whatever it left open or half read", async () => {
  const printed = await node(`
    import { Host, Sandbox, runStream } from "agentkernel";
    {
      const sandbox = await Sandbox.create();
      await sandbox.files.mkdir("/tmp/w");
      await sandbox.files.write("/tmp/w/big", Buffer.alloc(1 << 22));
      for await (const change of sandbox.files.watch("/tmp/w")) break;
      for await (const event of new Host().events({ after: 0 })) break;
      for await (const piece of sandbox.files.readStream("/tmp/w/big")) break;
      for await (const chunk of sandbox.stream("echo 1; sleep 1000")) break;
      for await (const chunk of runStream("echo 1; sleep 1000")) break;
      await sandbox.stream("sleep 1000", { signal: AbortSignal.timeout(200) }).wait().catch(() => {});
      await sandbox.files.read("/nope").catch(() => {});
      const signal = AbortSignal.abort();
      for (const call of [
        sandbox.files.readStream("/tmp/w/big", { signal }).next(),
        sandbox.files.write("/tmp/w/x", [Buffer.alloc(1)], { signal }),
        sandbox.stream("true", { signal }).wait(),
        sandbox.refresh({ signal }),
      ]) await call.then(() => process.exit(1), () => {});
      const job = await sandbox.jobs.start("sleep 1000");
      await job.output({ signal: AbortSignal.timeout(200) }).wait().catch(() => {});
      await sandbox.remove();
    }
    console.log("the end");
  `);
  expect(printed).toBe("the end\n");
});

test("what is aborted is closed at once, also while nobody waits for it", async () => {
  await using sandbox = await Sandbox.create();
  const controller = new AbortController();
  const watch = sandbox.files.watch("/tmp", { signal: controller.signal });
  const open = (): number => readdirSync("/proc/self/fd").length;
  await watch.next();
  const before = open();
  controller.abort();
  await eventually(() => open() < before);
  expect(await rejection(watch.next())).toMatchObject({ name: "AbortError" });
});

test("nothing stays open behind streams, calls and transfers", async () => {
  await using sandbox = await Sandbox.create();
  const once = async (): Promise<void> => {
    await sandbox.stream("echo 1").wait();
    for await (const _ of sandbox.stream("echo 1; sleep 1000")) break;
    for await (const _ of sandbox.files.watch("/tmp")) break;
    await rejection(sandbox.stream("sleep 1000", { signal: AbortSignal.timeout(20) }).wait());
    await rejection(sandbox.files.write("/tmp", [Buffer.alloc(1 << 20)]));
  };
  const open = (): number => readdirSync("/proc/self/fd").length;
  await once();
  const before = open();
  for (let round = 0; round < 20; round++) await once();
  expect(open()).toBeLessThan(before + 10);
});
