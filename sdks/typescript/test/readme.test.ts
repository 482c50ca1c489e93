/** The programs of the README, compiled as a user's would be and run; what they print is what it says. */

import { execFile, execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import * as path from "node:path";
import { promisify } from "node:util";
import { beforeAll, expect, test } from "vitest";

const execute = promisify(execFile);
const PACKAGE = path.resolve(import.meta.dirname, "..");
const PAGES = ["README.md", "../../docs/guides/typescript.md"];

/** Each program with what stands below it. */
function programs(text: string): Array<[source: string, printed: string | undefined]> {
  const blocks = text.matchAll(/```ts\n(.*?)```\n(?:\n```text\n(.*?)```)?/gs);
  return [...blocks].map(([, source = "", printed]) => [source, printed]);
}

const found = PAGES.map((page) => programs(readFileSync(path.join(PACKAGE, page), "utf8")));

beforeAll(() => {
  const place = mkdtempSync(path.join(tmpdir(), "agentkernel-ts-"));
  try {
    const files = found.flatMap((page, index) =>
      page.map(([source], number) => {
        const file = path.join(place, `${index}-${number}.ts`);
        writeFileSync(file, source);
        return file;
      }),
    );
    const words = ["scripts/compile.mjs", "--check-types", "pages", ...files];
    execFileSync(process.execPath, words, { cwd: PACKAGE, stdio: "inherit" });
  } finally {
    rmSync(place, { recursive: true });
  }
});

test.each(PAGES)("%s", async (page) => {
  const index = PAGES.indexOf(page);
  const here = found[index] ?? [];
  expect(here.length).toBeGreaterThan(3);
  const runs = here.map(([source, printed], number) => async () => {
    const file = path.join(PACKAGE, ".build", "pages", `${index}-${number}.js`);
    const { stdout } = await execute(process.execPath, [file], { timeout: 30_000 });
    if (printed !== undefined) expect(stdout, source).toBe(printed);
  });
  await Promise.all(runs.map((run) => run()));
});

test("a page that is wrong is found", () => {
  expect(programs("```ts\na\n```\n\n```text\nb\n```\n\n```ts\nc\n```\n")).toEqual([
    ["a\n", "b\n"],
    ["c\n", undefined],
  ]);
});
