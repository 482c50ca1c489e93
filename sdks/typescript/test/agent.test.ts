/** An agent in a sandbox that is prompted, by the Agent Client Protocol. */

import { expect, test } from "vitest";
import { AgentKernelError, InvalidInputError, Sandbox } from "../src/index.ts";
import { rejection } from "./waiting.ts";

// Says the prompt back. One that says "ask" asks for leave first, "die" ends it.
const AGENT = `
import json, sys
def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
def chunk(text):
    say(method="session/update", params={"sessionId": "s1", "update": {
        "sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}})
waiting = None
for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method == "initialize":
        say(id=id, result={"protocolVersion": 1, "agentCapabilities": {}})
    elif method == "session/new":
        say(id=id, result={"sessionId": "s1"})
    elif method == "session/prompt":
        text = message["params"]["prompt"][0]["text"]
        if text == "die":
            sys.exit(3)
        if text == "ask":
            waiting = id
            say(id="q1", method="session/request_permission", params={
                "sessionId": "s1", "toolCall": {"toolCallId": "t1", "title": "rm"},
                "options": [{"optionId": "yes", "name": "Yes", "kind": "allow_once"},
                            {"optionId": "no", "name": "No", "kind": "reject_once"}]})
            continue
        chunk("you said ")
        chunk(text)
        say(id=id, result={"stopReason": "end_turn"})
    elif id == "q1":
        chunk("chose " + str(message["result"]["outcome"].get("optionId")))
        say(id=waiting, result={"stopReason": "end_turn"})
`;
const command = ["python3", "-c", AGENT];

test("prompts, a question, and the end", async () => {
  await using sandbox = await Sandbox.create();
  const agent = sandbox.agent(null, {
    command,
    onPermission: (request) => {
      expect(request).toMatchObject({ toolCall: { title: "rm" } });
      return "no";
    },
  });
  const [first, second] = [await agent.prompt("hello"), await agent.prompt("ask")];
  expect(first).toMatchObject({ text: "you said hello", stopReason: "end_turn" });
  expect(first.updates).toHaveLength(2);
  expect(second.text).toBe("chose no");
  expect(agent.session?.info).toMatchObject({ mode: "acp", conversation: "s1" });
  await agent.close();
  expect((await agent.session?.refresh())?.state).toBe("ended");
});

test("an agent that ends in the middle of a turn", async () => {
  await using sandbox = await Sandbox.create();
  await using agent = sandbox.agent(null, { command });
  expect(await rejection(agent.prompt("die"))).toBeInstanceOf(AgentKernelError);
});

test("what is none", async () => {
  await using sandbox = await Sandbox.create();
  expect(() => sandbox.agent(null)).toThrow(InvalidInputError);
  const absent = sandbox.agent(null, { command: ["/none/such"] });
  expect(await rejection(absent.prompt("x"))).toBeInstanceOf(AgentKernelError);
});
