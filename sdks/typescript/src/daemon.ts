/**
 * Starting the daemon of a state directory when none answers.
 *
 * However many processes find none at once, one daemon gets the directory's lock; the others end with
 * `state_locked`, and whoever started those waits for the one that has it.
 */

import { type ChildProcess, spawn } from "node:child_process";
import * as fs from "node:fs";
import * as path from "node:path";
import type { Readable } from "node:stream";
import { setTimeout as pause } from "node:timers/promises";
import { DaemonError, DaemonTimeoutError, HostError, StateLockedError } from "./error-types.ts";
import type { AgentKernelError } from "./errors.ts";
import { errorOf, isObject, type JsonObject, parseObject } from "./problems.ts";

const START_MS = 30_000;
const PAUSE_MS = 50;
const LONGEST_ANSWER = 1 << 16;
const LOG_FLAGS =
  fs.constants.O_WRONLY | fs.constants.O_CREAT | fs.constants.O_APPEND | fs.constants.O_NOFOLLOW;

const starting = new Map<string, Promise<void>>();

/** Resolves when a daemon answers, started by us or by anybody; or rejects with its own words. */
export function startDaemon(stateDir: string, answers: () => Promise<boolean>): Promise<void> {
  let start = starting.get(stateDir);
  if (start === undefined) {
    start = startOnce(stateDir, answers).finally(() => starting.delete(stateDir));
    starting.set(stateDir, start);
  }
  return start;
}

async function startOnce(stateDir: string, answers: () => Promise<boolean>): Promise<void> {
  const deadline = Date.now() + START_MS;
  makeStateDirectory(stateDir);
  while (!(await answers())) {
    const error = await launch(stateDir, deadline);
    if (error === undefined) return;
    if (!(error instanceof StateLockedError) || Date.now() > deadline) throw error;
    // Somebody else's is just starting, or an old one is just ending.
    await pause(PAUSE_MS);
  }
}

/** Private and ours: a guest's setuid files are real files in there. */
function makeStateDirectory(stateDir: string): void {
  const hint = "set AGENTKERNEL_STATE_DIR to a directory of yours";
  let info: fs.Stats;
  try {
    fs.mkdirSync(stateDir, { recursive: true, mode: 0o700 });
    info = fs.statSync(stateDir);
  } catch (error) {
    const words = `the state directory can't be made: ${stateDir}: ${(error as Error).message}`;
    throw new HostError(words, { hint });
  }
  if (info.uid !== process.getuid?.()) {
    throw new HostError(`the state directory belongs to another user: ${stateDir}`, { hint });
  }
  if (info.mode & 0o077) fs.chmodSync(stateDir, 0o700);
}

/** `AGENTKERNEL_BIN`, else what PATH calls `agentkernel`. */
function program(): string {
  const chosen = process.env["AGENTKERNEL_BIN"];
  if (!chosen) return "agentkernel";
  return chosen.includes("/") ? path.resolve(chosen) : chosen;
}

/** Starts one and waits until it is ready. Why it is not, if it ended instead. */
async function launch(stateDir: string, deadline: number): Promise<AgentKernelError | undefined> {
  const logPath = path.join(stateDir, "daemon.log");
  const log = fs.openSync(logPath, LOG_FLAGS, 0o600);
  let child: ChildProcess;
  try {
    child = spawn(program(), ["serve", "--ready-fd", "3"], {
      cwd: "/",
      // It outlives us, and no signal of our terminal is meant for it.
      detached: true,
      stdio: ["ignore", log, log, "pipe"],
      env: { ...process.env, AGENTKERNEL_STATE_DIR: stateDir },
    });
  } finally {
    fs.closeSync(log);
  }
  const ready = child.stdio[3] as Readable;
  try {
    const told = await answer(child, ready, deadline);
    if (told === undefined) {
      return new DaemonError("the daemon ended before it was ready", {
        hint: `its log is ${logPath}`,
      });
    }
    return isObject(told["error"]) ? errorOf(told["error"]) : undefined;
  } catch (error) {
    child.kill("SIGKILL");
    if (error instanceof DaemonTimeoutError) {
      throw new DaemonTimeoutError(error.message, { hint: `its log is ${logPath}` });
    }
    throw error;
  } finally {
    ready.destroy();
    child.unref();
  }
}

/** The line that it says when it is ready or can't be; undefined if it ended without a word. */
function answer(
  child: ChildProcess,
  ready: Readable,
  deadline: number,
): Promise<JsonObject | undefined> {
  return new Promise((resolve, reject) => {
    let text = "";
    const timer = setTimeout(
      () => reject(new DaemonTimeoutError("the daemon did not start in time")),
      Math.max(0, deadline - Date.now()),
    );
    const finish = (): void => {
      clearTimeout(timer);
      try {
        resolve(text === "" ? undefined : parseObject(text));
      } catch (error) {
        reject(error);
      }
    };
    child.once("error", (error) => {
      clearTimeout(timer);
      reject(unstartable(error));
    });
    ready.setEncoding("utf8");
    ready.on("data", (piece: string) => {
      text += piece;
      if (text.includes("\n") || text.length > LONGEST_ANSWER) finish();
    });
    ready.once("error", finish);
    ready.once("end", finish);
  });
}

function unstartable(error: Error): DaemonError {
  const missing = (error as NodeJS.ErrnoException).code === "ENOENT";
  return new DaemonError(
    missing ? `no daemon answers, and there is no ${program()} to start` : error.message,
    {
      hint: "install agentkernel, or name its program in AGENTKERNEL_BIN or a daemon in AGENTKERNEL_URL",
      cause: error,
    },
  );
}
