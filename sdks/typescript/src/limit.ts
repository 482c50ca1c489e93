/** How long a call may take, and who may end it. */

import type * as http from "node:http";
import { DaemonTimeoutError } from "./error-types.ts";

/** The clock and the signal of one call. */
export class Limit {
  readonly #signal: AbortSignal | undefined;
  #timer: NodeJS.Timeout | undefined;
  #end: ((error: unknown) => void) | undefined;
  #over: unknown;
  readonly #onAbort = (): void => this.#expire(this.#signal?.reason);

  constructor(signal: AbortSignal | undefined, seconds: number | undefined) {
    this.#signal = signal;
    signal?.addEventListener("abort", this.#onAbort);
    if (signal?.aborted) this.#over = signal.reason;
    this.restart(seconds);
  }

  /** From now on so many seconds; undefined: no clock. */
  restart(seconds: number | undefined): void {
    clearTimeout(this.#timer);
    if (seconds === undefined) return;
    this.#timer = setTimeout(() => {
      this.#expire(new DaemonTimeoutError("the daemon did not answer in time"));
    }, seconds * 1000);
  }

  check(): void {
    if (this.#over !== undefined) throw this.#over;
  }

  /** What `work` gives; or the reason why it was not waited for, and `request` is cut off. */
  async of<T>(work: Promise<T>, request: http.ClientRequest | undefined): Promise<T> {
    work.catch(() => undefined);
    try {
      this.check();
      return await Promise.race([
        work,
        new Promise<never>((_, reject) => {
          this.#end = reject;
        }),
      ]);
    } catch (error) {
      request?.destroy();
      throw error;
    } finally {
      this.#end = undefined;
    }
  }

  over(): void {
    clearTimeout(this.#timer);
    this.#signal?.removeEventListener("abort", this.#onAbort);
  }

  #expire(error: unknown): void {
    this.#over ??= error;
    this.#end?.(this.#over);
  }
}
