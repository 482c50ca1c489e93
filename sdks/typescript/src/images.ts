/**
 * Images of a daemon, which belong to everybody who uses it. Looking at them needs the scope `read`,
 * everything else `manage`. An image is said by a name, an id, the beginning of one, or a digest.
 */

import * as fs from "node:fs";
import { withBuildFile } from "./build-file.ts";
import { type CallOptions, type Client, LONG_CALL_SECONDS, PIECE_SECONDS } from "./client.ts";
import { broken } from "./problems.ts";
import { listOf, objectOf } from "./results.ts";
import { type ServerEvent, serverEvents } from "./sse.ts";
import type { Schemas } from "./wire.ts";

const ARCHIVE = "/v1/images/archive";
const BUILD = "/v1/images/build";

export type ImageInfo = Schemas["ImageInfo"];
/** How far a layer is: `done` of `total` bytes, as they are compressed. */
export type LayerProgress = Schemas["LayerProgress"];

export interface PullOptions extends CallOptions {
  /** `OS/ARCHITECTURE`, if not the daemon's machine's. */
  platform?: string;
  /** Called for each layer as it gets on. */
  progress?: (event: LayerProgress) => void;
}

export interface BuildOptions extends CallOptions {
  /** A tar archive in pieces; without it there are no files. */
  context?: AsyncIterable<Uint8Array> | Iterable<Uint8Array>;
  /** Names that the image gets when it is whole. */
  tags?: string[];
  /** The stage to end with; the last one. */
  target?: string;
  /** Values for ARGs. */
  build_args?: Record<string, string>;
  no_cache?: boolean;
  /** What RUN may reach, as a sandbox's network. */
  network?: Schemas["NetworkRequest"];
  profile?: string;
  /** Called with each event: `started`, `step`, `output`, `done`, `note`. */
  progress?: (event: ServerEvent) => void;
}

/** Those of the daemon: `new Host().images`. */
export class Images {
  readonly #client: Client;

  constructor(client: Client) {
    this.#client = client;
  }

  /** Fetches an image from its registry, or what has changed of it since. */
  async pull(reference: string, options: PullOptions = {}): Promise<ImageInfo> {
    const json: Schemas["PullImage"] = { reference };
    if (options.platform !== undefined) json.platform = options.platform;
    return this.#made("/v1/images/pull", json, options);
  }

  /**
   * The images of an archive, a file's or one that comes in pieces: of `docker save`, or an OCI
   * layout as tar (plain, gzip, zstd). `name`: for an archive of one image, instead of those it says.
   */
  async load(
    archive: string | AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
    options: PullOptions & { name?: string } = {},
  ): Promise<ImageInfo[]> {
    const upload = typeof archive === "string" ? fs.createReadStream(archive) : archive;
    const query = { name: options.name, platform: options.platform };
    const { signal } = options;
    const events = serverEvents(this.#client, ARCHIVE, { method: "PUT", query, upload, signal });
    const body = await told(events, "images", options);
    return listOf(body, "images") as unknown as ImageInfo[];
  }

  /** An archive of images, in pieces. DaemonError if it breaks off: then it is of no use. */
  save(
    images: string[],
    options: CallOptions & { format?: "oci" | "docker" } = {},
  ): AsyncGenerator<Buffer, void, undefined> {
    const query = { image: images, format: options.format };
    const { signal } = options;
    return this.#client.pieces(ARCHIVE, { query, signal, patience: PIECE_SECONDS });
  }

  /**
   * An image of a directory of the daemon's machine that holds a root file system. Needs the scope
   * `host-paths`, too.
   */
  async importDirectory(
    directory: string,
    name: string,
    options: PullOptions & { config?: Omit<Schemas["ImportImage"], "directory" | "name"> } = {},
  ): Promise<ImageInfo> {
    return this.#made("/v1/images/import", { ...options.config, directory, name }, options);
  }

  /**
   * An image of a Dockerfile's text; each of its steps runs in a sandbox of its own. `context`: the
   * files that COPY finds, as tar in pieces. ImageBuildError for a step that fails.
   */
  async build(dockerfile: string, options: BuildOptions = {}): Promise<Schemas["Built"]> {
    const { context, progress, signal, ...wanted } = options;
    const upload = withBuildFile({ dockerfile, ...wanted }, context);
    const events = serverEvents(this.#client, BUILD, { method: "PUT", upload, signal });
    for await (const event of events) {
      if (event.kind === "built") return event.body as unknown as Schemas["Built"];
      progress?.(event);
    }
    throw broken("a build that did not come to an end");
  }

  /** Whether an image is here, or a registry has it that answers at once. */
  async inReach(reference: string, options: CallOptions = {}): Promise<boolean> {
    const request = { query: { reference }, signal: options.signal };
    const found = await this.#client.call("GET", "/v1/images/reach", request);
    return objectOf(found)["in_reach"] === true;
  }

  /** By name. */
  async list(options: CallOptions = {}): Promise<ImageInfo[]> {
    const found = await this.#client.call("GET", "/v1/images", { signal: options.signal });
    return listOf(found, "images") as unknown as ImageInfo[];
  }

  /** All that is known of an image: config, layers, history. */
  async inspect(image: string, options: CallOptions = {}): Promise<Schemas["ImageDetail"]> {
    const request = { query: { image }, signal: options.signal };
    const found = await this.#client.call("GET", "/v1/images/details", request);
    return objectOf(found) as unknown as Schemas["ImageDetail"];
  }

  /** One more name for an image; another one that has it loses it. */
  async tag(image: string, name: string, options: CallOptions = {}): Promise<ImageInfo> {
    const request = { json: { image, name }, signal: options.signal };
    return objectOf(
      await this.#client.call("POST", "/v1/images/tag", request),
    ) as unknown as ImageInfo;
  }

  /**
   * Takes a name away, and with the last one the content. ConflictError while sandboxes stand on it;
   * `force` then keeps what they need.
   */
  async remove(
    image: string,
    options: CallOptions & { force?: boolean } = {},
  ): Promise<Schemas["ImageRemoved"]> {
    const query = { image, force: options.force || undefined };
    const request = { query, seconds: LONG_CALL_SECONDS, signal: options.signal };
    const gone = await this.#client.call("DELETE", "/v1/images", request);
    return objectOf(gone) as unknown as Schemas["ImageRemoved"];
  }

  /** Removes what nobody needs. `all`: also images with a name that no sandbox was made from. */
  async prune(options: CallOptions & { all?: boolean } = {}): Promise<Schemas["ImagesPruned"]> {
    const json = { all: options.all ?? false };
    const request = { json, seconds: LONG_CALL_SECONDS, signal: options.signal };
    const gone = await this.#client.call("POST", "/v1/images/prune", request);
    return objectOf(gone) as unknown as Schemas["ImagesPruned"];
  }

  async #made(path: string, json: unknown, options: PullOptions): Promise<ImageInfo> {
    const { signal } = options;
    const events = serverEvents(this.#client, path, { method: "POST", json, signal });
    return (await told(events, "image", options)) as unknown as ImageInfo;
  }
}

/** Passes progress on, and gives the last event. */
async function told(
  events: AsyncGenerator<ServerEvent, void, undefined>,
  last: string,
  options: PullOptions,
): Promise<ServerEvent["body"]> {
  for await (const { kind, body } of events) {
    if (kind === "progress") options.progress?.(body as unknown as LayerProgress);
    else if (kind === last) return body;
  }
  throw broken("an image that did not come to an end");
}
