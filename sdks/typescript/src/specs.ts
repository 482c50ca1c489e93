/** What a sandbox is to be, in this language's words and in the API's. */

import type { Client } from "./client.ts";
import { hostEnvironment } from "./toolchains.ts";
import type { Schemas } from "./wire.ts";

/** What is left out is as the profile says. */
export interface SandboxSpec {
  /** The engine: `native` unless given; `runc`, `crun` and `gvisor` where they are installed. */
  backend?: string;
  /** `host` (this machine's programs) unless given, a directory, or a name such as `debian:12`. */
  image?: string;
  /** When its registry is asked for the image: `missing` unless given, `always` or `never`. */
  pull?: "missing" | "always" | "never";
  /** In place of the image's own, before the command of `run`; `[]`: none. */
  entrypoint?: string[];
  /** A template in place of an image. */
  template?: string;
  /** `permissive`, `moderate` (unless given) or `restrictive`. */
  profile?: string;
  /** As whom its commands run unless they say otherwise; the image's own user unless given. */
  user?: string;
  env?: Record<string, string>;
  /** Whether the `host` image shows toolchains on this process's PATH. It does, unless false. */
  toolchains?: boolean;
  nestedUserns?: boolean;
  memoryBytes?: number;
  cpus?: number;
  pids?: number;
  diskBytes?: number;
  unlimitedDisk?: boolean;
  nofile?: number;
  /** A limit that can't be enforced here is shown as such instead of failing the call. */
  bestEffort?: boolean;
  /** What it may reach; as the profile says unless given. */
  network?: Schemas["NetworkRequest"];
  /** `NAME@HOST[,HOST]`: secrets it may use there without knowing them. */
  secrets?: string[];
  /** `[[ADDRESS:]HOST_PORT:]PORT` or `preview:PORT`: published on the daemon's machine. */
  ports?: string[];
  /** `DIR[:cow|ro|rw]`: a directory of the daemon's machine at `/workspace`, where commands begin. */
  workspace?: string;
  /** Whether files in it that look like secrets are shown. They are not, unless true. */
  workspaceSecrets?: boolean;
  /** `NAME:/path[:ro]`: volumes that it has; one that is not there yet is made. */
  volumes?: string[];
  /** Whether files in it that git ignores are shown; they are, unless `hide`. */
  workspaceIgnored?: "show" | "hide";
  /** Of the git repository there, this branch: where it is checked out, or in a checkout of its own. */
  workspaceBranch?: string;
  /** Where it is inside: `same`, as on the daemon's machine, or a path; `/workspace` unless given. */
  workspacePath?: string;
  /** Agents that can run in it: it has their kits, reaches what they need, can use their logins. */
  agents?: string[];
  /** Whether it can use the logins with them. It can, unless false. */
  agentLogins?: boolean;
  /** For commands whose caller says nothing else. */
  commandTimeoutSeconds?: number;
  commandOutputBytes?: number;
  /** What says which toolchains there are; this process's environment unless given. */
  hostEnv?: Record<string, string>;
}

/** Unknown words go to the daemon as they are: it says what is wrong with them. */
export function specBody(spec: SandboxSpec, client: Client): Schemas["SandboxSpec"] {
  // Toolchains of this machine mean nothing on another.
  const body: Record<string, unknown> = client.local ? { host_env: hostEnvironment() } : {};
  for (const [key, value] of Object.entries(spec)) {
    if (value !== undefined) body[snake(key)] = value;
  }
  return body;
}

function snake(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** Whether it has to wait for as long as a registry takes: the image is no directory, nor `host`. */
export function mayBeFetched(spec: SandboxSpec): boolean {
  const { image = "host" } = spec;
  return image !== "host" && !/^[/.~]/.test(image);
}
