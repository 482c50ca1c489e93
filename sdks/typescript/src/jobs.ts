/** Background commands: they go on whether or not anybody listens. */

import type { CallOptions, Client } from "./client.ts";
import {
  type Command,
  type CommandOptions,
  CommandStream,
  commandBody,
  type SignalNumber,
  signalNumber,
} from "./commands.ts";
import { ConflictError } from "./error-types.ts";
import { type CommandResult, type JobInfo, jobInfo, listOf } from "./results.ts";
import { segment } from "./target.ts";
import type { Schemas } from "./wire.ts";

export interface JobOptions extends CommandOptions, CallOptions {
  /** Whether something will be written to it. */
  stdin?: boolean;
  /** Rows and columns of a terminal that it has. */
  pty?: [number, number];
}

export interface OutputOptions extends CallOptions {
  stdoutOffset?: number;
  stderrOffset?: number;
  /** False: it ends when all that was there at its beginning is read. */
  follow?: boolean;
  /** Only the last so many bytes of what is there. */
  recent?: number;
  /** Rows and columns of the terminal on which a job with one is shown: it is drawn anew. */
  size?: [number, number];
}

/** One job. `info` is what was known when it was asked last. */
export class Job {
  info: JobInfo;
  readonly #client: Client;
  readonly #path: string;

  constructor(client: Client, info: JobInfo) {
    this.info = info;
    this.#client = client;
    this.#path = `/v1/jobs/${segment(info.id)}`;
  }

  get id(): string {
    return this.info.id;
  }

  async refresh(options: CallOptions = {}): Promise<JobInfo> {
    this.info = jobInfo(await this.#client.call("GET", this.#path, options));
    return this.info;
  }

  /**
   * Its output from the given offsets, live to its end; leaving it leaves the job alone.
   *
   * Without `follow` there is a `result` only if the job has ended.
   */
  output(options: OutputOptions = {}): CommandStream {
    const { stdoutOffset = 0, stderrOffset = 0, follow = true, recent, size, signal } = options;
    const query = {
      stdout_offset: stdoutOffset,
      stderr_offset: stderrOffset,
      follow: follow ? undefined : 0,
      recent,
      rows: size?.[0],
      columns: size?.[1],
    };
    const offsets: [number, number] = [stdoutOffset, stderrOffset];
    const place = { path: `${this.#path}/attach`, query, offsets };
    return new CommandStream(this.#client, place, signal, false);
  }

  /** How it ended, when it has. A lost job is a ConflictError: nobody knows how it ended. */
  async wait(options: CallOptions = {}): Promise<CommandResult> {
    const info = await this.refresh(options);
    if (info.state === "running") {
      const output = this.output(options);
      try {
        return await output.wait();
      } finally {
        await output.close();
      }
    }
    if (info.result === null) {
      throw new ConflictError("the job was lost with its sandbox's processes");
    }
    return info.result;
  }

  async signal(signal: SignalNumber, options: CallOptions = {}): Promise<void> {
    await this.#tell({ signal: signalNumber(signal) }, options);
  }

  /** The whole tree, whatever it did to hide. */
  async kill(options: CallOptions = {}): Promise<void> {
    await this.#tell({ kill: true }, options);
  }

  async #tell(json: Schemas["Signal"], options: CallOptions): Promise<void> {
    const { signal } = options;
    await this.#client.call("POST", `${this.#path}/signal`, { json, signal });
  }
}

/** The jobs of a sandbox. */
export class Jobs {
  readonly #client: Client;
  readonly #path: string;

  constructor(client: Client, sandbox: string) {
    this.#client = client;
    this.#path = `/v1/sandboxes/${segment(sandbox)}/jobs`;
  }

  /** Resolves when it runs, has ended, or could not be started: `info` tells. */
  async start(command: Command, options: JobOptions = {}): Promise<Job> {
    const json = commandBody(command, options);
    const { signal } = options;
    const answer = await this.#client.call("POST", this.#path, { json, signal });
    return new Job(this.#client, jobInfo(answer));
  }

  async list(options: CallOptions = {}): Promise<Job[]> {
    const { signal } = options;
    const answer = await this.#client.call("GET", this.#path, { signal });
    return listOf(answer, "jobs").map((entry) => new Job(this.#client, jobInfo(entry)));
  }

  /** A job by its id, of any sandbox. */
  async get(id: string, options: CallOptions = {}): Promise<Job> {
    const { signal } = options;
    const answer = await this.#client.call("GET", `/v1/jobs/${segment(id)}`, { signal });
    return new Job(this.#client, jobInfo(answer));
  }
}
