/** How long a call may take, and who may end it. */

import type * as http from "node:http";
import { DaemonTimeoutError } from "./error-types.ts";

// What a timer can hold; a call that may take weeks has no clock.
const MOST_MS = 2 ** 31 - 1;

/** The clock and the signal of one call. */
export class Limit {
  /** What is cut off when the time is over, or when the signal says so. */
  request: http.ClientRequest | undefined;
  readonly #signal: AbortSignal | undefined;
  #timer: NodeJS.Timeout | undefined;
  #end: ((reason: unknown) => void) | undefined;
  #over: unknown;
  readonly #onAbort = (): void => this.#expire(this.#signal?.reason);

  constructor(signal: AbortSignal | undefined, seconds: number | undefined) {
    this.#signal = signal;
    if (signal?.aborted) {
      this.#over = signal.reason;
      return;
    }
    signal?.addEventListener("abort", this.#onAbort);
    this.restart(seconds);
  }

  /** From now on so many seconds; undefined: no clock. */
  restart(seconds: number | undefined): void {
    clearTimeout(this.#timer);
    if (seconds === undefined || seconds * 1000 > MOST_MS) return;
    this.#timer = setTimeout(() => {
      this.#expire(new DaemonTimeoutError("the daemon did not answer in time"));
    }, seconds * 1000);
  }

  check(): void {
    if (this.#over !== undefined) throw this.#over;
  }

  /** What `work` gives, or the reason why it was not waited for. One at a time. */
  async of<T>(work: Promise<T>): Promise<T> {
    work.catch(() => undefined);
    this.check();
    try {
      return await Promise.race([
        work,
        new Promise<never>((_, reject) => {
          this.#end = reject;
        }),
      ]);
    } finally {
      this.#end = undefined;
    }
  }

  /** Whoever waits now gets `reason` instead; nothing is over. */
  interrupt(reason: unknown): void {
    this.#end?.(reason);
  }

  /** The call is done: neither the clock nor the signal concerns it any more. */
  over(): void {
    clearTimeout(this.#timer);
    this.#signal?.removeEventListener("abort", this.#onAbort);
  }

  #expire(reason: unknown): void {
    this.#over ??= reason;
    this.#end?.(this.#over);
    this.request?.destroy();
  }
}
