/** A daemon that listens on TCP: tokens, and TLS. */

import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import * as path from "node:path";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { type AgentKernelError, Client, DaemonError, Host, run, Sandbox } from "../src/index.ts";
import { rejection } from "./waiting.ts";

const program = inject("program");

// One state directory for both: the image is made once.
let place: string;
beforeAll(() => {
  place = mkdtempSync(path.join(tmpdir(), "agentkernel-ts-"));
});
afterAll(() => rmSync(place, { recursive: true, force: true }));

describe.each(["http", "https"])("over %s", (scheme) => {
  let daemon: ChildProcess;
  let url: string;
  let token: string;
  let ca: Buffer | undefined;

  beforeAll(async () => {
    const environment = { ...process.env, AGENTKERNEL_STATE_DIR: place };
    const words = ["serve", "--foreground", "--listen", "127.0.0.1:0"];
    if (scheme === "https") {
      const [cert, key] = [`${place}/cert.pem`, `${place}/key.pem`];
      const subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"];
      const kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
      const files = ["-keyout", key, "-out", cert];
      execFileSync("openssl", ["req", "-x509", ...kind, ...subject, ...files], { stdio: "ignore" });
      words.push("--tls-cert", cert, "--tls-key", key);
      ca = readFileSync(cert);
    }
    daemon = spawn(program, words, { env: environment, stdio: ["ignore", "pipe", "inherit"] });
    const line = await new Promise<string>((done) =>
      daemon.stdout?.once("data", (d) => done(`${d}`)),
    );
    url = /https?:\/\/[\w.:[\]]+/.exec(line)?.[0] ?? "";
    expect(url.startsWith(`${scheme}://`), line).toBe(true);
    const made = execFileSync(program, ["token", "create", scheme, "--json"], { env: environment });
    token = JSON.parse(made.toString("utf8")).token;
  });

  afterAll(async () => {
    const ended = new Promise((done) => daemon.once("exit", done));
    daemon.kill("SIGTERM");
    await ended;
  });

  const client = (): Client => new Client({ url, token, ...(ca && { ca }) });

  test("calls, streams, files and events", async () => {
    using remote = client();
    expect((await run("echo $((6 * 7))", { client: remote })).stdout).toBe("42\n");
    await using sandbox = await Sandbox.create({ client: remote });
    const stream = sandbox.stream("cat; exit 3", { stdin: true });
    await stream.write(Buffer.alloc(1 << 20, "x"));
    await stream.closeStdin();
    let size = 0;
    for await (const chunk of stream) size += chunk.data.length;
    expect([size, stream.result.exitCode]).toEqual([1 << 20, 3]);
    const pieces = Array.from({ length: 40 }, () => Buffer.alloc(1 << 17));
    expect(await sandbox.files.write("/tmp/x", pieces)).toBe(40 << 17);
    expect((await sandbox.files.readBytes("/tmp/x")).length).toBe(40 << 17);
  });

  test("without the token there is nothing, and it is said", async () => {
    for (const wrong of [{ url }, { url, token: "ak_wrong" }]) {
      using stranger = new Client({ ...wrong, ...(ca && { ca }) });
      const error = (await rejection(new Host({ client: stranger }).version())) as AgentKernelError;
      expect(error.code).toBe("unauthenticated");
      expect((await rejection(run("true", { client: stranger }))) as Error).toMatchObject({
        code: "unauthenticated",
      });
    }
  });

  test.skipIf(scheme === "http")("a certificate that nobody vouches for is refused", async () => {
    using trusting = new Client({ url, token });
    const error = await rejection(new Host({ client: trusting }).version());
    expect(error).toBeInstanceOf(DaemonError);
    expect(error).toMatchObject({ hint: expect.stringContaining("AGENTKERNEL_CA") });
  });
});
