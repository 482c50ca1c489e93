// Put files and directories into a sandbox, watch them, and take them out again.
import { createWriteStream } from "node:fs";
import { mkdtemp, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { Sandbox } from "agentkernel";

await using sandbox = await Sandbox.create();
const { files } = sandbox;

// One file.
await files.write("/work/hello.txt", "hello\n", { parents: true });
await files.append("/work/hello.txt", "world\n");
console.log((await files.read("/work/hello.txt")).split("\n"));
for (const entry of await files.list("/work")) {
  console.log(entry.name, entry.type, entry.size, entry.mode.toString(8));
}

// A whole directory, out and in again, as a tar archive. What a sandbox put into one is its word:
// unpack it where it can do no harm.
const here = await mkdtemp(join(tmpdir(), "example-"));
const archive = join(here, "work.tar");
await pipeline(files.downloadTar("/work"), createWriteStream(archive));
console.log("the archive has something in it:", (await stat(archive)).size > 1024);
await files.uploadTar(files.downloadTar("/work"), "/copy");
console.log("copied:", (await files.list("/copy")).map(({ name }) => name));
await rm(here, { recursive: true });

// Changes as they happen. The first one says that it listens.
for await (const change of files.watch("/work")) {
  if (change.kind === "ready") await files.remove("/work/hello.txt");
  else {
    console.log(change.kind, change.path);
    break;
  }
}
