/** Ports of a sandbox: opened on the daemon's machine, and as previews. */

import type { CallOptions, Client } from "./client.ts";
import { listOf, objectOf } from "./results.ts";
import { segment } from "./target.ts";
import type { Schemas } from "./wire.ts";

/**
 * A published port. `address` and `host_port`: where it is on the daemon's machine; null: as a
 * preview alone. `error` says why it is not open.
 */
export type PublishedPort = Schemas["Port"];

/** Those of one sandbox: `sandbox.ports`. */
export class Ports {
  readonly #client: Client;
  readonly #path: string;

  constructor(client: Client, sandbox: string) {
    this.#client = client;
    this.#path = `/v1/sandboxes/${segment(sandbox)}/ports`;
  }

  /**
   * Opens a port of the sandbox: `8000`, `"8080:8000"`, `"0:8000"` (a port that is free),
   * `"127.0.0.1:8080:8000"`, or `"preview:8000"` as a preview alone. With `public` its preview asks
   * for no token. It stays published over restarts.
   */
  async publish(
    port: number | string,
    options: CallOptions & { public?: boolean } = {},
  ): Promise<PublishedPort> {
    const json = { port: String(port), public: options.public ?? false };
    const made = await this.#client.call("POST", this.#path, { json, signal: options.signal });
    return objectOf(made) as unknown as PublishedPort;
  }

  /** Closes a port, by its number inside, and what is connected to it. */
  async unpublish(port: number, options: CallOptions = {}): Promise<void> {
    const { signal } = options;
    await this.#client.call("DELETE", `${this.#path}/${segment(String(port))}`, { signal });
  }

  /** Those that are published, and whether each is open. */
  async list(options: CallOptions = {}): Promise<PublishedPort[]> {
    const found = await this.#client.call("GET", this.#path, { signal: options.signal });
    return listOf(found, "ports") as unknown as PublishedPort[];
  }
}
