/** Templates: built of steps, listed, removed; what is none is refused. */

import * as fs from "node:fs";
import * as os from "node:os";
import * as path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Host, InvalidInputError, NotFoundError, UnsupportedError } from "../src/index.ts";
import { rejection } from "./waiting.ts";

const { images, templates } = new Host();
const BASE = "localhost/ts-base:1";
let directory: string;

beforeAll(async () => {
  directory = fs.mkdtempSync(path.join(os.tmpdir(), "ak-template-"));
  fs.writeFileSync(path.join(directory, "word"), "here");
  await images.importDirectory(directory, BASE);
});
afterAll(async () => {
  await images.remove(BASE);
  fs.rmSync(directory, { recursive: true });
});

test("built, shown, removed", async () => {
  const told: string[] = [];
  const spec = {
    base: BASE,
    steps: [{ env: { MODE: "test $HOME" } }, { workdir: "/app" }],
    start: "sleep 1000",
    ready: { port: 8000, seconds: 5 },
  };
  const made = await templates.build("ts", spec, { progress: (kind) => told.push(kind) });
  expect(made).toMatchObject({ name: "ts", image: "localhost/template/ts:latest", base: BASE });
  expect(told).toContain("step");
  expect((await templates.list()).map((one) => one.name)).toEqual(["ts"]);
  expect((await templates.get("ts")).ready?.port).toBe(8000);
  await templates.remove("ts");
  expect(await rejection(templates.get("ts"))).toBeInstanceOf(NotFoundError);
});

test("what is none", async () => {
  expect(await rejection(templates.build("x", { base: "host" }))).toBeInstanceOf(UnsupportedError);
  const source = templates.buildSource("x", "ssh://example.org/x");
  expect(await rejection(source)).toBeInstanceOf(InvalidInputError);
  expect(await images.inReach("localhost/absent")).toBe(false);
});
