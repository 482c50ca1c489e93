/** `sandbox.agent()`: the agent of the Python tests, prompted from here. */

import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, expect, test } from "vitest";
import { ConflictError, InvalidInputError, Sandbox } from "../src/index.ts";
import { rejection } from "./waiting.ts";

const PROGRAM = fileURLToPath(new URL("../../../tests/acp/fake_agent.py", import.meta.url));
const command = ["python3", "/workspace/fake_agent.py"];

const project = mkdtempSync(join(tmpdir(), "agentkernel-agent-"));
cpSync(PROGRAM, join(project, "fake_agent.py"));
afterAll(() => rmSync(project, { recursive: true }));

test("turns, questions and a cancelled one", async () => {
  await using sandbox = await Sandbox.create({ workspace: project });
  const asked: unknown[] = [];
  await using agent = sandbox.agent(undefined, {
    command,
    onPermission: (question) => {
      asked.push(question["toolCall"]);
      return "no";
    },
  });
  const turn = await agent.prompt("say hello \nsay world \nask may I?");
  expect(turn.text).toMatch(/^hello world answer .*"no"/);
  expect(turn).toMatchObject({ stopReason: "end_turn", usage: { turns: 1 } });
  expect(asked).toMatchObject([{ title: "may I?" }]);
  const stream = agent.stream("say begun\nwait /nowhere");
  expect((await stream.next()).value).toMatchObject({ sessionUpdate: "agent_message_chunk" });
  expect(await rejection(agent.prompt("say no"))).toBeInstanceOf(ConflictError);
  await agent.cancel();
  expect(await stream.next()).toMatchObject({ done: true, value: { stopReason: "cancelled" } });
  expect(await agent.start()).toBe(agent.session);
});

test("what can't be", async () => {
  await using sandbox = await Sandbox.create();
  expect(() => sandbox.agent()).toThrow(InvalidInputError);
  const none = sandbox.agent(undefined, { command: ["/nowhere"] });
  expect(await rejection(none.prompt("hello"))).toBeInstanceOf(ConflictError);
});
