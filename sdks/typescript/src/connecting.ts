/** Connections to the daemon, for Node's own HTTP client: over a unix socket, TCP or TLS. */

import * as fs from "node:fs";
import * as http from "node:http";
import * as https from "node:https";
import * as net from "node:net";
import * as path from "node:path";
import type { Duplex } from "node:stream";
import { setTimeout as pause } from "node:timers/promises";
import { type Address, describe } from "./address.ts";
import { startDaemon } from "./daemon.ts";
import { DaemonError, DaemonTimeoutError } from "./error-types.ts";

// A socket's address holds 107 bytes.
const LONGEST_PATH = 100;
const BUSY_MS = 60_000;
const PAUSE_MS = 10;
// Less than the time after which the daemon closes an idle connection.
const IDLE_MS = 3_000;
const MOST_IDLE = 8;

/**
 * The agent that makes and keeps the connections of one client. `ca`: authorities to believe instead
 * of Node's own, in PEM.
 */
export function newAgent(
  address: Address,
  start: boolean,
  ca: string | Buffer | undefined,
): http.Agent {
  const options = { keepAlive: true, maxFreeSockets: MOST_IDLE, timeout: IDLE_MS };
  if (address.kind === "unix") return new UnixAgent(address, start, options);
  if (!address.secure) return new http.Agent(options);
  return new https.Agent({ ...options, minVersion: "TLSv1.2", ...(ca && { ca }) });
}

/** Starts the daemon if need be, whenever a new connection is made. */
class UnixAgent extends http.Agent {
  #address: Address & { kind: "unix" };
  #start: boolean;

  constructor(address: Address & { kind: "unix" }, start: boolean, options: http.AgentOptions) {
    super(options);
    this.#address = address;
    this.#start = start;
  }

  override createConnection(
    _options: unknown,
    callback?: (error: Error | null, socket: Duplex) => void,
  ): undefined {
    this.#dial().then(
      (socket) => callback?.(null, socket),
      (error: Error) => callback?.(error, undefined as never),
    );
  }

  async #dial(): Promise<net.Socket> {
    const { stateDir } = this.#address;
    let socket = await connect(this.#address);
    if (socket === undefined && this.#start && stateDir !== undefined) {
      await startDaemon(stateDir, async () => {
        const found = await connect(this.#address);
        found?.destroy();
        return found !== undefined;
      });
      socket = await connect(this.#address);
    }
    if (socket === undefined) {
      throw new DaemonError(`no daemon answers in ${describe(this.#address)}`, {
        hint: stateDir
          ? "`agentkernel daemon restart` starts one"
          : "AGENTKERNEL_URL says where it is to be",
      });
    }
    return socket;
  }
}

/** A connection; undefined: nobody listens there. One that is busy is tried again. */
async function connect(address: Address & { kind: "unix" }): Promise<net.Socket | undefined> {
  const deadline = Date.now() + BUSY_MS;
  for (;;) {
    try {
      return await once(address.socketPath);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === "ENOENT" || code === "ECONNREFUSED") return undefined;
      if (code !== "EAGAIN") {
        throw new DaemonError(
          `the daemon's socket can't be used: ${address.socketPath}: ${(error as Error).message}`,
          { hint: "set AGENTKERNEL_STATE_DIR to a directory of yours", cause: error },
        );
      }
      if (Date.now() > deadline) {
        throw new DaemonTimeoutError("the daemon has no room for one more connection");
      }
      await pause(PAUSE_MS);
    }
  }
}

function once(socketPath: string): Promise<net.Socket> {
  return new Promise((resolve, reject) => {
    // A directory's descriptor makes any path short.
    const far = Buffer.byteLength(socketPath) > LONGEST_PATH;
    const { O_RDONLY, O_DIRECTORY } = fs.constants;
    const directory = far ? fs.openSync(path.dirname(socketPath), O_RDONLY | O_DIRECTORY) : -1;
    const place = far ? `/proc/self/fd/${directory}/${path.basename(socketPath)}` : socketPath;
    const socket = net.connect({ path: place });
    const done = (): void => {
      if (far) fs.closeSync(directory);
    };
    socket.once("connect", () => {
      done();
      socket.removeAllListeners("error");
      resolve(socket);
    });
    socket.once("error", (error) => {
      done();
      reject(error);
    });
  });
}
