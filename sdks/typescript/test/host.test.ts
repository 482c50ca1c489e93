/** The daemon, its machine, and calls about many sandboxes at once. */

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  AgentKernelError,
  Client,
  CommandResult,
  ConflictError,
  Host,
  InvalidInputError,
  NotFoundError,
  runBatch,
  Sandbox,
} from "../src/index.ts";
import { rejection } from "./waiting.ts";

const host = new Host();

test("the daemon tells of itself", async () => {
  using client = new Client();
  const version = await new Host({ client }).version();
  expect(version).toMatchObject({ api: 1, version: expect.any(String) });
  expect(client.daemonVersion).toBe(version.version);
  expect((await host.status()).uptime_seconds).toBeGreaterThan(0);
});

describe("one sandbox, and what the daemon knows of it", () => {
  let sandbox: Sandbox;
  beforeAll(async () => {
    sandbox = await Sandbox.create();
  });
  afterAll(() => sandbox.remove());

  test("engines, and what is wrong with the machine", async () => {
    const engines = await host.backends();
    expect(engines.find(({ name }) => name === "native")).toMatchObject({ found: true });
    const { findings } = await host.doctor();
    expect(findings.length).toBeGreaterThan(3);
  });

  test("volumes: made, used, exported, imported; and what the disk has", async () => {
    const { volumes } = host;
    expect(await volumes.create("ts", { exclusive: true })).toMatchObject({ exclusive: true });
    const user = await Sandbox.create({ volumes: ["ts:/data"] });
    await user.exec(["sh", "-c", "echo 42 > /data/answer"]);
    expect(await rejection(volumes.remove("ts"))).toBeInstanceOf(ConflictError);
    await user.remove();
    const pieces: Buffer[] = [];
    for await (const piece of volumes.export("ts")) pieces.push(piece);
    expect(Buffer.concat(pieces).includes("answer")).toBe(true);
    expect(await volumes.importArchive("ts-copy", pieces)).toMatchObject({ name: "ts-copy" });
    expect((await volumes.list()).map(({ name }) => name)).toEqual(["ts", "ts-copy"]);
    expect((await volumes.get("ts-copy")).used_bytes).toBeGreaterThan(0);
    const { parts, free_bytes: free } = await host.diskUsage();
    expect(parts.find(({ kind }) => kind === "volumes")).toMatchObject({ count: 2 });
    expect(free).toBeGreaterThan(0);
    const planned = await host.prune({ volumes: true, dryRun: true });
    expect(planned.items.filter(({ kind }) => kind === "volumes")).toHaveLength(2);
    for (const name of ["ts", "ts-copy"]) await volumes.remove(name, { force: true });
    expect(await volumes.list({ usage: true })).toEqual([]);
  });

  test("tokens: made, listed, ended; and the daemon's numbers", async () => {
    const made = await host.tokens.create("ts", { scopes: ["read"], expiresSeconds: 60 });
    expect(made).toMatchObject({ owner: "token:ts", scopes: ["read"] });
    expect(made.token).toMatch(/^ak_/);
    const listed = (await host.tokens.list()).find(({ id }) => id === made.id);
    expect(listed).toMatchObject({ name: "ts", revoked_at: null });
    expect(listed).not.toHaveProperty("token");
    expect((await host.tokens.revoke("ts")).revoked_at).toBeGreaterThan(0);
    expect(await rejection(host.tokens.revoke("ts"))).toBeInstanceOf(NotFoundError);
    expect(await host.metrics()).toContain("agentkernel_sandboxes");
  });

  test("secrets: set, rotated, listed without their values, removed", async () => {
    const value = `ghp_${"Ab3".repeat(12)}`;
    const { secrets } = host;
    expect(await rejection(secrets.rotate("TS", value))).toBeInstanceOf(NotFoundError);
    expect(await rejection(secrets.set("TS", "short"))).toBeInstanceOf(InvalidInputError);
    expect(await secrets.set("TS", value)).toMatchObject({ name: "TS", rotated_at: null });
    expect((await secrets.rotate("TS", `${value}9`)).rotated_at).toBeGreaterThan(0);
    const listed = await secrets.list();
    expect(listed).toMatchObject([{ name: "TS", kept: "file", sandboxes: [] }]);
    expect(JSON.stringify(listed)).not.toContain(value);
    expect(await secrets.remove("TS")).toMatchObject({ name: "TS" });
    expect(await secrets.list()).toEqual([]);
  });

  test("jobs of all sandboxes", async () => {
    const job = await sandbox.jobs.start("echo hi");
    await job.wait();
    const found = await host.jobs({ sandbox: sandbox.id, state: "ended" });
    expect(found.map(({ id }) => id)).toEqual([job.id]);
    expect((await host.job(job.id)).info.sandboxId).toBe(sandbox.id);
    expect(await rejection(host.job("nothing"))).toBeInstanceOf(NotFoundError);
  });

  test("the log of actions, and as it is written", async () => {
    await sandbox.exec("true");
    // A page is of the last lines of all sandboxes, and there are others meanwhile.
    const entries = await host.audit({ sandbox: sandbox.id, limit: 1000 });
    expect(entries.map(({ action }) => action).join()).toContain("create");
    const live = host.followAudit({ after: 0, sandbox: sandbox.id });
    expect((await live.next()).value).toMatchObject({ sandbox: sandbox.id });
    await live.return();
  });

  test("update changes what is given, and null takes away", async () => {
    await using made = await Sandbox.create({ labels: { a: "1", b: "2" }, ttlSeconds: 100 });
    const info = await made.update({ name: "ts-updated", labels: { a: null, c: "3" } });
    expect(info).toMatchObject({ name: "ts-updated", labels: { b: "2", c: "3" } });
    expect(info.expiresAt).not.toBeNull();
    expect((await made.update({ ttlSeconds: null })).expiresAt).toBeNull();
    expect((await made.usage())?.counted_by).toEqual(expect.any(String));
  });

  test("what happened to one, also while it happens", async () => {
    const made = await Sandbox.create();
    const kinds: string[] = [];
    for await (const event of made.logs()) kinds.push(event.kind);
    expect(kinds[0]).toBe("sandbox.created");
    const live = made.logs({ follow: true });
    await live.next();
    await made.remove();
    for await (const event of live) {
      kinds.push(event.kind);
      if (event.kind === "sandbox.removed") break;
    }
    expect(kinds.at(-1)).toBe("sandbox.removed");
  });

  test("a batch answers in the order of its commands", async () => {
    const results = await runBatch(["echo 1", ["sh", "-c", "exit 3"], "echo $A"], {
      env: { A: "b" },
      parallel: 2,
    });
    const shown = results.map((one) => one instanceof CommandResult && [one.stdout, one.exitCode]);
    expect(shown).toEqual([
      ["1\n", 0],
      ["", 3],
      ["b\n", 0],
    ]);
    expect(await rejection(runBatch([]))).toBeInstanceOf(InvalidInputError);
    const [refused] = await runBatch(["true"], { image: "/no/such/image" });
    expect(refused).toBeInstanceOf(AgentKernelError);
  });

  test("several files in one call, whatever they are called", async () => {
    const names = ["a.txt", "deep/er/b", 'quo"te', "ünï code"];
    const files = Object.fromEntries(names.map((name, index) => [name, `content ${index}`]));
    const sizes = await sandbox.files.upload(files, "/work/many", { mode: 0o640 });
    expect(sizes).toEqual(Object.fromEntries(names.map((name) => [name, 9])));
    for (const [index, name] of names.entries()) {
      expect(await sandbox.files.read(`/work/many/${name}`)).toBe(`content ${index}`);
    }
    expect((await sandbox.files.stat("/work/many/a.txt")).mode).toBe(0o640);
    const outside = sandbox.files.upload({ "../x": "y" }, "/work/many");
    expect(await rejection(outside)).toBeInstanceOf(InvalidInputError);
  });
});
