/** A command whose output is read while it runs. */

import { constants } from "node:os";
import type { CallOptions, Client } from "./client.ts";
import { DaemonError, InvalidInputError } from "./error-types.ts";
import { errorOf, type JsonObject, parseObject } from "./problems.ts";
import { type Chunk, CommandResult } from "./results.ts";
import type { Query } from "./target.ts";
import type { WebSocket } from "./websocket.ts";
import type { Schemas } from "./wire.ts";

const STDIN = 0;
const STDOUT = 1;
const STDERR = 2;
const CONTROL = 3;
const STDIN_CHUNK = 1 << 16;
// What the daemon reads ahead of stdin, unless it says another number.
const STDIN_WINDOW = 1 << 18;
// How much output a write that waits may put aside.
const MOST_ASIDE = 1 << 20;

/** A string is for a shell, a list is run as it is. */
export type Command = string | readonly string[];
/** A number, or a name such as `SIGINT`. */
export type SignalNumber = number | NodeJS.Signals;

export interface CommandOptions {
  env?: Record<string, string>;
  cwd?: string;
  /** With whose rights: root, user, a number. */
  user?: string;
  /** After so long it is ended with all it started. */
  timeoutSeconds?: number;
  /** A bound for each of stdout and stderr; what is beyond is counted. */
  outputBytes?: number;
}

export interface StreamOptions extends CommandOptions, CallOptions {
  /** Whether something will be written to it. */
  stdin?: boolean;
  /** A terminal of so many rows and columns. It has stdin always. */
  pty?: readonly [rows: number, columns: number];
}

/** A *command* of the API. */
export function commandBody(command: Command, options: StreamOptions): Schemas["Command"] {
  return given<Schemas["Command"]>({
    ...(typeof command === "string" ? { shell: command } : { argv: command.map(String) }),
    env: options.env,
    cwd: options.cwd,
    user: options.user,
    timeout_seconds: options.timeoutSeconds,
    output_bytes: options.outputBytes,
    stdin: options.stdin || undefined,
    pty: options.pty && [options.pty[0], options.pty[1]],
  });
}

/** Only the fields that were given: what is left out is the daemon's to choose. */
export function given<Body extends object>(fields: Body): Body {
  const entries = Object.entries(fields).filter(([, value]) => value !== undefined);
  return Object.fromEntries(entries) as Body;
}

export function signalNumber(signal: SignalNumber): number {
  if (typeof signal === "number") return signal;
  const number = constants.signals[signal];
  if (number === undefined) throw new InvalidInputError(`there is no signal ${signal}`);
  return number;
}

export interface StreamPlace {
  path: string;
  query?: Query;
  /** The first message. */
  first?: Schemas["Command"] | Schemas["RunStream"];
  offsets?: [stdout: number, stderr: number];
}

/**
 * Iterate it to the end, then `result` is there. It runs from the first step, or from `open`.
 *
 * Leaving it early (`break`, `close`, the end of its `await using` block) ends a command after 10 s,
 * and one of `runStream` at once; a job it leaves alone. An aborted signal ends the command and all
 * it started at once. `notices` are sentences about what does not hold in the sandbox, and
 * `truncated` is how far each of its streams was delivered, if not to its end.
 */
export class CommandStream implements AsyncIterable<Chunk>, AsyncDisposable {
  pid: number | null = null;
  readonly notices: string[] = [];
  readonly truncated: { stdout?: number; stderr?: number } = {};
  readonly #client: Client;
  readonly #place: StreamPlace;
  readonly #abort: AbortSignal | undefined;
  readonly #killOnAbort: boolean;
  #opening: Promise<WebSocket> | undefined;
  #stepping: Promise<void> | undefined;
  #closed = false;
  #over = false;
  #failure: unknown;
  #result: CommandResult | undefined;
  #aside: Chunk[] = [];
  #sizeAside = 0;
  // Undefined: the daemon does not say what was taken.
  #window: number | undefined = STDIN_WINDOW;
  #sent = 0;
  #taken = 0;
  readonly #outputs: Record<number, Output>;
  readonly #onAbort = (): void => void this.#aborted();

  constructor(client: Client, place: StreamPlace, signal?: AbortSignal, killOnAbort = true) {
    this.#client = client;
    this.#place = place;
    this.#abort = signal;
    this.#killOnAbort = killOnAbort;
    const [out, err] = place.offsets ?? [0, 0];
    this.#outputs = { [STDOUT]: new Output("stdout", out), [STDERR]: new Output("stderr", err) };
  }

  /** How it ended. Its output is not in it: that was read from here. */
  get result(): CommandResult {
    if (this.#result === undefined) {
      throw new InvalidInputError("the command has not ended", {
        hint: "read its output to the end",
      });
    }
    return this.#result;
  }

  /** Starts the command; without it, the first step does. Once only. */
  async open(): Promise<this> {
    await this.#socket();
    return this;
  }

  [Symbol.asyncIterator](): AsyncIterator<Chunk, undefined> {
    return {
      next: async () => {
        const value = await this.read();
        return value === undefined ? { done: true, value } : { done: false, value };
      },
      return: async () => {
        await this.close();
        return { done: true, value: undefined };
      },
    };
  }

  /** The next piece of output, undefined at the end. */
  async read(): Promise<Chunk | undefined> {
    while (this.#aside.length === 0 && !this.#over) await this.#step();
    const chunk = this.#aside.shift();
    if (chunk === undefined) return this.#rest();
    this.#sizeAside -= chunk.data.length;
    return chunk;
  }

  /** Reads to the end and drops the output. */
  async wait(): Promise<CommandResult> {
    while ((await this.read()) !== undefined);
    return this.result;
  }

  /**
   * To its stdin (`stdin: true`). Waits while the command does not read; signals get past.
   *
   * Output that comes meanwhile is put aside for `read`, 1 MiB of it: whoever writes to a command
   * that answers at length has to read at the same time.
   */
  async write(data: string | Uint8Array): Promise<void> {
    const bytes = typeof data === "string" ? Buffer.from(data) : data;
    for (let start = 0; start < bytes.length; start += STDIN_CHUNK) {
      const piece = bytes.subarray(start, start + STDIN_CHUNK);
      while (this.#mustWait(piece.length)) await this.#step();
      if (this.#over) return; // nobody is left to take it
      this.#sent += piece.length;
      await (await this.#socket()).send(STDIN, piece);
    }
  }

  async closeStdin(): Promise<void> {
    await this.#control({ eof: true });
  }

  async signal(signal: SignalNumber): Promise<void> {
    await this.#control({ signal: signalNumber(signal) });
  }

  /** The whole tree, whatever it did to hide. */
  async kill(): Promise<void> {
    await this.#control({ kill: true });
  }

  async resize(rows: number, columns: number): Promise<void> {
    await this.#control({ rows, columns });
  }

  /** Lets go of it. Idempotent. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#abort?.removeEventListener("abort", this.#onAbort);
    const socket = await this.#opening?.catch(() => undefined);
    await socket?.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #socket(): Promise<WebSocket> {
    if (this.#failure !== undefined) return Promise.reject(this.#failure);
    if (this.#opening === undefined) {
      if (this.#closed) return Promise.reject(new InvalidInputError("the stream was closed"));
      this.#opening = this.#connect();
    }
    return this.#opening;
  }

  async #connect(): Promise<WebSocket> {
    const { path, query, first } = this.#place;
    const socket = await this.#client.websocket(path, { query, signal: this.#abort });
    if (first !== undefined) await socket.sendText(JSON.stringify(first));
    this.#abort?.addEventListener("abort", this.#onAbort);
    if (this.#abort?.aborted) void this.#aborted();
    return socket;
  }

  async #aborted(): Promise<void> {
    this.#failure ??= this.#abort?.reason;
    const socket = await this.#opening?.catch(() => undefined);
    if (this.#killOnAbort && !this.#over) {
      // Not waited for: one who does not read can't hold up the end.
      void socket?.send(CONTROL, Buffer.from(JSON.stringify({ kill: true })));
    }
    await this.close();
  }

  /** Takes one message; whoever else wants one waits for the same. */
  #step(): Promise<void> {
    this.#stepping ??= this.#take().finally(() => {
      this.#stepping = undefined;
    });
    return this.#stepping;
  }

  async #take(): Promise<void> {
    try {
      const socket = await this.#socket();
      const message = await socket.receive();
      if (this.#failure !== undefined) throw this.#failure;
      if (message === undefined || message.length === 0) {
        if (this.#closed) throw new InvalidInputError("the stream was closed");
        throw new DaemonError("the connection to the command was lost", {
          hint: "how it ended is not known; a job can be attached to again",
        });
      }
      const channel = message.readUInt8(0);
      const output = this.#outputs[channel];
      if (output !== undefined) {
        this.#aside.push(output.chunk(message.subarray(1)));
        this.#sizeAside += message.length - 1;
      } else if (channel === CONTROL) {
        await this.#heed(parseObject(message.toString("utf8", 1)));
      }
    } catch (error) {
      this.#failure ??= error;
      await this.close();
      throw this.#failure;
    }
  }

  async #heed(body: JsonObject): Promise<void> {
    const output = this.#outputs[Number(body["channel"])];
    const offset = Number(body["offset"]);
    switch (body["event"]) {
      case "started":
        this.pid = typeof body["pid"] === "number" ? body["pid"] : null;
        this.#window = typeof body["stdin_window"] === "number" ? body["stdin_window"] : undefined;
        break;
      case "taken":
        this.#taken = Number(body["bytes"]);
        break;
      case "notice":
        this.notices.push(String(body["text"]));
        break;
      case "truncated":
        if (output !== undefined) this.truncated[output.name] = offset;
        break;
      case "offset":
        if (output !== undefined) output.offset = offset;
        break;
      case "caught_up":
        this.#over = true;
        await this.close();
        break;
      case "exit":
        this.#result = new CommandResult(body);
        this.#over = true;
        await this.close();
        break;
      case "error":
        throw errorOf(body);
    }
  }

  #mustWait(size: number): boolean {
    if (this.#window === undefined || this.#over || this.#sizeAside > MOST_ASIDE) return false;
    return this.#sent - this.#taken + size > this.#window;
  }

  /** Half a character at the very end is a mark of its own. */
  #rest(): Chunk | undefined {
    for (const output of Object.values(this.#outputs)) {
      const chunk = output.rest();
      if (chunk !== undefined) return chunk;
    }
    return undefined;
  }

  async #control(body: Schemas["Control"]): Promise<void> {
    await (await this.#socket()).send(CONTROL, Buffer.from(JSON.stringify(body)));
  }
}

/** One of stdout and stderr: where it is, and half a character. */
class Output {
  readonly name: "stdout" | "stderr";
  offset: number;
  #decoder = new TextDecoder("utf-8", { ignoreBOM: true });

  constructor(name: "stdout" | "stderr", offset: number) {
    this.name = name;
    this.offset = offset;
  }

  chunk(data: Buffer): Chunk {
    const { offset } = this;
    this.offset += data.length;
    return { stream: this.name, data, text: this.#decoder.decode(data, { stream: true }), offset };
  }

  rest(): Chunk | undefined {
    const text = this.#decoder.decode();
    if (text === "") return undefined;
    return { stream: this.name, data: Buffer.alloc(0), text, offset: this.offset };
  }
}
