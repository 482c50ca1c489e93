/** A real daemon of this clone, in a state directory of its own, and the built package. */

import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import * as path from "node:path";
import { fileURLToPath } from "node:url";
import type { TestProject } from "vitest/node";

const PACKAGE = fileURLToPath(new URL("..", import.meta.url));
// The first start of a clone fetches and builds what it needs.
const READY_MS = 600_000;

declare module "vitest" {
  interface ProvidedContext {
    stateDir: string;
    program: string;
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const program = path.resolve(process.env["AGENTKERNEL_BIN"] ?? `${PACKAGE}../../agentkernel`);
  execFileSync(process.execPath, ["scripts/build.mjs"], { cwd: PACKAGE, stdio: "inherit" });
  const stateDir = mkdtempSync(path.join(tmpdir(), "agentkernel-ts-"));
  const environment = {
    ...process.env,
    AGENTKERNEL_STATE_DIR: stateDir,
    XDG_CONFIG_HOME: path.join(stateDir, "config"),
    PYTHON_KEYRING_BACKEND: "keyring.backends.fail.Keyring",
  };
  const daemon = spawn(program, ["serve", "--foreground"], {
    env: environment,
    stdio: ["ignore", "pipe", "inherit"],
  });
  await ready(daemon);
  project.provide("stateDir", stateDir);
  project.provide("program", program);

  return async () => {
    execFileSync(program, ["sandbox", "gc", "--older-than", "1ms"], { env: environment });
    const ended = new Promise((done) => daemon.once("exit", (code) => done(code)));
    daemon.kill("SIGTERM");
    const code = await ended;
    rmSync(stateDir, { recursive: true, force: true });
    if (code !== 0) throw new Error(`the daemon ended with ${code}`);
  };
}

function ready(daemon: ChildProcess): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error("the daemon is not ready")), READY_MS);
    daemon.once("error", reject);
    daemon.once("exit", (code) => reject(new Error(`the daemon ended with ${code}`)));
    daemon.stdout?.once("data", () => {
      clearTimeout(timer);
      daemon.removeAllListeners("exit");
      resolve();
    });
  });
}
