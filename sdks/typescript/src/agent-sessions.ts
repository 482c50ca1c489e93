/** Sessions of agents: an agent at work in a sandbox, with what it says and does. */

import { type CallOptions, type Client, LONG_CALL_SECONDS } from "./client.ts";
import { type CommandStream, given } from "./commands.ts";
import { DaemonError } from "./error-types.ts";
import { Job } from "./jobs.ts";
import { broken, errorOf } from "./problems.ts";
import { jobInfo, listOf, objectOf } from "./results.ts";
import { type SandboxSpec, specBody } from "./specs.ts";
import { serverEvents } from "./sse.ts";
import { type Query, segment } from "./target.ts";
import type { Schemas } from "./wire.ts";
import type { WorkspaceApplied, WorkspaceDiff } from "./workspace.ts";

export type AgentSessionInfo = Schemas["AgentSession"];
export type AgentSessionEvent = Schemas["AgentEvent"];
export type AgentSessionSummary = Schemas["AgentSummary"];

const PAGE = 500;
const TRIES = 5;
const PATH = "/v1/agent-sessions";

export interface StartSessionOptions extends CallOptions {
  /** What to do, in mode `headless`, which it is with a task unless given. */
  task?: string;
  /** `acp` (prompts) without a task unless given; `interactive` has a terminal. */
  mode?: "headless" | "interactive" | "acp";
  /** One that was made with the agent in `agents`; without, a new one is made as `spec` says. */
  sandbox?: string;
  spec?: SandboxSpec;
  /** A session of the same agent to go on with. */
  resume?: string;
  model?: string;
  env?: Record<string, string>;
  /** Other fields of the HTTP API's AgentRequest. */
  more?: Partial<Schemas["AgentRequest"]>;
  /** Called with sentences on what is being made, such as the agent's kit. */
  progress?: (sentence: string) => void;
}

/** How a turn ended, and what was said and done meanwhile. */
export interface TurnResult {
  stopReason: string | null;
  events: AgentSessionEvent[];
}

/** One session. `info` is what was known when it was asked last. */
export class AgentSession {
  info: AgentSessionInfo;
  readonly #client: Client;
  readonly #path: string;

  constructor(client: Client, info: AgentSessionInfo) {
    this.info = info;
    this.#client = client;
    this.#path = `${PATH}/${segment(info.id)}`;
  }

  get id(): string {
    return this.info.id;
  }

  async refresh(options: CallOptions = {}): Promise<AgentSessionInfo> {
    this.info = await this.#object("GET", "", options);
    return this.info;
  }

  /**
   * What it says and does, from behind event `after`; unless `follow` is false live to its end, also
   * across a daemon that is started anew.
   */
  async *events(
    options: CallOptions & { after?: number; follow?: boolean } = {},
  ): AsyncGenerator<AgentSessionEvent, void, undefined> {
    const { follow = true, signal } = options;
    let { after = 0 } = options;
    for (let failures = 0; ; failures++) {
      const query = { after, follow: follow ? 1 : 0 };
      try {
        for await (const told of serverEvents(this.#client, `${this.#path}/events`, {
          query,
          signal,
        })) {
          const event = told.body as unknown as AgentSessionEvent;
          after = event.seq;
          failures = 0;
          yield event;
        }
        return;
      } catch (error) {
        if (!(error instanceof DaemonError) || !follow || failures >= TRIES) throw error;
      }
    }
  }

  /** To its end; `info` then has how it ended. */
  async wait(options: CallOptions = {}): Promise<AgentSessionInfo> {
    for await (const _ of this.events({ ...options, after: Number.MAX_SAFE_INTEGER }));
    return this.refresh(options);
  }

  /** A turn of an acp session, to its end. Permission questions are for whoever calls `answer`. */
  async prompt(text: string, options: CallOptions = {}): Promise<TurnResult> {
    const after = (await this.refresh(options)).last_event ?? 0;
    await this.sendPrompt(text, options);
    const events: AgentSessionEvent[] = [];
    for await (const event of this.events({ ...options, after })) {
      const body = event.body as Record<string, unknown>;
      if (event.kind === "ended") break;
      if (event.kind === "prompt" && !("text" in body)) {
        if (!("error" in body))
          return { stopReason: (body["stop_reason"] as string) ?? null, events };
        throw errorOf({ code: body["code"] ?? "conflict", detail: body["error"] });
      }
      events.push(event);
    }
    throw errorOf({ code: "conflict", detail: "the agent ended before its turn did" });
  }

  /** Begins a turn, and resolves at once. ConflictError while another is under way. */
  async sendPrompt(text: string, options: CallOptions = {}): Promise<AgentSessionInfo> {
    this.info = await this.#object("POST", "/prompt", options, { text });
    return this.info;
  }

  /** Ends the turn that is under way, if one is. */
  async cancel(options: CallOptions = {}): Promise<void> {
    const request = { json: {}, signal: options.signal };
    await this.#client.call("POST", `${this.#path}/cancel`, request);
  }

  /** To a permission question (event `permission`), one of its options; null: cancelled. */
  async answer(id: string, option: string | null, options: CallOptions = {}): Promise<void> {
    const request = { json: { id, option }, signal: options.signal };
    await this.#client.call("POST", `${this.#path}/permission`, request);
  }

  /**
   * The terminal of an interactive session, or the stdio of one that nobody drives; others may be
   * attached at the same time. `size`: rows and columns; it is drawn anew.
   */
  async terminal(
    options: CallOptions & { size?: [number, number]; recent?: number } = {},
  ): Promise<CommandStream> {
    const { signal, ...shown } = options;
    const found = await this.#client.call("GET", `/v1/jobs/${segment(this.info.job ?? "")}`, {
      signal,
    });
    return new Job(this.#client, jobInfo(found)).output({ ...shown, signal });
  }

  /** Commands it ran, hosts it reached and was denied, files it changed, what it cost. */
  async summary(options: CallOptions = {}): Promise<AgentSessionSummary> {
    return this.#object("GET", "/summary", options);
  }

  /** As `sandbox.workspace.diff`. */
  async diff(options: CallOptions = {}): Promise<WorkspaceDiff> {
    return this.#object("GET", "/diff", options);
  }

  /** As `sandbox.workspace.apply`. */
  async apply(
    paths: string[] = [],
    options: CallOptions & {
      allowRisky?: boolean;
      markConflicts?: boolean;
      commit?: string;
    } = {},
  ): Promise<WorkspaceApplied> {
    const { allowRisky = false, markConflicts = false, commit = null } = options;
    const json = { paths, allow_risky: allowRisky, mark_conflicts: markConflicts, commit };
    return this.#object("POST", "/apply", options, json);
  }

  /** What its terminal showed, as an asciicast. NotFoundError if it had none. */
  async recording(options: CallOptions = {}): Promise<Uint8Array> {
    return this.#client.fetch("GET", `${this.#path}/recording`, { signal: options.signal });
  }

  /** Ends the agent; its sandbox stays. */
  async stop(options: CallOptions = {}): Promise<AgentSessionInfo> {
    this.info = await this.#object("POST", "/stop", options);
    return this.info;
  }

  /** With its log, its recording, and the sandbox that was made for it. */
  async remove(options: CallOptions & { keepSandbox?: boolean } = {}): Promise<void> {
    const query = { keep_sandbox: options.keepSandbox ? 1 : undefined };
    const request = { query, signal: options.signal, seconds: LONG_CALL_SECONDS };
    await this.#client.call("DELETE", this.#path, request);
  }

  async #object<T>(method: string, part: string, options: CallOptions, json?: unknown): Promise<T> {
    const { signal } = options;
    const request = { json, signal, seconds: LONG_CALL_SECONDS };
    return objectOf(await this.#client.call(method, this.#path + part, request)) as unknown as T;
  }
}

/** Those of one daemon: `new Host().agentSessions`. */
export class AgentSessions {
  readonly #client: Client;

  constructor(client: Client) {
    this.#client = client;
  }

  /** Resolves when the agent runs; its kit is made first if that is not there. */
  async start(agent: string, options: StartSessionOptions = {}): Promise<AgentSession> {
    const { task, sandbox, resume, model, env, spec, more, progress, signal } = options;
    const mode = options.mode ?? (task === undefined ? "acp" : "headless");
    const fresh = spec !== undefined || (sandbox === undefined && resume === undefined);
    const json = given({
      agent,
      mode,
      task,
      sandbox,
      resume,
      model,
      env,
      spec: fresh ? specBody(spec ?? {}, this.#client) : undefined,
      ...more,
    });
    const request = { method: "POST", json, signal } as const;
    for await (const { kind, body } of serverEvents(this.#client, PATH, request)) {
      if (kind === "session") {
        return new AgentSession(this.#client, body as unknown as AgentSessionInfo);
      }
      if (kind === "progress") progress?.(String(body["text"]));
    }
    throw broken("a session that was not begun");
  }

  /** NotFoundError if there is none. */
  async get(id: string, options: CallOptions = {}): Promise<AgentSession> {
    const found = await this.#client.call("GET", `${PATH}/${segment(id)}`, {
      signal: options.signal,
    });
    return new AgentSession(this.#client, objectOf(found) as unknown as AgentSessionInfo);
  }

  /** The newest first. `project`: a directory of the daemon's machine. */
  async list(
    options: CallOptions & { agent?: string; project?: string; state?: string } = {},
  ): Promise<AgentSession[]> {
    const { signal, ...wanted } = options;
    const query: Query = { ...wanted, limit: PAGE };
    const found: AgentSession[] = [];
    for (;;) {
      const page = await this.#client.call("GET", PATH, { query, signal });
      const sessions = listOf(page, "sessions") as unknown as AgentSessionInfo[];
      found.push(...sessions.map((info) => new AgentSession(this.#client, info)));
      const { next } = objectOf(page);
      if (typeof next !== "number") return found;
      query["after"] = next;
    }
  }
}
