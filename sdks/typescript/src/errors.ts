/**
 * The root of every error that this package raises on purpose; `error-types.ts` has the others.
 *
 * A command that fails is a result, not an error, unless a caller asks for one (`check: true`). What
 * an `AbortSignal` ends rejects with that signal's own reason, as everywhere in Node.
 */

import type { CommandResult } from "./results.ts";

export interface ErrorOptions {
  /** What to do about it. */
  hint?: string | undefined;
  details?: Record<string, unknown> | undefined;
  /** Instead of the class's own: codes that this version does not know. */
  code?: string | undefined;
  retryable?: boolean | undefined;
  cause?: unknown;
}

/** `message` says what happened, `hint` what to do, `code` is the same at every door. */
export class AgentKernelError extends Error {
  static readonly code: string = "internal";
  static readonly retryable: boolean = false;

  readonly code: string;
  readonly hint: string | undefined;
  /** Whether the same call may succeed later without any change. */
  readonly retryable: boolean;
  readonly details: Record<string, unknown>;

  constructor(message: string, options: ErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = new.target.name;
    this.code = options.code ?? new.target.code;
    this.retryable = options.retryable ?? new.target.retryable;
    this.hint = options.hint;
    this.details = options.details ?? {};
  }
}

/** Of a command that failed where the caller had asked for an error. */
export class ErrorWithResult extends AgentKernelError {
  readonly result: CommandResult | undefined;

  constructor(message: string, options: ErrorOptions & { result?: CommandResult } = {}) {
    super(message, options);
    this.result = options.result;
  }
}
