import { afterAll, expect, test } from "vitest";
import { Client, ConflictError, Host, NotFoundError, Sandbox } from "../src/index.ts";
import { rejection } from "./waiting.ts";

const label = { suite: "sandbox" };
afterAll(async () => {
  for (const sandbox of await Sandbox.list({ labels: label })) await sandbox.remove();
});

test("one without a name is gone at the end of its block", async () => {
  let id: string;
  {
    await using sandbox = await Sandbox.create({ labels: label, ttlSeconds: 100 });
    id = sandbox.id;
    expect(sandbox).toMatchObject({ kept: false, name: null });
    expect(sandbox.info).toMatchObject({ state: "running", labels: label });
    expect(sandbox.info.expiresAt).toBeGreaterThan(sandbox.info.createdAt);
  }
  expect(await rejection(Sandbox.connect(id))).toBeInstanceOf(NotFoundError);
});

test("a block whose sandbox is gone already ends well", async () => {
  await using sandbox = await Sandbox.create({ labels: label });
  await sandbox.remove();
});

test("a kept one stays, stops, starts, and has its files", async () => {
  {
    await using made = await Sandbox.create({ name: "ts-kept", labels: label });
    await made.files.write("/root/note", "hello");
  }
  const sandbox = await Sandbox.connect("ts-kept");
  expect((await sandbox.stop({ graceSeconds: 0 })).state).toBe("stopped");
  expect(await rejection(sandbox.exec("true"))).toBeInstanceOf(ConflictError);
  expect((await sandbox.start()).state).toBe("running");
  expect(await sandbox.files.read("/root/note")).toBe("hello");
  const before = (await sandbox.extend(1000)).expiresAt ?? 0;
  expect((await sandbox.extend(9000)).expiresAt).toBeGreaterThan(before + 7000);
  const info = await sandbox.refresh();
  expect(info.raw.effective?.length).toBeGreaterThan(3);
  expect(info.usage).not.toBeNull();
  await sandbox.remove();
  expect(await rejection(sandbox.refresh())).toBeInstanceOf(NotFoundError);
});

test("a repeated create with the same key is the same sandbox", async () => {
  const options = { labels: label, idempotencyKey: "ts-once" };
  const [one, two] = [await Sandbox.create(options), await Sandbox.create(options)];
  expect(two.id).toBe(one.id);
  expect((await Sandbox.create({ labels: label })).id).not.toBe(one.id);
});

test("lists go by labels and states", async () => {
  await using sandbox = await Sandbox.create({ labels: { ...label, colour: "a b&c" } });
  const ids = async (options: Parameters<typeof Sandbox.list>[0]) =>
    (await Sandbox.list(options)).map(({ id }) => id);
  expect(await ids({ labels: { colour: "a b&c" } })).toEqual([sandbox.id]);
  expect(await ids({ labels: { colour: "other" } })).toEqual([]);
  expect(await ids({ labels: { colour: "a b&c" }, state: "stopped" })).toEqual([]);
  expect(await ids({})).toContain(sandbox.id);
});

test("options are those of the API", async () => {
  await using sandbox = await Sandbox.create({
    labels: label,
    profile: "restrictive",
    nofile: 64,
    env: { A: "b" },
    commandTimeoutSeconds: 0.2,
  });
  expect((await sandbox.exec("ulimit -n; echo $A")).stdout).toBe("64\nb\n");
  expect((await sandbox.exec("sleep 100")).outcome).toBe("timeout");
  expect(sandbox.info.raw).toMatchObject({ profile: "restrictive", limits: { nofile: 64 } });
});

test("owners see their own sandboxes only", async () => {
  using client = new Client({ owner: "ts:somebody" });
  using other = new Client({ owner: "ts:other" });
  await using theirs = await Sandbox.create({ labels: label, client });
  expect((await Sandbox.connect(theirs.id, { client })).id).toBe(theirs.id);
  expect(await rejection(Sandbox.connect(theirs.id, { client: other }))).toBeInstanceOf(
    NotFoundError,
  );
});

test("probe tells what a guest can reach", async () => {
  await using sandbox = await Sandbox.create({ labels: label });
  const { findings, users } = await sandbox.probe();
  expect(findings.length).toBeGreaterThan(100);
  expect(users).toContain("root");
});

test("events of a sandbox, before and after they happen", async () => {
  await using sandbox = await Sandbox.create({ labels: label });
  const seen = [];
  for await (const event of new Host().events({ after: 0, sandbox: sandbox.id, follow: false })) {
    expect(event.sandboxId).toBe(sandbox.id);
    seen.push(event);
  }
  expect(seen.map(({ kind }) => kind)).toEqual(["sandbox.created"]);
  const live = new Host().events({ after: seen.at(-1)?.seq ?? 0, sandbox: sandbox.id });
  const next = live.next();
  await sandbox.remove();
  expect((await next).value).toMatchObject({ kind: "sandbox.removed", sandboxId: sandbox.id });
  await live.return();
});

test("events end with their signal", async () => {
  const controller = new AbortController();
  const live = new Host().events({ signal: controller.signal });
  const next = live.next();
  controller.abort();
  expect(await rejection(next)).toMatchObject({ name: "AbortError" });
});
