/**
 * Secrets of a daemon, for sandboxes that use them without knowing them. For callers with the scope
 * `manage`; nobody gets a value back.
 */

import type { CallOptions, Client } from "./client.ts";
import { listOf, objectOf } from "./results.ts";
import type { Schemas } from "./wire.ts";

/** Those of the caller: `new Host().secrets`. */
export class Secrets {
  readonly #client: Client;

  constructor(client: Client) {
    this.#client = client;
  }

  /** A new secret; one of that name gets this value instead of its own. */
  async set(
    name: string,
    value: string,
    options: CallOptions = {},
  ): Promise<Schemas["SecretInfo"]> {
    return this.#put(name, { value }, options);
  }

  /** Another value for a secret that is there, which its sandboxes use at once. */
  async rotate(
    name: string,
    value: string,
    options: CallOptions = {},
  ): Promise<Schemas["SecretInfo"]> {
    return this.#put(name, { value, rotate: true }, options);
  }

  /** By name. */
  async list(options: CallOptions = {}): Promise<Schemas["SecretInfo"][]> {
    const found = await this.#client.call("GET", "/v1/secrets", { signal: options.signal });
    return listOf(found, "secrets") as unknown as Schemas["SecretInfo"][];
  }

  /** Removes a secret. `sandboxes` of the answer can't use it any more. */
  async remove(name: string, options: CallOptions = {}): Promise<Schemas["SecretInfo"]> {
    const path = `/v1/secrets/${encodeURIComponent(name)}`;
    const gone = await this.#client.call("DELETE", path, { signal: options.signal });
    return objectOf(gone) as unknown as Schemas["SecretInfo"];
  }

  async #put(
    name: string,
    json: Schemas["SecretValue"],
    options: CallOptions,
  ): Promise<Schemas["SecretInfo"]> {
    const path = `/v1/secrets/${encodeURIComponent(name)}`;
    const done = await this.#client.call("PUT", path, { json, signal: options.signal });
    return objectOf(done) as unknown as Schemas["SecretInfo"];
  }
}
