/** Agents of a daemon: which there are, and their installations. */

import { AgentLogins } from "./agent-logins.ts";
import { type CallOptions, type Client, LONG_CALL_SECONDS } from "./client.ts";
import { broken } from "./problems.ts";
import { listOf, objectOf } from "./results.ts";
import { type ServerEvent, serverEvents } from "./sse.ts";
import { segment } from "./target.ts";
import { hostEnvironment } from "./toolchains.ts";
import type { Schemas } from "./wire.ts";

export type AgentInfo = Schemas["AgentInfo"];
export type AgentDetails = Schemas["AgentDetails"];
export type KitInfo = Schemas["KitInfo"];

export interface InstallOptions extends CallOptions {
  /** Called with the name and the body of each event: started, step, output, done, note. */
  progress?: (kind: string, body: ServerEvent["body"]) => void;
}

/** Those of one daemon: `new Host().agents`. */
export class Agents {
  readonly #client: Client;
  /** With whose accounts they work. */
  readonly logins: AgentLogins;

  constructor(client: Client) {
    this.#client = client;
    this.logins = new AgentLogins(client);
  }

  /** By name; `kit` is what is installed of each. */
  async list(options: CallOptions = {}): Promise<AgentInfo[]> {
    const found = await this.#client.call("GET", "/v1/agents", { signal: options.signal });
    return listOf(found, "agents") as unknown as AgentInfo[];
  }

  /** With its whole `definition`, and what its installations take. NotFoundError if there is none. */
  async get(name: string, options: CallOptions = {}): Promise<AgentDetails> {
    const request = { signal: options.signal };
    const found = await this.#client.call("GET", `/v1/agents/${segment(name)}`, request);
    return objectOf(found) as unknown as AgentDetails;
  }

  /** Now rather than with its first session. AgentInstallError says which step failed. */
  async install(name: string, options: InstallOptions = {}): Promise<KitInfo> {
    return this.#installed(name, {}, options);
  }

  /**
   * To the version that is pinned now, or to `version` from now on. Older installations that no
   * sandbox has go; sandboxes that are there keep theirs.
   */
  async update(
    name: string,
    options: InstallOptions & { version?: string } = {},
  ): Promise<KitInfo> {
    return this.#installed(name, { update: true, version: options.version }, options);
  }

  /** All installations of it. ConflictError while a sandbox has one. */
  async remove(name: string, options: CallOptions = {}): Promise<void> {
    const request = { signal: options.signal, seconds: LONG_CALL_SECONDS };
    await this.#client.call("DELETE", `/v1/agents/${segment(name)}/kit`, request);
  }

  async #installed(
    name: string,
    wanted: { update?: boolean; version?: string | undefined },
    options: InstallOptions,
  ): Promise<KitInfo> {
    const json = this.#client.local ? { host_env: hostEnvironment(), ...wanted } : wanted;
    const path = `/v1/agents/${segment(name)}/install`;
    const request = { method: "POST", json, signal: options.signal } as const;
    for await (const { kind, body } of serverEvents(this.#client, path, request)) {
      if (kind === "installed") return body as unknown as KitInfo;
      options.progress?.(kind, body);
    }
    throw broken("an installation that did not come to an end");
  }
}
