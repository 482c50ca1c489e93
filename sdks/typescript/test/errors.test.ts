import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import {
  AgentKernelError,
  CommandFailedError,
  CommandTimeoutError,
  DaemonError,
  ERROR_TYPES,
  GuestFileError,
  GuestFileNotFoundError,
  InvalidInputError,
  NotFoundError,
  run,
  Sandbox,
} from "../src/index.ts";
import { errorOf, errorOfAnswer } from "../src/problems.ts";
import { rejection } from "./waiting.ts";

const PAGE = new URL("../../../docs/reference/errors.md", import.meta.url);

test("every documented code has its class, and nothing else has", () => {
  const rows = readFileSync(PAGE, "utf8").matchAll(
    /^\| `(\w+)` \| `(\w+)` \| \d+ \| (yes|no) \|/gm,
  );
  const documented = Object.fromEntries(
    [...rows].map(([, code, name, retry]) => [code, [name, retry === "yes"]]),
  );
  const ours = Object.fromEntries(
    Object.entries(ERROR_TYPES).map(([code, kind]) => [code, [kind.name, kind.retryable]]),
  );
  expect(Object.keys(ours).length).toBeGreaterThan(25);
  expect(ours).toEqual(documented);
  for (const [code, kind] of Object.entries(ERROR_TYPES)) expect(kind.code).toBe(code);
});

test("a problem becomes its class, with all it says", () => {
  const error = errorOf({
    code: "file_not_found",
    detail: "no such file",
    hint: "look again",
    retryable: false,
    details: { path: "/x" },
  });
  expect(error).toBeInstanceOf(GuestFileNotFoundError);
  expect(error).toBeInstanceOf(GuestFileError);
  expect(error).toBeInstanceOf(AgentKernelError);
  expect(error).toMatchObject({
    name: "GuestFileNotFoundError",
    code: "file_not_found",
    message: "no such file",
    hint: "look again",
    retryable: false,
    details: { path: "/x" },
  });
});

test.each(["from_the_future", "constructor", "__proto__"])(
  "a code that is not known stays readable: %s",
  (code) => {
    const error = errorOf({ code, detail: "new", retryable: true });
    expect(error.constructor).toBe(AgentKernelError);
    expect(error).toMatchObject({ code, retryable: true, message: "new" });
  },
);

test.each([
  ["text/html", "<h1>502</h1>"],
  ["application/json", "{"],
  ["application/json", "[]"],
])("an answer that is no problem is the daemon's error: %s %s", (kind, body) => {
  const error = errorOfAnswer(502, kind, body);
  expect(error).toBeInstanceOf(DaemonError);
  expect(error.details).toEqual({ status: 502 });
});

test("errors of a real daemon have code and hint", async () => {
  const missing = await rejection(Sandbox.connect("nobody"));
  expect(missing).toBeInstanceOf(NotFoundError);
  expect(missing).toMatchObject({ code: "not_found", retryable: false });
  expect(await rejection(Sandbox.connect("../version"))).toBeInstanceOf(NotFoundError);
  const wrong = await rejection(Sandbox.create({ colour: "red" } as object));
  expect(wrong).toBeInstanceOf(InvalidInputError);
  expect((wrong as AgentKernelError).message).toContain("colour");
});

test("a command that fails is an error only if asked for", async () => {
  expect((await run("exit 3")).exitCode).toBe(3);
  const failed = await rejection(run("echo why >&2; exit 3", { check: true }));
  expect(failed).toBeInstanceOf(CommandFailedError);
  expect(failed).toMatchObject({ message: "the command exited with 3: why" });
  expect((failed as CommandFailedError).result?.exitCode).toBe(3);
  const slow = await rejection(run("sleep 100", { timeoutSeconds: 0.2, check: true }));
  expect(slow).toBeInstanceOf(CommandTimeoutError);
});
