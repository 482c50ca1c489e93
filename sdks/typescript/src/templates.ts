/** Templates of a daemon: images with a start command and a ready check. */

import { withBuildFile } from "./build-file.ts";
import { type CallOptions, type Client, LONG_CALL_SECONDS } from "./client.ts";
import { broken } from "./problems.ts";
import { listOf, objectOf } from "./results.ts";
import { type ServerEvent, serverEvents } from "./sse.ts";
import { segment } from "./target.ts";
import type { Schemas } from "./wire.ts";

export type TemplateInfo = Schemas["Template"];

/** One of these. */
export interface TemplateStep {
  /** A shell command, in a sandbox of its own. */
  run?: string;
  copy?: { source: string; target: string; owner?: string };
  env?: Record<string, string>;
  workdir?: string;
  user?: string;
}

/** When a sandbox may be used: one of the first three; `seconds` until it is given up (60). */
export interface TemplateReady {
  /** A shell command that ends with 0. */
  command?: string;
  /** It takes connections. */
  port?: number;
  /** What the start command writes. */
  log?: string;
  seconds?: number;
}

export interface TemplateSpec {
  /** An image. */
  base: string;
  steps?: TemplateStep[];
  /** A shell command that every start of a sandbox runs as a job. */
  start?: string;
  ready?: TemplateReady;
  description?: string;
}

export interface TemplateOptions extends CallOptions {
  /** Every step is carried out again. */
  noCache?: boolean;
  /** Called with the name and the body of each event: started, step, output, done, note. */
  progress?: (kind: string, body: ServerEvent["body"]) => void;
}

/** Those of one daemon: `new Host().templates`. */
export class Templates {
  readonly #client: Client;

  constructor(client: Client) {
    this.#client = client;
  }

  /** Its steps run in sandboxes. `context`: the files that `copy` finds, as tar in pieces. */
  async build(
    name: string,
    template: TemplateSpec,
    options: TemplateOptions & {
      context?: AsyncIterable<Uint8Array> | Iterable<Uint8Array>;
    } = {},
  ): Promise<TemplateInfo> {
    const wanted = { template, no_cache: options.noCache ?? false };
    const upload = withBuildFile(wanted, options.context);
    const path = `/v1/templates/${segment(name)}`;
    const { signal } = options;
    return told(serverEvents(this.#client, path, { method: "PUT", upload, signal }), options);
  }

  /**
   * Of a git repository, `URL[@REF]`: cloned in a sandbox, its runtime found out (or `base`), its
   * dependencies installed (or `run`).
   */
  async buildSource(
    name: string,
    source: string,
    options: TemplateOptions & {
      base?: string;
      run?: string[];
      start?: string;
      ready?: TemplateReady;
    } = {},
  ): Promise<TemplateInfo> {
    const { base, run, start, ready, noCache, signal } = options;
    const json = { source, base, run, start, ready, no_cache: noCache ?? false };
    const path = `/v1/templates/${segment(name)}/source`;
    return told(serverEvents(this.#client, path, { method: "POST", json, signal }), options);
  }

  /** By name. */
  async list(options: CallOptions = {}): Promise<TemplateInfo[]> {
    const found = await this.#client.call("GET", "/v1/templates", { signal: options.signal });
    return listOf(found, "templates") as unknown as TemplateInfo[];
  }

  /** NotFoundError if there is none. */
  async get(name: string, options: CallOptions = {}): Promise<TemplateInfo> {
    const request = { signal: options.signal };
    const found = await this.#client.call("GET", `/v1/templates/${segment(name)}`, request);
    return objectOf(found) as unknown as TemplateInfo;
  }

  /** ConflictError while sandboxes stand on it; `force` then keeps what they need. */
  async remove(name: string, options: CallOptions & { force?: boolean } = {}): Promise<void> {
    const query = { force: options.force || undefined };
    const request = { query, signal: options.signal, seconds: LONG_CALL_SECONDS };
    await this.#client.call("DELETE", `/v1/templates/${segment(name)}`, request);
  }
}

async function told(
  events: AsyncGenerator<ServerEvent, void, undefined>,
  options: TemplateOptions,
): Promise<TemplateInfo> {
  for await (const { kind, body } of events) {
    if (kind === "template") return body as unknown as TemplateInfo;
    options.progress?.(kind, body);
  }
  throw broken("a build that did not come to an end");
}
