/** Commands to their end, and commands in a sandbox of their own, which is gone afterwards. */

import { type CallOptions, type Client, sharedClient } from "./client.ts";
import { type Command, CommandStream, commandBody, given } from "./commands.ts";
import type { AgentKernelError } from "./errors.ts";
import { errorOf, isObject } from "./problems.ts";
import { CommandResult, listOf, objectOf } from "./results.ts";
import { type SandboxSpec, specBody } from "./specs.ts";
import type { Schemas } from "./wire.ts";

type Input = Pick<Schemas["Exec"], "stdin" | "stdin_b64">;

// What the daemon may take on top of a command's own time.
const GRACE_SECONDS = 30;

interface OwnSandbox extends SandboxSpec, CallOptions {
  cwd?: string;
  timeoutSeconds?: number;
  /** How long the sandbox lives at most. */
  ttlSeconds?: number;
  /** A bound for each of stdout and stderr; what is beyond is counted. */
  outputBytes?: number;
  client?: Client;
}

export interface RunOptions extends OwnSandbox {
  /** What the command reads. */
  stdin?: string | Uint8Array;
  /** Anything but exit code 0 throws CommandFailedError. */
  check?: boolean;
}

export interface RunStreamOptions extends OwnSandbox {
  /** Whether something will be written to it. */
  stdin?: boolean;
  pty?: readonly [rows: number, columns: number];
}

/**
 * Runs a command to its end in a new sandbox, which is removed whatever happens, also if this
 * process is killed. A string is for a shell, a list is argv. A command that fails is a result.
 */
export async function run(command: Command, options: RunOptions = {}): Promise<CommandResult> {
  const { cwd, timeoutSeconds, ttlSeconds, outputBytes, stdin, check, signal, ...rest } = options;
  const { client = sharedClient(), ...spec } = rest;
  const { argv, shell } = commandBody(command, {});
  const json = given<Schemas["Run"]>({
    ...specBody(spec, client),
    ...inputBody(stdin),
    argv,
    shell,
    cwd,
    timeout_seconds: timeoutSeconds,
    ttl_seconds: ttlSeconds,
    output_bytes: outputBytes,
  });
  return finish(client, "/v1/run", json, timeoutSeconds, check, signal);
}

/** The same with output that is read while the command runs; `pty` is rows and columns. */
export function runStream(command: Command, options: RunStreamOptions = {}): CommandStream {
  const { cwd, timeoutSeconds, ttlSeconds, outputBytes, stdin, pty, signal, ...rest } = options;
  const { client = sharedClient(), ...spec } = rest;
  const first = given<Schemas["RunStream"]>({
    spec: specBody(spec, client),
    command: commandBody(command, { cwd, timeoutSeconds, outputBytes, stdin, pty }),
    ttl_seconds: ttlSeconds,
  });
  return new CommandStream(client, { path: "/v1/run/stream", first }, signal);
}

/**
 * Runs up to 64 commands to their ends, each in a sandbox of its own, `parallel` at a time.
 *
 * The answers are in the order of the commands. One that could not be run is the error that says why,
 * and stops none of the others.
 */
export async function runBatch(
  commands: readonly Command[],
  options: OwnSandbox & { parallel?: number } = {},
): Promise<Array<CommandResult | AgentKernelError>> {
  const { cwd, timeoutSeconds, ttlSeconds, outputBytes, parallel, signal, ...rest } = options;
  const { client = sharedClient(), ...spec } = rest;
  const json = given<Schemas["RunBatch"]>({
    spec: specBody(spec, client),
    commands: commands.map((command) => {
      const { argv, shell } = commandBody(command, {});
      const limits = { timeout_seconds: timeoutSeconds, output_bytes: outputBytes };
      return given<Schemas["BatchCommand"]>({ argv, shell, cwd, ...limits });
    }),
    parallel,
    ttl_seconds: ttlSeconds,
  });
  const answer = await client.call("POST", "/v1/run/batch", { json, seconds: undefined, signal });
  return listOf(answer, "results").map((entry) => {
    const { error, result } = objectOf(entry);
    return isObject(error) ? errorOf(error) : new CommandResult(result);
  });
}

/** A command to its end, in one call. */
export async function finish(
  client: Client,
  path: string,
  json: Schemas["Run"] | Schemas["Exec"],
  timeoutSeconds: number | undefined,
  check: boolean | undefined,
  signal?: AbortSignal,
): Promise<CommandResult> {
  const seconds = timeoutSeconds === undefined ? undefined : timeoutSeconds + GRACE_SECONDS;
  const result = new CommandResult(await client.call("POST", path, { json, seconds, signal }));
  return check ? result.check() : result;
}

/** A command to its end over a stream, with its input. */
export async function collect(
  stream: CommandStream,
  stdin: string | Uint8Array | undefined,
): Promise<CommandResult> {
  const output: Record<"stdout" | "stderr", Buffer[]> = { stdout: [], stderr: [] };
  if (stdin !== undefined) {
    // What goes wrong with it goes wrong with the output too, and is told there.
    feed(stream, stdin).catch(() => undefined);
  }
  for await (const chunk of stream) output[chunk.stream].push(chunk.data);
  return stream.result.withOutput(Buffer.concat(output.stdout), Buffer.concat(output.stderr));
}

async function feed(stream: CommandStream, stdin: string | Uint8Array): Promise<void> {
  await stream.write(stdin);
  await stream.closeStdin();
}

export function inputBody(stdin: string | Uint8Array | undefined): Input {
  if (stdin === undefined) return {};
  if (typeof stdin === "string") return { stdin };
  return { stdin_b64: Buffer.from(stdin).toString("base64") };
}
