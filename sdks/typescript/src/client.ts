/**
 * Requests to the daemon. Everything else of this package stands on these four: a call with an
 * answer, a body read in pieces, a body sent in pieces, a WebSocket.
 */

import { once } from "node:events";
import * as fs from "node:fs";
import * as http from "node:http";
import * as https from "node:https";
import { setImmediate as nextTurn, setTimeout as pause } from "node:timers/promises";
import { type Address, addressOfState, addressOfUrl, describe, statePath } from "./address.ts";
import { newAgent } from "./connecting.ts";
import { DaemonError, InvalidInputError } from "./error-types.ts";
import { AgentKernelError } from "./errors.ts";
import { upgrade } from "./frames.ts";
import { Limit } from "./limit.ts";
import { broken, errorOfAnswer, parseJson } from "./problems.ts";
import { type Query, target } from "./target.ts";
import { WebSocket } from "./websocket.ts";

export const CALL_SECONDS = 60;
/** Making a sandbox may have to make its image first. */
export const LONG_CALL_SECONDS = 600;
/** Within a transfer, for the next bytes to come or to be taken: longer than the daemon waits. */
export const PIECE_SECONDS = 120;
const VERSION_HEADER = "agentkernel-version";
// A daemon that was killed may accept for a moment still.
const ATTEMPTS = 40;
const PAUSE_MS = 50;

export interface ClientOptions {
  /** `unix:PATH`, `http://HOST:PORT` or `https://HOST:PORT`; `AGENTKERNEL_URL` unless given. */
  url?: string;
  /** For an address with a port; `AGENTKERNEL_TOKEN` unless given. */
  token?: string;
  /** The state directory whose daemon is meant, where there is no URL. */
  stateDir?: string;
  /** Whether a daemon is started when none answers in the state directory. It is, unless false. */
  start?: boolean;
  /** Authorities to believe instead of Node's own, in PEM; the file `AGENTKERNEL_CA` unless given. */
  ca?: string | Buffer;
  /** Acts for somebody else, whose sandboxes are others than yours; `AGENTKERNEL_OWNER` unless given. */
  owner?: string;
}

export interface CallOptions {
  /** Ends the call; it rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

interface Request extends CallOptions {
  query?: Query | undefined;
  headers?: Record<string, string> | undefined;
  /** For the whole call; undefined: as long as it takes. */
  seconds?: number | undefined;
}

/** A daemon, found when it is first needed. `close` lets go of idle connections; nothing has to. */
export class Client {
  /** Of the daemon that answered last. */
  daemonVersion: string | undefined;
  /** Whether it is on this machine, so that paths and toolchains of ours mean something there. */
  readonly local: boolean;
  readonly #address: Address;
  readonly #agent: http.Agent;
  readonly #headers: Record<string, string>;

  constructor(options: ClientOptions = {}) {
    const url = options.url ?? (options.stateDir ? undefined : process.env["AGENTKERNEL_URL"]);
    const token = options.token ?? process.env["AGENTKERNEL_TOKEN"];
    this.#address = url ? addressOfUrl(url) : addressOfState(options.stateDir ?? statePath());
    this.#agent = newAgent(this.#address, options.start ?? true, options.ca ?? authorities());
    this.local = this.#address.kind === "unix";
    this.#headers = { "User-Agent": "agentkernel-typescript" };
    // In a state directory it is the peer's uid that counts: a secret has no business there.
    if (token && url) this.#headers["Authorization"] = `Bearer ${checkedToken(token)}`;
    const owner = options.owner ?? process.env["AGENTKERNEL_OWNER"];
    if (owner) this.#headers["Agentkernel-Owner"] = checkedOwner(owner);
  }

  close(): void {
    this.#agent.destroy();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  /** A request with a JSON body and a JSON answer. */
  async call(
    method: string,
    path: string,
    request: Request & { json?: unknown } = {},
  ): Promise<unknown> {
    const { json, ...rest } = request;
    if (json === undefined) return parsed(await this.fetch(method, path, rest));
    const headers = { ...rest.headers, "Content-Type": "application/json" };
    const body = Buffer.from(JSON.stringify(json));
    return parsed(await this.fetch(method, path, { ...rest, headers, body }));
  }

  /** A request and the bytes of its answer. What the daemon never read is sent again. */
  async fetch(
    method: string,
    path: string,
    request: Request & { body?: Uint8Array | undefined } = {},
  ): Promise<Buffer> {
    const again = method === "GET" || request.headers?.["Idempotency-Key"] !== undefined;
    const limit = new Limit(request.signal, "seconds" in request ? request.seconds : CALL_SECONDS);
    try {
      for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
        if (!again) await this.#noticeClosed();
        limit.check();
        const exchange = this.#send(method, path, request, limit);
        try {
          exchange.request.end(request.body);
          const response = await limit.of(exchange.response);
          const body = await limit.of(wholeBody(response));
          if (response.statusCode === undefined || response.statusCode >= 400) {
            throw problemOf(response, body);
          }
          return body;
        } catch (error) {
          if (!(error instanceof Lost)) throw error;
          const reused = exchange.request.reusedSocket;
          if (!error.unheard && !(again && reused)) throw error.asDaemonError();
        }
        await limit.of(pause(PAUSE_MS));
      }
    } finally {
      limit.over();
    }
    throw new DaemonError("the daemon takes connections and does not read from them");
  }

  /**
   * The bytes of an answer as they come, at the pace of whoever reads them. DaemonError if it breaks
   * off before its end. `patience`: the longest to wait for some, in seconds.
   */
  async *pieces(
    path: string,
    request: Request & {
      patience?: number | undefined;
      method?: string;
      json?: unknown;
      /** A body that is sent as it comes, before anything is read. */
      upload?: AsyncIterable<Uint8Array> | Iterable<Uint8Array>;
    } = {},
  ): AsyncGenerator<Buffer, void, undefined> {
    const { method = "GET", json, upload } = request;
    const headers = { ...request.headers };
    if (json !== undefined) headers["Content-Type"] = "application/json";
    if (upload !== undefined) headers["Content-Type"] = "application/octet-stream";
    const limit = new Limit(request.signal, upload === undefined ? CALL_SECONDS : undefined);
    limit.check();
    await this.#noticeClosed();
    const exchange = this.#send(method, path, { ...request, headers }, limit);
    try {
      if (upload === undefined) {
        exchange.request.end(json === undefined ? undefined : JSON.stringify(json));
      } else {
        if (await sendPieces(upload, exchange, limit)) exchange.request.end();
        limit.restart(PIECE_SECONDS);
      }
      const response = await limit.of(exchange.response);
      if (response.statusCode === undefined || response.statusCode >= 400) {
        throw problemOf(response, await limit.of(wholeBody(response)));
      }
      const iterator = response[Symbol.asyncIterator]();
      for (;;) {
        limit.restart(request.patience);
        const next = await limit.of(iterator.next().catch(lost));
        // While the caller is busy with it no clock runs: it may take its time.
        limit.restart(undefined);
        if (next.done) return;
        yield next.value as Buffer;
      }
    } catch (error) {
      throw error instanceof Lost ? error.asDaemonError() : error;
    } finally {
      limit.over();
      exchange.request.destroy();
    }
  }

  /** A PUT whose body is sent as it comes, and its JSON answer. It is not repeated. */
  async upload(
    path: string,
    body: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
    request: Request = {},
  ): Promise<unknown> {
    const headers = { ...request.headers, "Content-Type": "application/octet-stream" };
    const limit = new Limit(request.signal, undefined);
    limit.check();
    await this.#noticeClosed();
    const exchange = this.#send("PUT", path, { ...request, headers }, limit);
    const { request: sending } = exchange;
    try {
      if (await sendPieces(body, exchange, limit)) sending.end();
      limit.restart(PIECE_SECONDS);
      const response = await limit.of(exchange.response);
      const answer = await limit.of(wholeBody(response));
      if (response.statusCode === undefined || response.statusCode >= 400) {
        throw problemOf(response, answer);
      }
      return parsed(answer);
    } catch (error) {
      throw error instanceof Lost ? error.asDaemonError() : error;
    } finally {
      limit.over();
      if (!sending.writableFinished) sending.destroy();
    }
  }

  async websocket(path: string, request: Request = {}): Promise<WebSocket> {
    const limit = new Limit(request.signal, CALL_SECONDS);
    try {
      for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
        limit.check();
        const asked = upgrade();
        const headers = { ...request.headers, ...asked.headers };
        const exchange = this.#send("GET", path, { ...request, headers }, limit);
        try {
          exchange.request.end();
          const opened = await limit.of(upgraded(exchange, asked.accept));
          if (opened instanceof WebSocket) return opened;
          throw problemOf(opened, await limit.of(wholeBody(opened)));
        } catch (error) {
          exchange.request.destroy();
          if (!(error instanceof Lost)) throw error;
          // Nothing begins before the first message, so an idle connection's end costs nothing.
          if (!error.unheard && !exchange.request.reusedSocket) throw error.asDaemonError();
        }
        await limit.of(pause(PAUSE_MS));
      }
    } finally {
      limit.over();
    }
    throw new DaemonError("the daemon takes connections and does not read from them");
  }

  /**
   * Idle connections that the daemon has closed are dropped by Node once its event loop has looked at
   * them, which two turns make sure of; what is not sent again must not be sent on such a one.
   */
  async #noticeClosed(): Promise<void> {
    if (Object.keys(this.#agent.freeSockets).length === 0) return;
    await nextTurn();
    await nextTurn();
  }

  #send(method: string, path: string, request: Request, limit: Limit): Exchange {
    const address = this.#address;
    const secure = address.kind === "tcp" && address.secure;
    const options: http.RequestOptions = {
      method,
      path: target(path, request.query),
      agent: this.#agent,
      headers: { ...this.#headers, ...request.headers },
      // Our own clocks tell how long a call may take; the agent's is for idle connections.
      timeout: 0,
      ...(address.kind === "tcp"
        ? { host: address.host, port: address.port }
        : { host: "agentkernel" }),
    };
    const sent = secure ? https.request(options) : http.request(options);
    const response = new Promise<http.IncomingMessage>((resolve, reject) => {
      sent.on("response", (answer) => {
        this.daemonVersion = headerOf(answer, VERSION_HEADER) ?? this.daemonVersion;
        resolve(answer);
      });
      sent.on("error", (error) => reject(explained(error, address)));
      // Whatever ends it without an answer and without an error of its own.
      sent.on("close", () => reject(new Lost(false, undefined)));
    });
    response.catch(() => undefined);
    limit.request = sent;
    return { request: sent, response };
  }
}

function checkedToken(token: string): string {
  if (!/^[!-~]+$/.test(token)) throw new InvalidInputError("AGENTKERNEL_TOKEN is not a token");
  return token;
}

function checkedOwner(owner: string): string {
  if (!/^[ -~]+$/.test(owner)) throw new InvalidInputError("AGENTKERNEL_OWNER is not an owner");
  return owner;
}

function authorities(): Buffer | undefined {
  const file = process.env["AGENTKERNEL_CA"];
  if (!file) return undefined;
  try {
    return fs.readFileSync(file);
  } catch (error) {
    throw new InvalidInputError(`AGENTKERNEL_CA can't be used: ${(error as Error).message}`);
  }
}

interface Exchange {
  request: http.ClientRequest;
  response: Promise<http.IncomingMessage>;
}

/** The connection broke. `unheard`: before the daemon had read the request, so it can be repeated. */
class Lost extends Error {
  readonly unheard: boolean;

  constructor(unheard: boolean, cause: unknown) {
    super("lost", { cause });
    this.unheard = unheard;
  }

  asDaemonError(): DaemonError {
    return new DaemonError("the daemon closed the connection before it had answered", {
      hint: "look at the state before repeating the call",
      cause: this.cause,
    });
  }
}

function lost(error: unknown): never {
  throw error instanceof AgentKernelError ? error : new Lost(false, error);
}

/** What Node says of a connection, in our words. */
function explained(error: NodeJS.ErrnoException, address: Address): Error {
  if (error instanceof AgentKernelError) return error;
  if (error.code === "ECONNRESET" || error.code === "EPIPE") {
    // A unix socket's other end that closes with our request unread is a reset of the system's;
    // Node's own "socket hang up" (no system call) only says that there was no answer.
    return new Lost(address.kind === "unix" && error.syscall !== undefined, error);
  }
  if (address.kind === "tcp") {
    return new DaemonError(`no daemon answers at ${describe(address)}: ${error.message}`, {
      hint: /certificate|CERT/.test(`${error.code} ${error.message}`)
        ? "AGENTKERNEL_CA names a PEM file with the authority that signed it"
        : "`agentkernel serve --listen HOST:PORT` is what starts one there",
      cause: error,
    });
  }
  return new DaemonError(`the call failed: ${error.message}`, { cause: error });
}

async function wholeBody(response: http.IncomingMessage): Promise<Buffer> {
  const pieces: Buffer[] = [];
  try {
    for await (const piece of response) pieces.push(piece as Buffer);
  } catch (error) {
    throw new Lost(false, error);
  }
  return Buffer.concat(pieces);
}

/**
 * True when all of it was sent. An answer before the end says that there is no use in sending more, as
 * does a broken line: then the source is left where it is.
 */
async function sendPieces(
  body: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  exchange: Exchange,
  limit: Limit,
): Promise<boolean> {
  const answered = Symbol("answered");
  let early = false;
  const stop = (): void => {
    early = true;
    limit.interrupt(answered);
  };
  exchange.response.then(stop, stop);
  const source =
    Symbol.asyncIterator in body ? body[Symbol.asyncIterator]() : body[Symbol.iterator]();
  let finished = false;
  try {
    while (!early) {
      // While the source is at work no clock runs: it may take its time.
      const next = await limit.of(Promise.resolve(source.next()));
      finished = next.done === true;
      if (finished) return true;
      if (next.value.length === 0 || exchange.request.write(next.value)) continue;
      limit.restart(PIECE_SECONDS);
      await limit.of(once(exchange.request, "drain"));
      limit.restart(undefined);
    }
  } catch (error) {
    if (error !== answered) throw error;
  } finally {
    // Not waited for: one that hangs must not hold us up.
    if (!finished) Promise.resolve(source.return?.()).catch(() => undefined);
  }
  return false;
}

/** The stream that was asked for, or the answer that came instead. */
function upgraded(exchange: Exchange, accept: string): Promise<WebSocket | http.IncomingMessage> {
  return new Promise((resolve, reject) => {
    exchange.request.on("upgrade", (answer, socket, head) => {
      if (headerOf(answer, "sec-websocket-accept") === accept) {
        resolve(new WebSocket(socket, head));
      } else {
        socket.destroy();
        reject(broken("it opened no stream"));
      }
    });
    exchange.response.then((answer) => {
      // An answer that is no upgrade and no error would leave us without either.
      if ((answer.statusCode ?? 0) >= 400) resolve(answer);
      else reject(broken("it opened no stream"));
    }, reject);
  });
}

function parsed(body: Buffer): unknown {
  return body.length === 0 ? undefined : parseJson(body.toString("utf8"));
}

function problemOf(response: http.IncomingMessage, body: Buffer): AgentKernelError {
  const kind = headerOf(response, "content-type") ?? "";
  return errorOfAnswer(response.statusCode ?? 0, kind, body.toString("utf8"));
}

function headerOf(response: http.IncomingMessage, name: string): string | undefined {
  const value = response.headers[name];
  return Array.isArray(value) ? value[0] : value;
}

const shared = new Map<string, Client>();

/** The client of what the environment says now, one for the whole process. */
export function sharedClient(): Client {
  const names = ["AGENTKERNEL_URL", "AGENTKERNEL_TOKEN", "AGENTKERNEL_CA", "AGENTKERNEL_OWNER"];
  const key = JSON.stringify([statePath(), ...names.map((name) => process.env[name])]);
  let client = shared.get(key);
  if (client === undefined) {
    client = new Client();
    shared.set(key, client);
  }
  return client;
}
