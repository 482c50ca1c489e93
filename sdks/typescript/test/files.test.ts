import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import * as path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import {
  type Change,
  GuestFileExistsError,
  GuestFileNotFoundError,
  GuestFilePermissionError,
  GuestFileTooLargeError,
  GuestIsADirectoryError,
  InvalidInputError,
  Sandbox,
} from "../src/index.ts";
import { rejection } from "./waiting.ts";

let sandbox: Sandbox;
let here: string;
beforeAll(async () => {
  sandbox = await Sandbox.create();
  here = mkdtempSync(path.join(tmpdir(), "agentkernel-ts-"));
});
afterAll(async () => {
  await sandbox.remove();
  rmSync(here, { recursive: true });
});

async function joined(pieces: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const all: Uint8Array[] = [];
  for await (const piece of pieces) all.push(piece);
  return Buffer.concat(all);
}

test("write, append, read, ranges", async () => {
  const { files } = sandbox;
  expect(await files.write("/tmp/a/b", "höre", { parents: true, mode: 0o600 })).toBe(5);
  expect(await files.append("/tmp/a/b", Buffer.from("!"))).toBe(6);
  expect(await files.read("/tmp/a/b")).toBe("höre!");
  expect((await files.readBytes("/tmp/a/b", { offset: 4, length: 1 })).toString()).toBe("e");
  expect((await joined(files.readStream("/tmp/a/b", { offset: 3 }))).toString()).toBe("re!");
  expect(await files.stat("/tmp/a/b")).toMatchObject({ type: "file", size: 6, mode: 0o600 });
});

test("text that is none is not bent", async () => {
  await sandbox.files.write("/tmp/bytes", Uint8Array.of(0xff, 0xfe));
  expect(await rejection(sandbox.files.read("/tmp/bytes"))).toBeInstanceOf(TypeError);
  expect([...(await sandbox.files.readBytes("/tmp/bytes"))]).toEqual([0xff, 0xfe]);
});

test("large files go in pieces, both ways", async () => {
  const piece = Buffer.alloc(1 << 20, "0123456789");
  async function* pieces() {
    for (let index = 0; index < 24; index++) yield piece;
  }
  expect(await sandbox.files.write("/tmp/large", pieces())).toBe(24 << 20);
  let size = 0;
  for await (const part of sandbox.files.readStream("/tmp/large")) size += part.length;
  expect(size).toBe(24 << 20);
  // Leaving it early is allowed.
  for await (const part of sandbox.files.readStream("/tmp/large")) {
    expect(part.length).toBeGreaterThan(0);
    break;
  }
});

test("an upload that is refused early says why, however much is left of it", async () => {
  await sandbox.files.mkdir("/tmp/directory");
  let left = 0;
  async function* endless() {
    try {
      for (;;) yield Buffer.alloc(1 << 16);
    } finally {
      left += 1;
    }
  }
  for (let round = 0; round < 20; round++) {
    const error = await rejection(sandbox.files.write("/tmp/directory", endless()));
    expect(error).toBeInstanceOf(GuestIsADirectoryError);
  }
  expect(left).toBe(20);
});

test("an upload is ended by its signal, also while its source hangs", async () => {
  async function* hanging() {
    yield Buffer.alloc(1 << 16);
    await new Promise(() => undefined);
  }
  const { files } = sandbox;
  const signal = AbortSignal.timeout(100);
  expect(await rejection(files.write("/tmp/hung", hanging(), { signal }))).toMatchObject({
    name: "TimeoutError",
  });
  expect(await files.exists("/tmp/hung")).toBe(false);
});

test("an upload whose source fails leaves nothing behind", async () => {
  async function* failing() {
    yield Buffer.from("half");
    throw new RangeError("no more");
  }
  expect(await rejection(sandbox.files.write("/tmp/half", failing()))).toBeInstanceOf(RangeError);
  expect(await sandbox.files.exists("/tmp/half")).toBe(false);
});

test("directories, moves, removals and their errors", async () => {
  const { files } = sandbox;
  await files.mkdir("/tmp/d/e", { parents: true, mode: 0o750 });
  expect(await rejection(files.mkdir("/tmp/d/e"))).toBeInstanceOf(GuestFileExistsError);
  await files.write("/tmp/d/e/x", "1");
  await files.move("/tmp/d/e/x", "/tmp/d/y");
  await sandbox.exec(["ln", "-s", "y", "/tmp/d/link"]);
  const entries = await files.list("/tmp/d");
  expect(entries.map(({ name, type }) => [name, type]).sort()).toEqual([
    ["e", "dir"],
    ["link", "link"],
    ["y", "file"],
  ]);
  expect(await files.stat("/tmp/d/link", { follow: false })).toMatchObject({ target: "y" });
  expect((await files.stat("/tmp/d/link")).type).toBe("file");
  expect(await rejection(files.remove("/tmp/d"))).toMatchObject({
    details: { errno_name: "ENOTEMPTY" },
  });
  await files.remove("/tmp/d", { recursive: true });
  expect(await files.exists("/tmp/d")).toBe(false);
  const missing = await rejection(files.read("/tmp/d/y"));
  expect(missing).toBeInstanceOf(GuestFileNotFoundError);
  expect(missing).toMatchObject({ code: "file_not_found", details: { errno_name: "ENOENT" } });
});

test("names that are no text, and odd ones, are reached", async () => {
  await sandbox.exec(
    "mkdir /tmp/odd; cd /tmp/odd; printf raw > \"$(printf 'a\\377b')\"; echo q > 'a b?&#%é'",
  );
  const entries = await sandbox.files.list("/tmp/odd");
  const raw = entries.find(({ nameBytes }) => nameBytes.includes(0xff));
  if (raw === undefined) throw new Error("it is not listed");
  const place = Buffer.concat([Buffer.from("/tmp/odd/"), raw.nameBytes]);
  expect((await sandbox.files.readBytes(place)).toString()).toBe("raw");
  expect(await sandbox.files.read("/tmp/odd/a b?&#%é")).toBe("q\n");
});

test("trees go in and out as tar", async () => {
  const source = path.join(here, "in");
  execFileSync("mkdir", ["-p", `${source}/sub`]);
  writeFileSync(`${source}/sub/one`, "1");
  symlinkSync("sub/one", `${source}/link`);
  const archive = execFileSync("tar", ["-C", source, "-cf", "-", "."]);
  expect(await sandbox.files.uploadTar([archive], "/work/tree")).toEqual({ files: 3, bytes: 1 });
  expect((await sandbox.exec("cat /work/tree/link")).stdout).toBe("1");
  const back = await joined(sandbox.files.downloadTar("/work/tree", { prefix: "out" }));
  execFileSync("tar", ["-C", here, "-xf", "-"], { input: back });
  expect(readFileSync(path.join(here, "out/sub/one"), "utf8")).toBe("1");

  const damaged = await rejection(sandbox.files.uploadTar([Buffer.from("no tar")], "/work/x"));
  expect(damaged).toBeInstanceOf(InvalidInputError);
  const much = joined(sandbox.files.downloadTar("/work/tree", { limitFiles: 1 }));
  expect(await rejection(much)).toBeInstanceOf(GuestFileTooLargeError);
});

test("changes are told until what is watched is gone", async () => {
  await sandbox.files.mkdir("/tmp/watched");
  const seen: Change[] = [];
  for await (const change of sandbox.files.watch("/tmp/watched", { recursive: true })) {
    seen.push(change);
    if (change.kind === "ready") {
      await sandbox.exec("cd /tmp/watched; echo 1 > a; mv a b; rm b; cd /; rmdir /tmp/watched");
    }
  }
  expect(seen[0]).toMatchObject({ kind: "ready", path: "" });
  expect(seen.map(({ kind }) => kind)).toEqual(
    expect.arrayContaining(["create", "move", "remove"]),
  );
  expect(seen.find(({ kind }) => kind === "move")).toMatchObject({ path: "a", to: "b" });
  const missing = sandbox.files.watch("/tmp/watched").next();
  expect(await rejection(missing)).toBeInstanceOf(GuestFileNotFoundError);
});

// A normal user without subordinate ids has one user id inside.
test.skipIf(process.getuid?.() !== 0)("a call has the rights of its user: as root", async () => {
  const { files } = sandbox;
  await files.write("/root/secret", "x", { mode: 0o600 });
  expect(await files.read("/root/secret", { user: "root" })).toBe("x");
  const refused = await rejection(files.read("/root/secret", { user: "user" }));
  expect(refused).toBeInstanceOf(GuestFilePermissionError);
});
