/** Agents: listed, shown; what is none is refused. */

import { expect, test } from "vitest";
import { Host, InvalidInputError, NotFoundError } from "../src/index.ts";
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
