/** Where the daemon is: a unix socket of this machine, or a host and port. */

import * as os from "node:os";
import * as path from "node:path";
import { InvalidInputError, PolicyDeniedError } from "./error-types.ts";

export const SOCKET_NAME = "api.sock";
const LOCAL = ["localhost", "127.0.0.1", "::1"];

export type Address =
  /** `stateDir`: a daemon can be started for it. */
  | { kind: "unix"; socketPath: string; stateDir: string | undefined }
  | { kind: "tcp"; secure: boolean; host: string; port: number };

/** `AGENTKERNEL_STATE_DIR`, else the XDG state directory; it may not be there yet. */
export function statePath(environment: NodeJS.ProcessEnv = process.env): string {
  const chosen = environment["AGENTKERNEL_STATE_DIR"];
  if (chosen) return path.resolve(chosen);
  const xdg = environment["XDG_STATE_HOME"];
  if (xdg) return path.join(path.resolve(xdg), "agentkernel");
  const home = environment["HOME"] || os.homedir();
  if ((home === "" || home === "/") && process.getuid?.() === 0) {
    return "/var/lib/agentkernel/state";
  }
  return path.join(home, ".local", "state", "agentkernel");
}

export function addressOfState(stateDir: string): Address {
  const resolved = path.resolve(stateDir);
  return { kind: "unix", socketPath: path.join(resolved, SOCKET_NAME), stateDir: resolved };
}

/** `unix:PATH`, `http://HOST:PORT` or `https://HOST:PORT`. A daemon there is never started. */
export function addressOfUrl(url: string, environment: NodeJS.ProcessEnv = process.env): Address {
  if (url.startsWith("unix:")) {
    const place = url.slice("unix:".length).replace(/^~(?=\/|$)/, () => os.homedir());
    return { kind: "unix", socketPath: path.resolve(place), stateDir: undefined };
  }
  let parsed: URL;
  try {
    parsed = new URL(url);
  } catch {
    throw wrong(url);
  }
  if (parsed.username || parsed.password) {
    throw new InvalidInputError("the address has a user in it", {
      hint: "the token goes into AGENTKERNEL_TOKEN",
    });
  }
  const secure = parsed.protocol === "https:";
  if (!secure && parsed.protocol !== "http:") throw wrong(url);
  if (!parsed.hostname || parsed.pathname !== "/" || parsed.search) throw wrong(url);
  // Brackets belong to the URL, not to an IPv6 address.
  const host = parsed.hostname.replace(/^\[|\]$/g, "");
  if (!secure && !LOCAL.includes(host) && !environment["AGENTKERNEL_INSECURE_HTTP"]) {
    throw new PolicyDeniedError(
      `the token and all else would pass the network to ${host} in clear text`,
      { hint: "use https://; or set AGENTKERNEL_INSECURE_HTTP=1, if something else encrypts" },
    );
  }
  return { kind: "tcp", secure, host, port: Number(parsed.port) || (secure ? 443 : 80) };
}

export function describe(address: Address): string {
  if (address.kind === "unix") return address.stateDir ?? address.socketPath;
  return `${address.secure ? "https" : "http"}://${address.host}:${address.port}`;
}

function wrong(url: string): InvalidInputError {
  return new InvalidInputError(`${JSON.stringify(url)} is no address of a daemon`, {
    hint: "write http://HOST:PORT, https://HOST:PORT or unix:PATH",
  });
}
