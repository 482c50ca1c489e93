/**
 * Sandboxes over the daemon.
 *
 *     await using sandbox = await Sandbox.create({ ttlSeconds: 900 });
 *     const result = await sandbox.exec("python3 -c 'print(2 + 2)'");
 *     console.log(result.stdout, result.exitCode);
 */

import { randomUUID } from "node:crypto";
import { Agent, type AgentOptions } from "./agent.ts";
import { type CallOptions, type Client, LONG_CALL_SECONDS, sharedClient } from "./client.ts";
import {
  type Command,
  type CommandOptions,
  CommandStream,
  commandBody,
  given,
  type StreamOptions,
} from "./commands.ts";
import { NotFoundError } from "./error-types.ts";
import { Files } from "./files.ts";
import { Jobs } from "./jobs.ts";
import { Network } from "./network.ts";
import { Ports } from "./ports.ts";
import { broken } from "./problems.ts";
import {
  type CommandResult,
  type Event,
  eventOf,
  listOf,
  objectOf,
  type SandboxInfo,
  sandboxInfo,
} from "./results.ts";
import { collect, finish, inputBody, run, runBatch, runStream } from "./runs.ts";
import { mayBeFetched, type SandboxSpec, specBody } from "./specs.ts";
import { serverEvents } from "./sse.ts";
import { type Query, segment } from "./target.ts";
import type { Schemas } from "./wire.ts";
import { Workspace } from "./workspace.ts";

const PAGE = 500;
const STOP_SECONDS = 60;
// Of each of stdout and stderr, where the sandbox does not say.
const OUTPUT_BYTES = 16 << 20;

export type AtEnd = "stop" | "remove";

export interface CreateOptions extends SandboxSpec, CallOptions {
  name?: string;
  /**
   * Whether it stays at the end of its block, with its files on disk; one with a name does unless
   * this says otherwise. Files of any other are in memory.
   */
  kept?: boolean;
  labels?: Record<string, string>;
  /** How long it lives at most. */
  ttlSeconds?: number;
  /** How long without any call, command or job. */
  idleSeconds?: number;
  onTtl?: AtEnd;
  onIdle?: AtEnd;
  /** A repeated call with the same key gives the same sandbox. */
  idempotencyKey?: string;
  /** Told in sentences what is made for it, such as an image that is fetched. */
  progress?: (text: string) => void;
  client?: Client;
}

export interface ExecOptions extends CommandOptions, CallOptions {
  /** What the command reads. */
  stdin?: string | Uint8Array;
  /** Anything but exit code 0 throws CommandFailedError. */
  check?: boolean;
}

export interface UpdateOptions {
  name?: string | null;
  labels?: Record<string, string | null>;
  /** Begins anew, from now. */
  ttlSeconds?: number | null;
  idleSeconds?: number | null;
  onTtl?: AtEnd;
  onIdle?: AtEnd;
}

interface Connecting extends CallOptions {
  client?: Client;
}

/** One sandbox. `info` is what was known when it was asked last. */
export class Sandbox implements AsyncDisposable {
  info: SandboxInfo;
  readonly kept: boolean;
  readonly files: Files;
  readonly jobs: Jobs;
  readonly ports: Ports;
  readonly workspace: Workspace;
  readonly network: Network;
  readonly #client: Client;
  readonly #path: string;

  private constructor(client: Client, info: SandboxInfo, kept = true) {
    this.info = info;
    this.kept = kept;
    this.files = new Files(client, info.id);
    this.jobs = new Jobs(client, info.id);
    this.ports = new Ports(client, info.id);
    this.workspace = new Workspace(client, info.id);
    this.network = new Network(client, info.id);
    this.#client = client;
    this.#path = `/v1/sandboxes/${segment(info.id)}`;
  }

  get id(): string {
    return this.info.id;
  }

  get name(): string | null {
    return this.info.name;
  }

  // -- life -------------------------------------------------------------------------------------

  /**
   * Makes and starts a sandbox.
   *
   * One that has no name is removed at the end of its `await using` block, and its files are in
   * memory. With a name, or `kept: true`, it stays, and its files survive stop and start.
   */
  static async create(options: CreateOptions = {}): Promise<Sandbox> {
    const { name, labels, ttlSeconds, idleSeconds, onTtl, onIdle, idempotencyKey, ...rest } =
      options;
    const { kept = name !== undefined, client = sharedClient(), signal, progress, ...spec } = rest;
    const json = given<Schemas["NewSandbox"]>({
      ...specBody(spec, client),
      name,
      labels,
      ttl_seconds: ttlSeconds,
      idle_seconds: idleSeconds,
      on_ttl: onTtl,
      on_idle: onIdle,
      ephemeral: !kept,
    });
    const headers = { "Idempotency-Key": idempotencyKey ?? randomUUID() };
    const answer =
      progress || mayBeFetched(spec)
        ? await created(client, { json, headers, signal }, progress)
        : await client.call("POST", "/v1/sandboxes", {
            json,
            headers,
            seconds: LONG_CALL_SECONDS,
            signal,
          });
    return new Sandbox(client, sandboxInfo(answer), kept);
  }

  /** The sandbox of an id or a name. The end of its block leaves it alone. */
  static async connect(id: string, options: Connecting = {}): Promise<Sandbox> {
    const { client = sharedClient(), signal } = options;
    const answer = await client.call("GET", `/v1/sandboxes/${segment(id)}`, { signal });
    return new Sandbox(client, sandboxInfo(answer));
  }

  /** All sandboxes with all of these labels, in the order they were made. */
  static async list(
    options: Connecting & { labels?: Record<string, string>; state?: string } = {},
  ): Promise<Sandbox[]> {
    const { client = sharedClient(), labels = {}, state, signal } = options;
    const label = Object.entries(labels).map(([key, value]) => `${key}=${value}`);
    const query: Query = { label, state, limit: PAGE };
    const found: Sandbox[] = [];
    for (;;) {
      const answer = await client.call("GET", "/v1/sandboxes", { query, signal });
      for (const entry of listOf(answer, "sandboxes")) {
        found.push(new Sandbox(client, sandboxInfo(entry)));
      }
      const { next } = objectOf(answer);
      if (typeof next !== "number") return found;
      query["after"] = next;
    }
  }

  /** What it is now; while it runs, `info.raw.effective` says what holds in it. */
  async refresh(options: CallOptions = {}): Promise<SandboxInfo> {
    return this.#told(await this.#client.call("GET", this.#path, { signal: options.signal }));
  }

  /** Runs a stopped sandbox again. One that runs is left as it is. */
  async start(options: CallOptions = {}): Promise<SandboxInfo> {
    return this.#told(await this.#post("start", undefined, LONG_CALL_SECONDS, options));
  }

  /** Ends every process and keeps the files, unless they were in memory. */
  async stop(options: CallOptions & { graceSeconds?: number } = {}): Promise<SandboxInfo> {
    const { graceSeconds } = options;
    const json = given<Schemas["Stop"]>({ grace_seconds: graceSeconds });
    return this.#told(await this.#post("stop", json, (graceSeconds ?? 0) + STOP_SECONDS, options));
  }

  /** Its time to live begins anew, from now. */
  async extend(ttlSeconds: number, options: CallOptions = {}): Promise<SandboxInfo> {
    const json = { ttl_seconds: ttlSeconds };
    return this.#told(await this.#post("extend", json, LONG_CALL_SECONDS, options));
  }

  /** Changes what is given; null takes it away. Of the labels each is one of its own. */
  async update(options: CallOptions & UpdateOptions): Promise<SandboxInfo> {
    const { name, labels, ttlSeconds, idleSeconds, onTtl, onIdle, signal } = options;
    const json = given<Schemas["SandboxUpdate"]>({
      name,
      labels,
      ttl_seconds: ttlSeconds,
      idle_seconds: idleSeconds,
      on_ttl: onTtl,
      on_idle: onIdle,
    });
    return this.#told(await this.#client.call("PATCH", this.#path, { json, signal }));
  }

  /** What it has used since it was started, or in its last run. Null: nobody knows. */
  async usage(options: CallOptions = {}): Promise<Schemas["SandboxUsage"] | null> {
    const { signal } = options;
    const answer = objectOf(await this.#client.call("GET", `${this.#path}/usage`, { signal }));
    return (answer["usage"] ?? null) as Schemas["SandboxUsage"] | null;
  }

  /**
   * The address of a published port's preview for a browser, with its token. Throws NotFoundError
   * if it is not published, or the daemon listens on no network.
   */
  async previewUrl(port: number, options: CallOptions = {}): Promise<string> {
    const found = (await this.ports.list(options)).find((entry) => entry.port === port);
    if (found === undefined) {
      throw new NotFoundError(`port ${port} is not published`, {
        hint: "publish it: ports.publish",
      });
    }
    if (found.preview_url === null) {
      throw new NotFoundError(
        "the daemon listens on no network, where a browser could find previews",
        { hint: "agentkernel config set daemon.listen 127.0.0.1:8700, then daemon restart" },
      );
    }
    return found.preview_url;
  }

  /** What happened to it, from its beginning; with `follow` also what happens. */
  async *logs(
    options: CallOptions & { after?: number; follow?: boolean } = {},
  ): AsyncGenerator<Event, void, undefined> {
    const { after = 0, follow = false, signal } = options;
    const query = { after, follow };
    const stream = serverEvents(this.#client, `${this.#path}/logs`, { query, signal });
    for await (const { kind, body } of stream) yield eventOf(kind, body);
  }

  /** What a guest can reach, tried from inside; the sandbox has to run, and stays as it is. */
  async probe(options: CallOptions = {}): Promise<Schemas["ProbeResult"]> {
    const answer = await this.#post("probe", {}, LONG_CALL_SECONDS, options);
    return answer as Schemas["ProbeResult"];
  }

  /** Ends it and removes every trace but its events. */
  async remove(options: CallOptions = {}): Promise<void> {
    const { signal } = options;
    await this.#client.call("DELETE", this.#path, { seconds: LONG_CALL_SECONDS, signal });
  }

  /**
   * An agent of this sandbox, for prompts: one that it was made with (`agents: ["claude"]`), or by
   * `command` anything in it that speaks the Agent Client Protocol.
   */
  agent(name?: string, options: AgentOptions = {}): Agent {
    return new Agent(this.#client, this.id, name, options);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.kept) return;
    try {
      await this.remove();
    } catch (error) {
      // Its time was over, or somebody was quicker.
      if (!(error instanceof NotFoundError)) throw error;
    }
  }

  // -- commands ---------------------------------------------------------------------------------

  /**
   * Runs a command to its end. A string is for a shell, a list is argv.
   *
   * A command that fails is a result; with `check` it is a CommandFailedError. An aborted signal
   * ends the command and all it started.
   */
  async exec(command: Command, options: ExecOptions = {}): Promise<CommandResult> {
    const { stdin, check, signal, ...rest } = options;
    if (signal === undefined) {
      const { stdin: _, pty: __, ...body } = commandBody(command, rest);
      const json = { ...body, ...inputBody(stdin) };
      return finish(this.#client, `${this.#path}/exec`, json, options.timeoutSeconds, check);
    }
    // A call that is cut off ends its command after a while; a stream can say that it is to end now.
    const outputBytes = options.outputBytes ?? this.info.raw.limits?.output_bytes ?? OUTPUT_BYTES;
    const wanted = { ...rest, outputBytes, stdin: stdin !== undefined, signal };
    const result = await collect(this.stream(command, wanted), stdin);
    return check ? result.check() : result;
  }

  /** A command whose output is read while it runs; `pty` is rows and columns. */
  stream(command: Command, options: StreamOptions = {}): CommandStream {
    const place = { path: `${this.#path}/exec/stream`, first: commandBody(command, options) };
    return new CommandStream(this.#client, place, options.signal);
  }

  /** Commands in sandboxes of their own. */
  static readonly run = run;
  static readonly runStream = runStream;
  static readonly runBatch = runBatch;

  async #post(verb: string, json: unknown, seconds: number, options: CallOptions) {
    const { signal } = options;
    return this.#client.call("POST", `${this.#path}/${verb}`, { json, seconds, signal });
  }

  #told(answer: unknown): SandboxInfo {
    this.info = sandboxInfo(answer);
    return this.info;
  }
}

/** By a stream, which is told of what is made for it and takes as long as that takes. */
async function created(
  client: Client,
  request: CallOptions & { json: unknown; headers: Record<string, string> },
  progress?: (text: string) => void,
): Promise<unknown> {
  const stream = serverEvents(client, "/v1/sandboxes", { ...request, method: "POST" });
  for await (const { kind, body } of stream) {
    if (kind === "progress") progress?.(String(body["text"]));
    else if (kind === "sandbox") return body;
  }
  throw broken("a sandbox that did not come to an end");
}
