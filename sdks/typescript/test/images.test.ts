/** Images: an archive in and out, and what becomes of sandboxes that are made from them. */

import * as fs from "node:fs";
import * as os from "node:os";
import * as path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import {
  ConflictError,
  Host,
  ImageInvalidError,
  type LayerProgress,
  NotFoundError,
  Sandbox,
} from "../src/index.ts";
import { rejection } from "./waiting.ts";

const { images } = new Host();
const NAME = "imported:ts";
let directory: string;

beforeAll(() => {
  directory = fs.mkdtempSync(path.join(os.tmpdir(), "ak-image-"));
  fs.mkdirSync(path.join(directory, "root"));
  fs.writeFileSync(path.join(directory, "root", "word"), "here");
});
afterAll(async () => {
  await images.prune({ all: true });
  fs.rmSync(directory, { recursive: true });
});

test("imported, looked at, saved, removed, loaded again", async () => {
  const told: LayerProgress[] = [];
  const root = path.join(directory, "root");
  const made = await images.importDirectory(root, NAME, {
    config: { cmd: ["sh"] },
    progress: (event) => told.push(event),
  });
  expect(made.names).toEqual([NAME]);
  expect(told.at(-1)?.state).toBe("ready");
  expect(await images.list()).toMatchObject([{ digest: made.digest }]);
  const detail = await images.inspect(made.id);
  expect(detail.config.cmd).toEqual(["sh"]);
  expect(detail.layers).toMatchObject([{ unpacked: true }]);
  expect((await images.tag(NAME, "other:ts")).names).toContain("other:ts");
  const pieces: Buffer[] = [];
  for await (const piece of images.save([NAME])) pieces.push(piece);
  const archive = Buffer.concat(pieces);
  expect(await images.remove(made.digest, { force: true })).toMatchObject({
    deleted: [made.digest],
  });
  const file = path.join(directory, "saved.tar");
  fs.writeFileSync(file, archive);
  expect(await images.load(file)).toMatchObject([{ digest: made.digest, names: [NAME] }]);
  expect(await images.load([archive], { name: "third:ts" })).toMatchObject([
    { digest: made.digest },
  ]);
});

test("a sandbox of it, and what is refused", async () => {
  const sentences: string[] = [];
  {
    await using sandbox = await Sandbox.create({
      image: NAME,
      progress: (text) => sentences.push(text),
    });
    expect(await sandbox.files.read("/word")).toBe("here");
    await images.remove("third:ts");
    expect(await rejection(images.remove(NAME))).toBeInstanceOf(ConflictError);
  }
  expect(sentences).toEqual([]);
  expect(await rejection(Sandbox.create({ image: "absent:1", pull: "never" }))).toBeInstanceOf(
    NotFoundError,
  );
  expect(await rejection(images.inspect("absent:1"))).toBeInstanceOf(NotFoundError);
  const wrong = await rejection(images.load([Buffer.from("no archive".repeat(200))]));
  expect(wrong).toBeInstanceOf(ImageInvalidError);
});
