import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import * as path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ConflictError, Sandbox } from "../src/index.ts";
import { rejection } from "./waiting.ts";

const label = { suite: "workspace" };
let project = "";

function git(...words: string[]): string {
  const identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"];
  return execFileSync("git", [...identity, ...words], { cwd: project })
    .toString()
    .trim();
}

beforeAll(() => {
  project = mkdtempSync(path.join(tmpdir(), "agentkernel-ts-project-"));
  git("init", "-q", "-b", "main");
  writeFileSync(path.join(project, "file"), "one\n");
  writeFileSync(path.join(project, ".gitignore"), "ignored\n");
  writeFileSync(path.join(project, "ignored"), "x\n");
  git("add", ".");
  git("commit", "-q", "-m", "first");
});

afterAll(async () => {
  for (const sandbox of await Sandbox.list({ labels: label })) await sandbox.remove();
  rmSync(project, { recursive: true });
});

test("changes are seen, applied and discarded", async () => {
  await using sandbox = await Sandbox.create({
    labels: label,
    kept: true,
    workspace: project,
    workspaceIgnored: "hide",
  });
  const done = await sandbox.exec("ls; echo two >> file; echo new > new");
  expect(done.stdout).toBe("file\n");
  const found = await sandbox.workspace.diff();
  expect(found.changes.map((change) => [change.path, change.kind])).toEqual([
    ["file", "modified"],
    ["new", "added"],
  ]);
  expect(found.patch).toContain("+two\n");
  const applied = await sandbox.workspace.apply(["file"], { markConflicts: true });
  expect(applied).toMatchObject({ complete: true, files: [{ path: "file", outcome: "applied" }] });
  expect(readFileSync(path.join(project, "file"), "utf8")).toBe("one\ntwo\n");
  expect(await rejection(sandbox.workspace.discard())).toBeInstanceOf(ConflictError);
  await sandbox.stop();
  await sandbox.workspace.discard();
  expect((await sandbox.workspace.diff()).changes).toEqual([]);
});

test("the work on a branch comes back as a commit", async () => {
  await using sandbox = await Sandbox.create({
    labels: label,
    kept: true,
    workspace: project,
    workspaceBranch: "feat",
  });
  await sandbox.exec("echo work > work");
  expect(await rejection(sandbox.workspace.apply())).toBeInstanceOf(ConflictError);
  const done = await sandbox.workspace.apply([], { commit: "the work" });
  expect(done).toMatchObject({ ref: "refs/heads/feat", commit: git("rev-parse", "feat") });
  expect(git("log", "-1", "--format=%s", "feat")).toBe("the work");
});
