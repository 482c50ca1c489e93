/** Waiting for what has to come true. */

import { setTimeout as pause } from "node:timers/promises";

const SECONDS = 30;

export async function eventually(check: () => boolean | Promise<boolean>): Promise<void> {
  const deadline = Date.now() + SECONDS * 1000;
  while (!(await check())) {
    if (Date.now() > deadline) throw new Error("it did not come true in time");
    await pause(20);
  }
}

/** What `promise` rejects with; it has to. */
export async function rejection(promise: Promise<unknown>): Promise<unknown> {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error("it was to fail and did not");
}
