/** Agents: listed, installed, removed; what is none is refused. */

import * as fs from "node:fs";
import * as path from "node:path";
import { expect, inject, test } from "vitest";
import {
  AgentInstallError,
  Host,
  InvalidInputError,
  LoginEndedError,
  NotFoundError,
  UnsupportedError,
} from "../src/index.ts";
import { rejection } from "./waiting.ts";

const { agents } = new Host();

test("listed and shown", async () => {
  const names = (await agents.list()).map((one) => one.name);
  expect(names).toEqual(expect.arrayContaining(["aider", "claude", "codex", "gemini", "opencode"]));
  const claude = await agents.get("claude");
  expect(claude).toMatchObject({ name: "claude", title: "Claude Code", kit: null, own: false });
  expect(claude.modes).toEqual(["interactive", "headless", "acp"]);
});

test("what is none", async () => {
  expect(await rejection(agents.get("nobody"))).toBeInstanceOf(NotFoundError);
  expect(await rejection(agents.install("nobody"))).toBeInstanceOf(NotFoundError);
  expect(await rejection(agents.remove("claude"))).toBeInstanceOf(NotFoundError);
  const latest = agents.update("claude", { version: "latest" });
  expect(await rejection(latest)).toBeInstanceOf(InvalidInputError);
});

test("logins: kept, shown without a token, forgotten", async () => {
  const { logins } = agents;
  expect((await logins.list()).map((one) => one.agent)).toContain("claude");
  expect(await logins.get("claude")).toMatchObject({ kind: "none", can_log_in: true });
  const token = "sk-ant-oat01-0123456789abcdef";
  const login = { claudeAiOauth: { accessToken: token, subscriptionType: "max", scopes: [] } };
  const taken = await logins.takeFile("claude", JSON.stringify(login));
  expect(taken).toMatchObject({ kind: "oauth", account: "max", refreshable: false });
  expect(await rejection(logins.refresh("claude"))).toBeInstanceOf(LoginEndedError);
  expect(await rejection(logins.takeFile("claude", "{}"))).toBeInstanceOf(InvalidInputError);
  const key = await logins.setKey("claude", token, { name: "CLAUDE_CODE_OAUTH_TOKEN" });
  expect(key).toMatchObject({ kind: "key", secrets: ["CLAUDE_CODE_OAUTH_TOKEN"] });
  expect(JSON.stringify([taken, key])).not.toContain(token);
  await logins.remove("claude");
  expect(await rejection(logins.remove("claude"))).toBeInstanceOf(NotFoundError);
  expect(await rejection(logins.begin("aider"))).toBeInstanceOf(UnsupportedError);
  expect(await rejection(logins.harvest("codex", "nobody"))).toBeInstanceOf(NotFoundError);
});

test("one's own, installed and removed", async () => {
  const file = path.join(inject("stateDir"), "config", "agentkernel", "agents", "tiny.toml");
  fs.mkdirSync(path.dirname(file), { recursive: true });
  const define = (check: string) =>
    fs.writeFileSync(
      file,
      `name = "tiny"\ntitle = "Tiny"\nversion = "1.0"\n[install]\ncheck = ["${check}"]\n` +
        `[command]\nheadless = ["true"]\n`,
    );
  define("false");
  const failed = await rejection(agents.install("tiny"));
  expect(failed).toBeInstanceOf(AgentInstallError);
  define("true");
  const told: string[] = [];
  const kit = await agents.install("tiny", { progress: (kind) => told.push(kind) });
  expect(kit).toMatchObject({ agent: "tiny", version: "1.0", current: true, sandboxes: 0 });
  expect(told).toEqual(["started", "step", "done"]);
  expect((await agents.update("tiny", { version: "1.1" })).version).toBe("1.1");
  await agents.remove("tiny");
  expect((await agents.get("tiny")).kit).toBeNull();
  fs.unlinkSync(file);
});
