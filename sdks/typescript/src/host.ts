/** The daemon and the machine it works on: what is there, how it is, what happened. */

import { AgentSessions } from "./agent-sessions.ts";
import { Agents } from "./agents.ts";
import { type CallOptions, type Client, LONG_CALL_SECONDS, sharedClient } from "./client.ts";
import { Images } from "./images.ts";
import { Job } from "./jobs.ts";
import { type Event, eventOf, jobInfo, listOf, objectOf } from "./results.ts";
import { Secrets } from "./secrets.ts";
import { serverEvents } from "./sse.ts";
import { type Query, segment } from "./target.ts";
import { Templates } from "./templates.ts";
import { Tokens } from "./tokens.ts";
import { Volumes } from "./volumes.ts";
import type { Schemas } from "./wire.ts";

const PAGE = 500;

export interface EventOptions extends CallOptions {
  /** Those behind this number; without it, what happens from now on. */
  after?: number;
  /** Of this sandbox only, an id or a name. */
  sandbox?: string;
  /** False: it ends with the last event that was there at the call. */
  follow?: boolean;
}

/** The daemon that the environment names, or the given client's. */
export class Host {
  readonly #client: Client;
  /** AI agents that run in sandboxes. */
  readonly agents: Agents;
  /** What they are at, and what they were. */
  readonly agentSessions: AgentSessions;
  /** What sandboxes are made from. */
  readonly images: Images;
  /** What sandboxes may use without knowing it. */
  readonly secrets: Secrets;
  /** Images that know how their sandboxes begin. */
  readonly templates: Templates;
  /** Who may use the daemon over a network. */
  readonly tokens: Tokens;
  /** Directories that outlive sandboxes. */
  readonly volumes: Volumes;

  constructor(options: { client?: Client } = {}) {
    this.#client = options.client ?? sharedClient();
    this.agents = new Agents(this.#client);
    this.agentSessions = new AgentSessions(this.#client);
    this.images = new Images(this.#client);
    this.secrets = new Secrets(this.#client);
    this.templates = new Templates(this.#client);
    this.tokens = new Tokens(this.#client);
    this.volumes = new Volumes(this.#client);
  }

  /** Version, process and state directory of the daemon. */
  async version(options: CallOptions = {}): Promise<Schemas["Version"]> {
    return this.#get("/v1/version", options);
  }

  /** How many sandboxes and jobs there are by state, and what the daemon itself takes. */
  async status(options: CallOptions = {}): Promise<Schemas["Status"]> {
    return this.#get("/v1/status", options);
  }

  /** The API's description of itself. */
  async openapi(options: CallOptions = {}): Promise<Record<string, unknown>> {
    return this.#get("/v1/openapi.json", options);
  }

  /** The engines of the machine. With `check` each is tried, which takes seconds. */
  async backends(
    options: CallOptions & { check?: boolean } = {},
  ): Promise<Schemas["BackendList"]["backends"]> {
    const query = { check: options.check || undefined };
    const list = await this.#get<Schemas["BackendList"]>("/v1/backends", options, query);
    return list.backends;
  }

  /** `fit` and `findings`: the machine and the install, tried. Takes seconds. */
  async doctor(options: CallOptions = {}): Promise<Schemas["Health"]> {
    return this.#get("/v1/doctor", options);
  }

  /** The jobs of all sandboxes, in the order they were started. */
  async jobs(options: CallOptions & { sandbox?: string; state?: string } = {}): Promise<Job[]> {
    const { sandbox, state, signal } = options;
    const query: Query = { sandbox, state, limit: PAGE };
    const found: Job[] = [];
    for (;;) {
      const answer = await this.#client.call("GET", "/v1/jobs", { query, signal });
      for (const entry of listOf(answer, "jobs")) found.push(new Job(this.#client, jobInfo(entry)));
      const { next } = objectOf(answer);
      if (typeof next !== "number") return found;
      query["after"] = next;
    }
  }

  /** A job of any sandbox. */
  async job(id: string, options: CallOptions = {}): Promise<Job> {
    const { signal } = options;
    const answer = await this.#client.call("GET", `/v1/jobs/${segment(id)}`, { signal });
    return new Job(this.#client, jobInfo(answer));
  }

  /**
   * What happens to sandboxes and jobs, from now on or from behind event `after`. Ends with a
   * DaemonError when the daemon does: go on with `after` then.
   */
  async *events(options: EventOptions = {}): AsyncGenerator<Event, void, undefined> {
    const { after, sandbox, follow = true, signal } = options;
    const query = { after, sandbox, follow };
    const stream = serverEvents(this.#client, "/v1/events", { query, signal });
    for await (const { kind, body } of stream) yield eventOf(kind, body);
  }

  /** Lines of the log of actions behind number `after`; without it, the newest. */
  async audit(
    options: CallOptions & { after?: number; limit?: number; sandbox?: string } = {},
  ): Promise<Schemas["AuditEntry"][]> {
    const { after, limit, sandbox } = options;
    const query = { after, limit, sandbox };
    return (await this.#get<Schemas["AuditPage"]>("/v1/audit", options, query)).entries;
  }

  /** The same as they come, from now on unless `after` says otherwise. */
  async *followAudit(
    options: CallOptions & { after?: number; sandbox?: string } = {},
  ): AsyncGenerator<Schemas["AuditEntry"], void, undefined> {
    const { after, sandbox, signal } = options;
    const query = { after, sandbox };
    for await (const { body } of serverEvents(this.#client, "/v1/audit", { query, signal })) {
      yield body as unknown as Schemas["AuditEntry"];
    }
  }

  /** What sandboxes, volumes, images and records take, and how much of the disk is free. */
  async diskUsage(options: CallOptions = {}): Promise<Schemas["DiskUsage"]> {
    return this.#get("/v1/system/df", options);
  }

  /**
   * Removes layers, blobs and downloads that nothing needs; `sandboxes`: and stopped sandboxes;
   * `volumes`: and volumes that none has. `dryRun`: tells what would go.
   */
  async prune(
    options: CallOptions & { sandboxes?: boolean; volumes?: boolean; dryRun?: boolean } = {},
  ): Promise<Schemas["Pruned"]> {
    const { sandboxes, volumes, dryRun, signal } = options;
    const json = { sandboxes, volumes, dry_run: dryRun };
    const request = { json, signal, seconds: LONG_CALL_SECONDS };
    return objectOf(
      await this.#client.call("POST", "/v1/system/prune", request),
    ) as unknown as Schemas["Pruned"];
  }

  /** The daemon's numbers, as Prometheus reads them. */
  async metrics(options: CallOptions = {}): Promise<string> {
    const text = await this.#client.fetch("GET", "/metrics", { signal: options.signal });
    return text.toString();
  }

  /** Ends the daemon; sandboxes and jobs go on, and the next call starts another. */
  async shutDown(options: CallOptions = {}): Promise<void> {
    await this.#client.call("POST", "/v1/shutdown", { signal: options.signal });
  }

  async #get<Answer>(path: string, options: CallOptions, query?: Query): Promise<Answer> {
    const { signal } = options;
    const request = { query, signal, seconds: LONG_CALL_SECONDS };
    return objectOf(await this.#client.call("GET", path, request)) as Answer;
  }
}
