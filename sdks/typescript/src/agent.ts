/**
 * An agent in a sandbox that is prompted: `sandbox.agent("claude")`.
 *
 *     await using sandbox = await Sandbox.create({ agents: ["claude"], workspace: "." });
 *     const turn = await sandbox.agent("claude").prompt("fix the tests");
 *     console.log(turn.text, turn.stopReason);
 */

import { type AgentSession, AgentSessions } from "./agent-sessions.ts";
import type { CallOptions, Client } from "./client.ts";
import { given } from "./commands.ts";
import { InvalidInputError } from "./error-types.ts";
import { errorOf } from "./problems.ts";
import type { Schemas } from "./wire.ts";

/** What an agent tells of, as the Agent Client Protocol has it; `sessionUpdate` says what it is. */
export type AgentUpdate = Record<string, unknown>;

export interface AgentOptions {
  /** Any command line in the sandbox that speaks ACP, in place of an agent's name. */
  command?: string[];
  model?: string;
  env?: Record<string, string>;
  mcp?: Schemas["McpServer"][];
  /** The id of a session to go on with. */
  resume?: string;
  /**
   * Given what the agent asks leave for: the id of the option that is chosen, or null for none.
   * Without it all is allowed, since the sandbox guards.
   */
  onPermission?: (question: Record<string, unknown>) => string | null | Promise<string | null>;
  /** Called with sentences on what is being made, such as the agent's kit. */
  progress?: (sentence: string) => void;
}

/** What became of a prompt. `usage` is of the session so far, as far as the agent says. */
export interface AgentTurn {
  text: string;
  stopReason: string | null;
  usage: Record<string, unknown>;
  updates: AgentUpdate[];
}

/**
 * One conversation. It starts with the first prompt, and what it does is a session of the daemon's.
 * `close` ends the agent; its sandbox stays as it is.
 */
export class Agent {
  session: AgentSession | undefined;
  readonly #client: Client;
  readonly #sandbox: string;
  readonly #name: string;
  readonly #options: AgentOptions;
  #starting: Promise<AgentSession> | undefined;

  constructor(client: Client, sandbox: string, name?: string, options: AgentOptions = {}) {
    if ((name === undefined) === (options.command === undefined)) {
      throw new InvalidInputError("an agent has either a name or a command");
    }
    this.#client = client;
    this.#sandbox = sandbox;
    this.#name = name ?? "agent";
    this.#options = options;
  }

  /** What the first prompt does by itself. */
  async start(): Promise<AgentSession> {
    this.#starting ??= this.#start();
    try {
      return await this.#starting;
    } catch (error) {
      this.#starting = undefined;
      throw error;
    }
  }

  async #start(): Promise<AgentSession> {
    const { command, model, env, mcp, resume, onPermission, progress } = this.#options;
    this.session = await new AgentSessions(this.#client).start(this.#name, {
      mode: "acp",
      ...(resume === undefined ? { sandbox: this.#sandbox } : { resume }),
      ...(given({ model, env, progress }) as object),
      more: given({ command, mcp, attended: onPermission !== undefined }),
    });
    return this.session;
  }

  /** A turn to its end. ConflictError while another is under way. */
  async prompt(text: string, options: CallOptions = {}): Promise<AgentTurn> {
    const turn = this.stream(text, options);
    for (;;) {
      const { done, value } = await turn.next();
      if (done) return value;
    }
  }

  /** A turn whose updates come while it goes on; what it returns is what became of it. */
  async *stream(
    text: string,
    options: CallOptions = {},
  ): AsyncGenerator<AgentUpdate, AgentTurn, undefined> {
    const session = await this.start();
    const after = (await session.refresh(options)).last_event ?? 0;
    await session.sendPrompt(text, options);
    const updates: AgentUpdate[] = [];
    for await (const event of session.events({ ...options, after })) {
      const body = event.body as Record<string, unknown>;
      if (event.kind === "ended") break;
      if (event.kind === "agent" && isObject(body["update"])) {
        updates.push(body["update"]);
        yield body["update"];
      } else if (event.kind === "permission" && isObject(body["request"])) {
        const answer = this.#options.onPermission;
        if (answer)
          await session.answer(String(body["id"]), await answer(body["request"]), options);
      } else if (event.kind === "prompt" && !("text" in body)) {
        if ("error" in body) {
          throw errorOf({ code: body["code"] ?? "conflict", detail: body["error"] });
        }
        const { usage } = await session.refresh(options);
        const stopReason = (body["stop_reason"] as string) ?? null;
        return { text: updates.map(said).join(""), stopReason, usage: { ...usage }, updates };
      }
    }
    throw errorOf({ code: "conflict", detail: "the agent ended before its turn did" });
  }

  /** Ends the turn that is under way, if one is. */
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

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** What an update says to the user; most say nothing. */
function said(update: AgentUpdate): string {
  const content = update["content"];
  if (update["sessionUpdate"] !== "agent_message_chunk" || !isObject(content)) return "";
  return typeof content["text"] === "string" ? content["text"] : "";
}
