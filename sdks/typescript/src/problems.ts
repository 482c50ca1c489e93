/** Answers of the daemon that are errors, or none that can be understood. */

import { DaemonError, ERROR_TYPES } from "./error-types.ts";
import { AgentKernelError } from "./errors.ts";

export type JsonObject = Record<string, unknown>;

export function broken(what: string): DaemonError {
  return new DaemonError(`the daemon's answer can't be understood: ${what}`);
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw broken("it is not JSON");
  }
}

export function parseObject(text: string): JsonObject {
  const value = parseJson(text);
  if (!isObject(value)) throw broken("it is no object");
  return value;
}

/** The error of a problem's `code`; one that this version does not know is the root's. */
export function errorOf(problem: JsonObject): AgentKernelError {
  const code = typeof problem["code"] === "string" ? problem["code"] : "internal";
  const message = String(problem["detail"] ?? problem["message"] ?? problem["title"] ?? code);
  const options = {
    hint: problem["hint"] ? String(problem["hint"]) : undefined,
    details: isObject(problem["details"]) ? problem["details"] : undefined,
    retryable: typeof problem["retryable"] === "boolean" ? problem["retryable"] : undefined,
    code,
  };
  const kind = Object.hasOwn(ERROR_TYPES, code)
    ? ERROR_TYPES[code as keyof typeof ERROR_TYPES]
    : AgentKernelError;
  return new kind(message, options);
}

/** The error that an answer with a status of 400 or more stands for. */
export function errorOfAnswer(status: number, contentType: string, body: string): AgentKernelError {
  if (contentType.includes("json")) {
    try {
      return errorOf(parseObject(body));
    } catch (error) {
      if (!(error instanceof DaemonError)) throw error;
    }
  }
  return new DaemonError(`the daemon answered with status ${status}`, { details: { status } });
}
