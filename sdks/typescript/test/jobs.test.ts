import { afterAll, beforeAll, expect, test } from "vitest";
import { NotFoundError, Sandbox } from "../src/index.ts";
import { eventually, rejection } from "./waiting.ts";

let sandbox: Sandbox;
beforeAll(async () => {
  sandbox = await Sandbox.create();
});
afterAll(() => sandbox.remove());

async function text(output: AsyncIterable<{ text: string }>): Promise<string> {
  let all = "";
  for await (const chunk of output) all += chunk.text;
  return all;
}

test("start, attach from an offset, wait", async () => {
  const job = await sandbox.jobs.start("echo one; echo two; exit 3", { env: { A: "b" } });
  expect((await job.wait()).exitCode).toBe(3);
  expect(await text(job.output())).toBe("one\ntwo\n");
  expect(await text(job.output({ stdoutOffset: 4 }))).toBe("two\n");
  expect((await job.wait()).exitCode).toBe(3);
  expect(job.info).toMatchObject({
    state: "ended",
    sandboxId: sandbox.id,
    argv: ["sh", "-c", expect.any(String)],
  });
  expect((await sandbox.jobs.list()).map(({ id }) => id)).toContain(job.id);
  expect((await sandbox.jobs.get(job.id)).info.result?.exitCode).toBe(3);
});

test("what is there now, and then the rest: the job does not mind", async () => {
  const job = await sandbox.jobs.start(
    "echo first; while [ ! -e /tmp/go ]; do sleep 0.02; done; echo last",
  );
  await eventually(async () => (await text(job.output({ follow: false }))) === "first\n");
  for await (const chunk of job.output()) {
    expect(chunk.text).toBe("first\n");
    break;
  }
  expect((await job.refresh()).state).toBe("running");
  await sandbox.files.write("/tmp/go", "");
  expect(await text(job.output({ stdoutOffset: 6 }))).toBe("last\n");
});

test("input, signals and kills", async () => {
  const reader = await sandbox.jobs.start("read line; echo got $line", { stdin: true });
  const output = reader.output();
  await output.write("this\n");
  expect(await text(output)).toBe("got this\n");
  const trapped = await sandbox.jobs.start(
    "trap 'exit 7' TERM; echo up; while :; do sleep 0.02; done",
  );
  await trapped.output().read();
  await trapped.signal("SIGTERM");
  expect((await trapped.wait()).exitCode).toBe(7);
  const stubborn = await sandbox.jobs.start("trap '' TERM; sleep 1000");
  await stubborn.kill();
  expect((await stubborn.wait()).outcome).toBe("signaled");
});

test("an abort of who listens leaves the job alone", async () => {
  const job = await sandbox.jobs.start("echo up; sleep 1000");
  const controller = new AbortController();
  const output = job.output({ signal: controller.signal });
  expect((await output.read())?.text).toBe("up\n");
  const next = output.read();
  controller.abort();
  expect(await rejection(next)).toMatchObject({ name: "AbortError" });
  expect((await job.refresh()).state).toBe("running");
  await job.kill();
  expect((await job.wait()).ok).toBe(false);
});

test("one that is not there is not found", async () => {
  expect(await rejection(sandbox.jobs.get("nothing"))).toBeInstanceOf(NotFoundError);
});
