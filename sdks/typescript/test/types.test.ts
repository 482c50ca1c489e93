/** What the compiler holds: the words of this package are those of the API. */

import { expect, test } from "vitest";
import type { CreateOptions, SandboxSpec, UpdateOptions } from "../src/index.ts";
import * as door from "../src/index.ts";
import type { InOurWords, Schemas } from "../src/wire.ts";

type Same<A, B> = [A] extends [B] ? ([B] extends [A] ? true : false) : false;

// `kept` stands for the first, and the second is for those who read configuration files.
type Spec = Omit<Schemas["SandboxSpec"], "ephemeral" | "config">;
type New = Omit<Schemas["NewSandbox"], "ephemeral" | "config">;
type Ours = Omit<CreateOptions, "kept" | "idempotencyKey" | "progress" | "client" | "signal">;

// A field that the API gets or loses makes one of these lines fail to compile.
const spec: Same<Required<SandboxSpec>, Required<InOurWords<Spec>>> = true;
const made: Same<Required<Ours>, Required<InOurWords<New>>> = true;
const updated: Same<keyof UpdateOptions, keyof InOurWords<Schemas["SandboxUpdate"]>> = true;
const codes: Same<Exclude<Schemas["Problem"]["code"], door.ErrorCode>, never> = true;

test("options and codes are those of the OpenAPI file", () => {
  expect([spec, made, updated, codes]).toEqual([true, true, true, true]);
});

test("the public door has these names, and no others", () => {
  const errors = Object.values(door.ERROR_TYPES).map((kind) => kind.name);
  const others = Object.keys(door).filter((name) => !errors.includes(name));
  expect(others.sort()).toEqual([
    "Agent",
    "AgentLogins",
    "AgentSession",
    "AgentSessions",
    "Agents",
    "Client",
    "CommandResult",
    "CommandStream",
    "ERROR_TYPES",
    "Files",
    "Host",
    "Images",
    "Job",
    "Jobs",
    "Network",
    "Ports",
    "Sandbox",
    "Secrets",
    "Templates",
    "Tokens",
    "Volumes",
    "Workspace",
    "run",
    "runBatch",
    "runStream",
  ]);
});
