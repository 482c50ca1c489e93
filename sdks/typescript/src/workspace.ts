/** What became of a sandbox's copy-on-write workspace. */

import type { CallOptions, Client } from "./client.ts";
import { objectOf } from "./results.ts";
import { segment } from "./target.ts";
import type { Schemas } from "./wire.ts";

/** `changes`, one a file, and a `patch` for people and for `git apply`. */
export type WorkspaceDiff = Schemas["WorkspaceDiff"];
/** What became of each change; `complete`: all are made. */
export type WorkspaceApplied = Schemas["WorkspaceApplied"];

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

  /**
   * Makes its changes in the directory itself, all or those at `paths`. `files` tells what became of
   * each: applied, merged (with what was changed there, too), conflict (both have changed the same
   * lines; with `markConflicts` both are in the file, between marks), held (it needs `allowRisky`) or
   * skipped. `commit`: instead of files a commit with this message; `ref` and `commit` say where.
   */
  async apply(
    paths: string[] = [],
    options: CallOptions & {
      allowRisky?: boolean;
      markConflicts?: boolean;
      commit?: string;
    } = {},
  ): Promise<WorkspaceApplied> {
    const { signal, allowRisky = false, markConflicts = false, commit = null } = options;
    const json = { paths, allow_risky: allowRisky, mark_conflicts: markConflicts, commit };
    const done = await this.#client.call("POST", `${this.#path}/apply`, { json, signal });
    return objectOf(done) as unknown as WorkspaceApplied;
  }

  /** Forgets its changes; the sandbox has to be stopped. */
  async discard(options: CallOptions = {}): Promise<void> {
    await this.#client.call("DELETE", this.#path, { signal: options.signal });
  }
}
