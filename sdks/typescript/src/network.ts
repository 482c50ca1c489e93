/** What a sandbox may reach, asked and changed while it lives: `sandbox.network`. */

import type { CallOptions, Client } from "./client.ts";
import { type Event, eventOf, objectOf } from "./results.ts";
import { serverEvents } from "./sse.ts";
import { segment } from "./target.ts";
import type { Schemas } from "./wire.ts";

export type NetworkState = Schemas["NetworkState"];

export interface RuleOptions extends CallOptions {
  /** The phase that gets the rule; the one that holds unless given. */
  phase?: string;
}

export interface WhyOptions extends CallOptions {
  port?: number;
  method?: string;
  path?: string;
}

/** The network of one sandbox. */
export class Network {
  readonly #client: Client;
  readonly #path: string;

  constructor(client: Client, sandbox: string) {
    this.#client = client;
    this.#path = `/v1/sandboxes/${segment(sandbox)}/network`;
  }

  /** Phases with their rules, bound secrets, and the traffic so far. */
  async show(options: CallOptions = {}): Promise<NetworkState> {
    return state(await this.#client.call("GET", this.#path, { signal: options.signal }));
  }

  /** Another network; what it does not allow is closed when this returns. */
  async replace(
    network: Schemas["NetworkRequest"],
    options: CallOptions = {},
  ): Promise<NetworkState> {
    const { signal } = options;
    return state(await this.#client.call("PUT", this.#path, { json: network, signal }));
  }

  /** Allows HOST[:PORT], before all other rules. */
  async allow(target: string, options: RuleOptions = {}): Promise<NetworkState> {
    return this.#add("allow", target, options);
  }

  /** Denies HOST[:PORT], before all other rules; its open connections are closed. */
  async deny(target: string, options: RuleOptions = {}): Promise<NetworkState> {
    return this.#add("deny", target, options);
  }

  /** Goes on with the policy of another phase. */
  async phase(name: string, options: CallOptions = {}): Promise<NetworkState> {
    const { signal } = options;
    const json = { phase: name };
    return state(await this.#client.call("POST", `${this.#path}/phase`, { json, signal }));
  }

  /** What would become of a connection or request, by which rule, and what changes it. */
  async why(host: string, options: WhyOptions = {}): Promise<Schemas["Explanation"]> {
    const { port, method, path, signal } = options;
    const query = { host, port, method, path };
    const answer = await this.#client.call("GET", `${this.#path}/why`, { query, signal });
    return objectOf(answer) as unknown as Schemas["Explanation"];
  }

  /** Every decision so far, with its rule; with `follow` also those to come. */
  async *log(
    options: CallOptions & { after?: number; follow?: boolean } = {},
  ): AsyncGenerator<Event, void, undefined> {
    const { after = 0, follow = false, signal } = options;
    const query = { after, follow };
    const stream = serverEvents(this.#client, `${this.#path}/log`, { query, signal });
    for await (const { kind, body } of stream) yield eventOf(kind, body);
  }

  async #add(action: "allow" | "deny", target: string, options: RuleOptions) {
    const { phase, signal } = options;
    const json = { action, target, phase };
    return state(await this.#client.call("POST", `${this.#path}/rules`, { json, signal }));
  }
}

function state(answer: unknown): NetworkState {
  return objectOf(answer) as unknown as NetworkState;
}
