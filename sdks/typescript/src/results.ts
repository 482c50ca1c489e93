/** What the calls give back: plain values, no connection in them. */

import { constants } from "node:os";
import { CommandFailedError, CommandTimeoutError } from "./error-types.ts";
import { broken, isObject, type JsonObject } from "./problems.ts";
import type { SandboxBody, Schemas } from "./wire.ts";

export type Outcome = Schemas["Outcome"];
const OUTCOMES: Outcome[] = ["exited", "signaled", "timeout", "oom", "not_started", "lost"];

/**
 * How a command ended. `exitCode` is null unless it exited: none is ever invented.
 *
 * What it used is null where nobody could count it. `outputBytes` is all that it wrote.
 */
export class CommandResult {
  readonly outcome: Outcome;
  readonly exitCode: number | null;
  readonly signal: number | null;
  readonly stdoutBytes: Buffer;
  readonly stderrBytes: Buffer;
  readonly truncated: boolean;
  readonly droppedBytes: number;
  readonly errno: string | null;
  readonly stage: string | null;
  readonly cpuSeconds: number | null;
  readonly peakMemoryBytes: number | null;
  readonly diskWrittenBytes: number | null;
  readonly outputBytes: number | null;
  readonly #body: unknown;

  /** From a *result* of the HTTP API; an `exit` event has no output, which is given then. */
  constructor(body: unknown, output?: { stdout: Buffer; stderr: Buffer }) {
    this.#body = body;
    const fields = objectOf(body);
    const usage = isObject(fields["usage"]) ? fields["usage"] : {};
    const outcome = OUTCOMES.find((known) => known === fields["outcome"]);
    if (outcome === undefined) throw broken("an outcome that is none");
    this.outcome = outcome;
    this.exitCode = numberOf(fields, "exit_code");
    this.signal = numberOf(fields, "signal");
    this.stdoutBytes = output?.stdout ?? bytesOf(fields, "stdout") ?? Buffer.alloc(0);
    this.stderrBytes = output?.stderr ?? bytesOf(fields, "stderr") ?? Buffer.alloc(0);
    this.truncated = fields["truncated"] === true;
    this.droppedBytes = numberOf(fields, "dropped_bytes") ?? 0;
    this.errno = textOf(fields, "errno");
    this.stage = textOf(fields, "stage");
    this.cpuSeconds = numberOf(usage, "cpu_seconds");
    this.peakMemoryBytes = numberOf(usage, "peak_memory_bytes");
    this.diskWrittenBytes = numberOf(usage, "disk_written_bytes");
    this.outputBytes = numberOf(usage, "output_bytes");
  }

  get ok(): boolean {
    return this.exitCode === 0;
  }

  /** As text; what is not UTF-8 is a replacement mark, and exact in `stdoutBytes`. */
  get stdout(): string {
    return this.stdoutBytes.toString("utf8");
  }

  get stderr(): string {
    return this.stderrBytes.toString("utf8");
  }

  /** The same of a command whose output was read elsewhere. */
  withOutput(stdout: Buffer, stderr: Buffer): CommandResult {
    return new CommandResult(this.#body, { stdout, stderr });
  }

  /** Itself if the exit code is 0, else throws CommandFailedError. */
  check(): this {
    if (this.ok) return this;
    const kind = this.outcome === "timeout" ? CommandTimeoutError : CommandFailedError;
    const last = this.stderr.trim().split("\n").at(-1)?.slice(0, 500);
    const message = `the command ${this.#words()}`;
    throw new kind(last ? `${message}: ${last}` : message, { result: this });
  }

  #words(): string {
    switch (this.outcome) {
      case "exited":
        return `exited with ${this.exitCode}`;
      case "signaled":
        return `was ended by ${signalName(this.signal)}`;
      case "timeout":
        return "was ended when its time was over";
      case "oom":
        return "ran out of memory";
      case "not_started":
        return `could not be started (${this.stage ?? "?"}: ${this.errno ?? "?"})`;
      case "lost":
        return "was lost with its sandbox";
    }
  }
}

/** A piece of output as it came. `text` never splits a character between two chunks. */
export interface Chunk {
  stream: "stdout" | "stderr";
  data: Buffer;
  text: string;
  offset: number;
}

/** A sandbox as the daemon sees it; `raw` is the whole answer. */
export interface SandboxInfo {
  id: string;
  name: string | null;
  state: SandboxBody["state"];
  backend: string;
  labels: Record<string, string>;
  /** Unix seconds. */
  createdAt: number;
  expiresAt: number | null;
  error: string | null;
  /** Sentences about limits it should have and has not. */
  notices: string[];
  /** There once asked for by `connect` or `refresh`: what it used since it was started last. */
  usage: Schemas["SandboxUsage"] | null;
  raw: SandboxBody;
}

export function sandboxInfo(answer: unknown): SandboxInfo {
  const body = checked<SandboxBody>(answer, "id", "state");
  return {
    id: body.id,
    name: body.name ?? null,
    state: body.state,
    backend: body.backend ?? "",
    labels: body.labels ?? {},
    createdAt: body.created_at ?? 0,
    expiresAt: body.expires_at ?? null,
    error: body.error ?? null,
    notices: body.notices ?? [],
    usage: body.usage ?? null,
    raw: body,
  };
}

/** A job as the daemon sees it. `result` is there once it ended; of a lost one nobody knows. */
export interface JobInfo {
  id: string;
  sandboxId: string;
  state: Schemas["Job"]["state"];
  argv: string[];
  createdAt: number;
  endedAt: number | null;
  result: CommandResult | null;
  raw: Schemas["Job"];
}

export function jobInfo(answer: unknown): JobInfo {
  const body = checked<Schemas["Job"]>(answer, "id", "state");
  return {
    id: body.id,
    sandboxId: body.sandbox_id ?? "",
    state: body.state,
    argv: body.argv ?? [],
    createdAt: body.created_at ?? 0,
    endedAt: body.ended_at ?? null,
    result: isObject(body.status) ? new CommandResult(body.status) : null,
    raw: body,
  };
}

export type FileType = Schemas["FileType"];

/** A file, as `stat` and `list` show it. `nameBytes` is exact where `name` can't be. */
export interface Entry {
  name: string;
  nameBytes: Buffer;
  type: FileType;
  size: number;
  mode: number;
  uid: number;
  gid: number;
  mtime: Date;
  /** Where a link leads. */
  target: string | null;
}

export function entryOf(answer: unknown): Entry {
  const body = objectOf(answer);
  const name = bytesOf(body, "name") ?? Buffer.alloc(0);
  return {
    name: name.toString("utf8"),
    nameBytes: name,
    type: needed(body, "type") as FileType,
    size: count(body, "size"),
    mode: count(body, "mode"),
    uid: count(body, "uid"),
    gid: count(body, "gid"),
    mtime: new Date(count(body, "mtime_ms")),
    target: bytesOf(body, "target")?.toString("utf8") ?? null,
  };
}

/**
 * Something happened to `path`, relative to what is watched ("": to that itself).
 *
 * `ready` is the first: what happens after it is told. `overflow`: changes were lost, look for
 * yourself.
 */
export interface Change {
  kind: "ready" | "create" | "modify" | "remove" | "move" | "overflow";
  path: string;
  pathBytes: Buffer;
  /** Where it was moved to. */
  to: string | null;
}

export function changeOf(kind: string, body: JsonObject): Change {
  const path = bytesOf(body, "path") ?? Buffer.alloc(0);
  return {
    kind: kind as Change["kind"],
    path: path.toString("utf8"),
    pathBytes: path,
    to: bytesOf(body, "to")?.toString("utf8") ?? null,
  };
}

/** Something happened. Of the kind `gap`: events were lost, those before `seq`; look anew. */
export interface Event {
  /** To go on from later: `after`. */
  seq: number;
  /** Unix seconds. */
  at: number;
  kind: string;
  sandboxId: string | null;
  body: JsonObject;
}

export function eventOf(kind: string, body: JsonObject): Event {
  if (kind === "gap") return { seq: count(body, "oldest"), at: 0, kind, sandboxId: null, body };
  return {
    seq: count(body, "seq"),
    at: count(body, "at"),
    kind,
    sandboxId: textOf(body, "sandbox_id"),
    body: isObject(body["body"]) ? body["body"] : {},
  };
}

/** The files of an upload, and their sizes. */
export function uploadedFiles(answer: unknown): Record<string, number> {
  const files = listOf(answer, "files").map(objectOf);
  return Object.fromEntries(
    files.map((file) => [bytesOf(file, "path")?.toString("utf8") ?? "", count(file, "size")]),
  );
}

/** What was copied as tar. */
export interface TreeSummary {
  files: number;
  bytes: number;
}

export function objectOf(value: unknown): JsonObject {
  if (!isObject(value)) throw broken("it is no object");
  return value;
}

export function listOf(answer: unknown, key: string): unknown[] {
  const list = objectOf(answer)[key];
  if (!Array.isArray(list)) throw broken(`no list of ${key}`);
  return list;
}

export function count(body: JsonObject, key: string): number {
  const value = numberOf(body, key);
  if (value === null) throw broken(`no number of ${key}`);
  return value;
}

/** A daemon of another version, or one that is none, may answer anything: the rest may be missing. */
function checked<Body>(answer: unknown, ...texts: Array<keyof Body & string>): Body {
  const body = objectOf(answer);
  for (const key of texts) needed(body, key);
  return body as Body;
}

function needed(body: JsonObject, key: string): string {
  const value = body[key];
  if (typeof value !== "string") throw broken(`it lacks ${key}`);
  return value;
}

function numberOf(body: JsonObject, key: string): number | null {
  const value = body[key] ?? null;
  if (value !== null && typeof value !== "number") throw broken(`${key} is no number`);
  return value;
}

function textOf(body: JsonObject, key: string): string | null {
  const value = body[key] ?? null;
  if (value !== null && typeof value !== "string") throw broken(`${key} is no text`);
  return value;
}

/** Text, or bytes that are none: `…_b64`. */
function bytesOf(body: JsonObject, key: string): Buffer | null {
  const encoded = textOf(body, `${key}_b64`);
  if (encoded !== null) return Buffer.from(encoded, "base64");
  const text = textOf(body, key);
  return text === null ? null : Buffer.from(text);
}

function signalName(number: number | null): string {
  const found = Object.entries(constants.signals).find(([, value]) => value === number);
  return found?.[0] ?? `signal ${number}`;
}
