/** Sessions of agents: an agent without a definition is enough to see them begin and end. */

import { expect, test } from "vitest";
import { ConflictError, Host, InvalidInputError, NotFoundError } from "../src/index.ts";
import { rejection } from "./waiting.ts";

const { agentSessions } = new Host();

test("from the start to the end", async () => {
  const session = await agentSessions.start("words", {
    mode: "acp",
    more: { drive: false, command: ["sh", "-c", "read x; echo got $x >&2; exit 4"] },
  });
  expect(session.info).toMatchObject({ agent: "words", state: "running", exit_code: null });
  expect(await rejection(session.sendPrompt("x"))).toBeInstanceOf(ConflictError);
  const terminal = await session.terminal();
  await terminal.write("word\n");
  expect((await terminal.wait()).exitCode).toBe(4);
  const seen = [];
  for await (const event of session.events()) seen.push(event);
  expect(seen.map((event) => event.kind)).toEqual(["session", "output", "ended"]);
  expect(seen[1]?.body).toMatchObject({ text: "got word", stream: "stderr" });
  expect(await session.wait()).toMatchObject({ state: "ended", exit_code: 4, last_event: 3 });
  expect((await session.summary()).complete).toBe(true);
  expect(await rejection(session.recording())).toBeInstanceOf(NotFoundError);
  const found = await agentSessions.list({ agent: "words" });
  expect(found.map((one) => one.id)).toEqual([session.id]);
  await session.remove();
  expect(await rejection(agentSessions.get(session.id))).toBeInstanceOf(NotFoundError);
});

test("stopped", async () => {
  const session = await agentSessions.start("words", {
    more: { drive: false, command: ["sleep", "1000"] },
  });
  expect(await session.stop()).toMatchObject({ state: "ended", exit_code: null });
  await session.remove();
});

test("what is none", async () => {
  expect(await rejection(agentSessions.start("nobody"))).toBeInstanceOf(NotFoundError);
  const empty = agentSessions.start("claude", { mode: "headless" });
  expect(await rejection(empty)).toBeInstanceOf(InvalidInputError);
});
