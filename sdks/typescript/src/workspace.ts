/** What became of a sandbox's copy-on-write workspace. */

import type { CallOptions, Client } from "./client.ts";
import { objectOf } from "./results.ts";
import { segment } from "./target.ts";
import type { Schemas } from "./wire.ts";

/** `changes`, one a file, and a `patch` for people and for `git apply`. */
export type WorkspaceDiff = Schemas["WorkspaceDiff"];

/** That of one sandbox: `sandbox.workspace`. */
export class Workspace {
  readonly #client: Client;
  readonly #path: string;

  constructor(client: Client, sandbox: string) {
    this.#client = client;
    this.#path = `/v1/sandboxes/${segment(sandbox)}/workspace`;
  }

  /** What the sandbox has changed. `truncated`: there is more than an answer holds. */
  async diff(options: CallOptions = {}): Promise<WorkspaceDiff> {
    const found = await this.#client.call("GET", `${this.#path}/diff`, { signal: options.signal });
    return objectOf(found) as unknown as WorkspaceDiff;
  }
}
