/**
 * An agent in a sandbox that is prompted.
 *
 *     await using sandbox = await Sandbox.create({ agents: ["claude"], workspace: "." });
 *     await using agent = sandbox.agent("claude");
 *     const turn = await agent.prompt("fix the tests");
 */

import { type AgentSession, AgentSessions } from "./agent-sessions.ts";
import type { CallOptions, Client } from "./client.ts";
import { InvalidInputError } from "./error-types.ts";
import { broken, type JsonObject } from "./problems.ts";
import { turnResult } from "./turns.ts";
import type { Schemas } from "./wire.ts";

export interface AgentOptions {
  /** A command line that speaks the Agent Client Protocol, in place of an agent's name. */
  command?: string[];
  model?: string;
  env?: Record<string, string>;
  mcp?: Schemas["McpServer"][];
  /** The id of a session to go on with. */
  resume?: string;
  /**
   * Called with what it asks leave for; gives the id of the option that is chosen, or null. Without
   * it all is allowed, since the sandbox guards.
   */
  onPermission?: (request: JsonObject) => string | null | Promise<string | null>;
  progress?: (sentence: string) => void;
}

/** A turn: what was said, why it ended, and the updates as ACP has them. */
export interface AgentTurn {
  text: string;
  stopReason: string | null;
  updates: JsonObject[];
}

/** One conversation. It starts with the first prompt; `close`, or the end of its block, ends it. */
export class Agent {
  /** What it does is a session of the daemon's. */
  session: AgentSession | null = null;
  readonly #client: Client;
  readonly #sandbox: string;
  readonly #name: string;
  readonly #options: AgentOptions;
  #starting: Promise<AgentSession> | null = null;

  constructor(client: Client, sandbox: string, name: string | null, options: AgentOptions) {
    if ((name === null) === (options.command === undefined)) {
      throw new InvalidInputError("an agent has either a name or a command");
    }
    this.#client = client;
    this.#sandbox = sandbox;
    this.#name = name ?? "agent";
    this.#options = options;
  }

  /** What the first prompt does by itself. */
  async start(options: CallOptions = {}): Promise<AgentSession> {
    this.#starting ??= this.#start(options);
    try {
      this.session = await this.#starting;
    } catch (error) {
      this.#starting = null; // the next one tries again
      throw error;
    }
    return this.session;
  }

  async #start({ signal }: CallOptions): Promise<AgentSession> {
    const { command, mcp, onPermission, resume, model, env, progress } = this.#options;
    const more = { attended: onPermission !== undefined, command, mcp };
    return new AgentSessions(this.#client).start(this.#name, {
      mode: "acp",
      ...(resume === undefined ? { sandbox: this.#sandbox } : { resume }),
      ...(model === undefined ? {} : { model }),
      ...(env === undefined ? {} : { env }),
      ...(progress === undefined ? {} : { progress }),
      ...(signal === undefined ? {} : { signal }),
      more: Object.fromEntries(Object.entries(more).filter(([, value]) => value !== undefined)),
    });
  }

  /** A turn to its end. ConflictError while another is under way. */
  async prompt(text: string, options: CallOptions = {}): Promise<AgentTurn> {
    const session = await this.start(options);
    const after = (await session.refresh(options)).last_event ?? 0;
    await session.sendPrompt(text, options);
    const updates: JsonObject[] = [];
    for await (const event of session.events({ ...options, after })) {
      const ended = turnResult(event);
      if (ended !== null) return { text: said(updates), stopReason: ended.stopReason, updates };
      const body = event.body as JsonObject;
      if (event.kind === "agent" && isObject(body["update"])) updates.push(body["update"]);
      if (event.kind === "permission" && isObject(body["request"]) && this.#options.onPermission) {
        const chosen = await this.#options.onPermission(body["request"]);
        await session.answer(String(body["id"]), chosen, options);
      }
    }
    throw broken("a session that ended before its turn did");
  }

  /** Ends the turn that is under way, if one is: its stop reason is `cancelled`. */
  async cancel(options: CallOptions = {}): Promise<void> {
    await this.session?.cancel(options);
  }

  /** Ends the agent. Another one goes on with the conversation: `resume: agent.session.id`. */
  async close(options: CallOptions = {}): Promise<void> {
    await this.session?.stop(options);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/** The agent's own words. */
function said(updates: JsonObject[]): string {
  return updates
    .filter((update) => update["sessionUpdate"] === "agent_message_chunk")
    .map((update) => update["content"])
    .map((content) =>
      isObject(content) && typeof content["text"] === "string" ? content["text"] : "",
    )
    .join("");
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
