/** Tokens of a daemon: who may use it over a network. For callers with the scope `admin`. */

import type { CallOptions, Client } from "./client.ts";
import { listOf, objectOf } from "./results.ts";
import { segment } from "./target.ts";
import type { Schemas } from "./wire.ts";

export interface TokenOptions extends CallOptions {
  /** Whose sandboxes there are for it; one of its own unless given. */
  owner?: string;
  /** What it may do: read, exec and manage unless given. */
  scopes?: Schemas["NewToken"]["scopes"];
  expiresSeconds?: number;
}

/** Those of one daemon: `new Host().tokens`. */
export class Tokens {
  readonly #client: Client;

  constructor(client: Client) {
    this.#client = client;
  }

  /** A new token. Its `token` is what a caller shows, and is given this one time only. */
  async create(name: string, options: TokenOptions = {}): Promise<Schemas["MadeToken"]> {
    const { owner, scopes, expiresSeconds, signal } = options;
    const json = { name, owner, scopes, expires_seconds: expiresSeconds };
    const made = await this.#client.call("POST", "/v1/tokens", { json, signal });
    return objectOf(made) as unknown as Schemas["MadeToken"];
  }

  /** All tokens, with those that ended lately. */
  async list(options: CallOptions = {}): Promise<Schemas["Token"][]> {
    const found = await this.#client.call("GET", "/v1/tokens", { signal: options.signal });
    return listOf(found, "tokens") as unknown as Schemas["Token"][];
  }

  /** Ends a token, by id or name, and all that it holds open. */
  async revoke(id: string, options: CallOptions = {}): Promise<Schemas["Token"]> {
    const path = `/v1/tokens/${segment(id)}`;
    const ended = await this.#client.call("DELETE", path, { signal: options.signal });
    return objectOf(ended) as unknown as Schemas["Token"];
  }
}
