/**
 * Logins with agents, kept by the daemon outside of sandboxes. For callers with the scope `manage`;
 * nobody gets a token back.
 */

import { type CallOptions, type Client, LONG_CALL_SECONDS } from "./client.ts";
import { listOf, objectOf } from "./results.ts";
import { segment } from "./target.ts";
import { hostEnvironment } from "./toolchains.ts";
import type { Schemas } from "./wire.ts";

export type LoginStatus = Schemas["LoginStatus"];
export type LoginBox = Schemas["LoginBox"];

/** Those of the caller: `new Host().agents.logins`. */
export class AgentLogins {
  readonly #client: Client;

  constructor(client: Client) {
    this.#client = client;
  }

  /** One for each agent there is, by name; `kind` is "none" without a login. */
  async list(options: CallOptions = {}): Promise<LoginStatus[]> {
    const found = await this.#client.call("GET", "/v1/agent-logins", { signal: options.signal });
    return listOf(found, "logins") as unknown as LoginStatus[];
  }

  async get(agent: string, options: CallOptions = {}): Promise<LoginStatus> {
    return this.#call("GET", agent, "", { signal: options.signal });
  }

  /** Takes over a login from the text of the file that the agent itself keeps it in. */
  async takeFile(agent: string, file: string, options: CallOptions = {}): Promise<LoginStatus> {
    return this.#call("PUT", agent, "", { json: { file }, signal: options.signal });
  }

  /** An API key, kept as the secret `name`: the first that the agent takes, unless given. */
  async setKey(
    agent: string,
    key: string,
    options: CallOptions & { name?: string } = {},
  ): Promise<LoginStatus> {
    const json = options.name === undefined ? { key } : { key, name: options.name };
    return this.#call("PUT", agent, "", { json, signal: options.signal });
  }

  /** Forgets it; what the provider knows of it stays there. */
  async remove(agent: string, options: CallOptions = {}): Promise<LoginStatus> {
    return this.#call("DELETE", agent, "", { signal: options.signal });
  }

  /** A new access token now, which sandboxes use at once. LoginError if there is none. */
  async refresh(agent: string, options: CallOptions = {}): Promise<LoginStatus> {
    const request = { signal: options.signal, seconds: LONG_CALL_SECONDS };
    return this.#call("POST", agent, "/refresh", request);
  }

  /**
   * A `sandbox` to run the agent's own login in: `command` with `env`, on a terminal. The login is
   * inside it until `harvest`.
   */
  async begin(agent: string, options: CallOptions = {}): Promise<LoginBox> {
    const json = this.#client.local ? { host_env: hostEnvironment() } : {};
    const request = { json, signal: options.signal, seconds: LONG_CALL_SECONDS };
    return this.#call("POST", agent, "/begin", request);
  }

  /** Takes the login out of that sandbox, which is removed in any case. */
  async harvest(agent: string, sandbox: string, options: CallOptions = {}): Promise<LoginStatus> {
    return this.#call("POST", agent, "/harvest", { json: { sandbox }, signal: options.signal });
  }

  async #call<T>(
    method: string,
    agent: string,
    below: string,
    request: Parameters<Client["call"]>[2],
  ): Promise<T> {
    const path = `/v1/agents/${segment(agent)}/login${below}`;
    return objectOf(await this.#client.call(method, path, request)) as unknown as T;
  }
}
