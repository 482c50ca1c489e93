/** Volumes: directories with names that outlive the sandboxes which have them. */

import { type CallOptions, type Client, LONG_CALL_SECONDS, PIECE_SECONDS } from "./client.ts";
import { listOf, objectOf } from "./results.ts";
import { segment } from "./target.ts";
import type { Schemas } from "./wire.ts";

/** A volume, which sandboxes have it, and what it takes on the disk where that was asked for. */
export type VolumeInfo = Schemas["VolumeInfo"];

export interface VolumeOptions extends CallOptions {
  /** A disk of its own of that size; refused where it can't be enforced. */
  quotaBytes?: number;
  /** At most one sandbox at a time runs with it. */
  exclusive?: boolean;
}

/** Those of one daemon: `new Host().volumes`. */
export class Volumes {
  readonly #client: Client;

  constructor(client: Client) {
    this.#client = client;
  }

  /** An empty volume. */
  async create(name: string, options: VolumeOptions = {}): Promise<VolumeInfo> {
    const { quotaBytes, exclusive, signal } = options;
    const json = { name, quota_bytes: quotaBytes, exclusive };
    const made = await this.#client.call("POST", "/v1/volumes", { json, signal });
    return objectOf(made) as unknown as VolumeInfo;
  }

  /** All volumes. `usage`: with what each takes, which is found by looking at all files. */
  async list(
    options: CallOptions & { owner?: string; usage?: boolean } = {},
  ): Promise<VolumeInfo[]> {
    const { owner, usage, signal } = options;
    const query = { owner, usage: usage || undefined };
    const request = { query, signal, seconds: LONG_CALL_SECONDS };
    const found = await this.#client.call("GET", "/v1/volumes", request);
    return listOf(found, "volumes") as unknown as VolumeInfo[];
  }

  /** A volume by name or id, with who has it and what it takes. */
  async get(name: string, options: CallOptions = {}): Promise<VolumeInfo> {
    const request = { signal: options.signal, seconds: LONG_CALL_SECONDS };
    const found = await this.#client.call("GET", `/v1/volumes/${segment(name)}`, request);
    return objectOf(found) as unknown as VolumeInfo;
  }

  /**
   * Removes it with all that is in it. `force`: also if stopped sandboxes have it, which then can't
   * be started any more.
   */
  async remove(name: string, options: CallOptions & { force?: boolean } = {}): Promise<void> {
    const query = { force: options.force || undefined };
    const request = { query, signal: options.signal, seconds: LONG_CALL_SECONDS };
    await this.#client.call("DELETE", `/v1/volumes/${segment(name)}`, request);
  }

  /**
   * All that is in it as a tar archive, in pieces. What sandboxes put into it is for the reader to
   * mistrust. DaemonError if it breaks off: then it has no end.
   */
  export(name: string, options: CallOptions = {}): AsyncGenerator<Buffer, void, undefined> {
    return this.#client.pieces(`/v1/volumes/${segment(name)}/archive`, {
      patience: PIECE_SECONDS,
      signal: options.signal,
    });
  }

  /** A new volume from a tar archive that is not compressed: there whole, or not at all. */
  async importArchive(
    name: string,
    pieces: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
    options: VolumeOptions = {},
  ): Promise<VolumeInfo> {
    const { quotaBytes, exclusive, signal } = options;
    const query = { quota_bytes: quotaBytes, exclusive: exclusive || undefined };
    const path = `/v1/volumes/${segment(name)}/archive`;
    const made = await this.#client.upload(path, pieces, { query, signal });
    return objectOf(made) as unknown as VolumeInfo;
  }
}
