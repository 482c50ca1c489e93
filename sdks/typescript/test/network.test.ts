/** What a sandbox may reach, by the SDK: asked, changed, seen; and secrets it does not know. */

import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Host, InvalidInputError, NotFoundError, Sandbox } from "../src/index.ts";
import { rejection } from "./waiting.ts";

const MACHINE = "host.agentkernel.internal";
const host = new Host();
let server: Server;
let port = 0;

beforeAll(async () => {
  server = createServer((_, answer) => answer.end("hello from outside"));
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  port = (server.address() as AddressInfo).port;
});
afterAll(() => {
  server.close();
});

/** What an HTTP server says to a program inside: status and body. */
async function fetched(sandbox: Sandbox): Promise<string> {
  const script = `import http.client as h
c = h.HTTPConnection("${MACHINE}", ${port}, timeout=10)
c.request("GET", "/")
a = c.getresponse()
print(a.status, a.read().decode())`;
  const done = await sandbox.exec(["python3", "-c", script]);
  expect(done.exitCode).toBe(0);
  return done.stdout;
}

test("allowed, denied, explained and logged", async () => {
  await using sandbox = await Sandbox.create({
    network: { presets: [], allow: [`${MACHINE}:${port}`] },
  });
  expect(await fetched(sandbox)).toBe("200 hello from outside\n");
  expect(await sandbox.network.why(MACHINE, { port })).toMatchObject({ outcome: "allow", rule: 1 });
  const denied = await sandbox.network.deny(MACHINE);
  expect(denied.phases["default"]?.rules?.[0]).toMatchObject({ action: "deny", host: MACHINE });
  expect(await fetched(sandbox)).toMatch(/^403 /);
  for await (const event of sandbox.network.log({ follow: true })) {
    if (event.kind !== "network.deny") continue;
    expect(event.body).toMatchObject({ host: MACHINE, source: "network deny" });
    break;
  }
  const shown = await sandbox.network.show();
  expect(shown).toMatchObject({ phase: "default", gateway: "running", secrets: [] });
  expect(shown.traffic?.connections).toBeGreaterThanOrEqual(2);
});

test("phases, and another network altogether", async () => {
  await using sandbox = await Sandbox.create({
    network: { phases: { setup: { allow: [`${MACHINE}:${port}`] }, agent: {} }, phase: "setup" },
  });
  expect(await fetched(sandbox)).toMatch(/^200 /);
  expect((await sandbox.network.phase("agent")).phase).toBe("agent");
  expect(await fetched(sandbox)).toMatch(/^403 /);
  await sandbox.network.allow(`${MACHINE}:${port}`, { phase: "agent" });
  expect(await fetched(sandbox)).toMatch(/^200 /);
  await sandbox.network.replace({ presets: ["none"] });
  const why = await sandbox.network.why(MACHINE, { port, method: "GET", path: "/" });
  expect(why).toMatchObject({ outcome: "deny", method: "GET" });
  expect(await rejection(sandbox.network.phase("later"))).toBeInstanceOf(InvalidInputError);
  expect(await rejection(sandbox.network.allow("https://x/"))).toBeInstanceOf(InvalidInputError);
});

test("a secret is used and not known", async () => {
  const value = "sk-typescript-0123456789";
  expect(await host.secrets.set("TS_KEY", value)).toMatchObject({ name: "TS_KEY" });
  expect((await host.secrets.list()).map(({ name }) => name)).toContain("TS_KEY");
  try {
    await using sandbox = await Sandbox.create({ secrets: ["TS_KEY@api.example.org"] });
    const inside = (await sandbox.exec("printenv TS_KEY")).stdout.trim();
    expect(inside).toHaveLength(value.length);
    expect(inside).not.toBe(value);
    const { secrets, phases } = await sandbox.network.show();
    expect(secrets).toMatchObject([{ env: "TS_KEY", hosts: ["api.example.org"] }]);
    expect(JSON.stringify([secrets, phases])).not.toContain(inside);
    await host.secrets.rotate("TS_KEY", `${value}-new`);
  } finally {
    await host.secrets.remove("TS_KEY");
  }
  expect(await rejection(host.secrets.rotate("TS_KEY", value))).toBeInstanceOf(NotFoundError);
});
