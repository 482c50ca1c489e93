/** What happens to sandboxes, as it happens. */

import { type CallOptions, type Client, sharedClient } from "./client.ts";
import { errorOf, isObject, type JsonObject, parseObject } from "./problems.ts";
import { count } from "./results.ts";
import { serverEvents } from "./sse.ts";

// The daemon says every 15 s that it is still there.
const SILENCE_SECONDS = 60;

/** Something happened. Of the kind `gap`: some are lost, those before `seq`. */
export interface Event {
  /** To go on from later: `after`. */
  seq: number;
  /** Unix seconds. */
  at: number;
  kind: string;
  sandboxId: string | null;
  body: JsonObject;
}

export interface EventOptions extends CallOptions {
  /** Those behind this number; without it, what happens from now on. */
  after?: number;
  /** Of this sandbox only, an id or a name. */
  sandbox?: string;
  /** False: it ends with the last event that was there at the call. */
  follow?: boolean;
  client?: Client;
}

/** Ends with a DaemonError when the daemon does: go on with `after` then. */
export async function* events(options: EventOptions = {}): AsyncGenerator<Event, void, undefined> {
  const { after, sandbox, follow = true, signal, client = sharedClient() } = options;
  const query = { after, sandbox, follow: follow ? undefined : 0 };
  const pieces = client.pieces("/v1/events", { query, signal, patience: SILENCE_SECONDS });
  for await (const { kind, data } of serverEvents(pieces)) {
    const body = parseObject(data);
    if (kind === "error") throw errorOf(body);
    if (kind === "gap") {
      yield { seq: count(body, "oldest"), at: 0, kind, sandboxId: null, body };
      continue;
    }
    yield {
      seq: count(body, "seq"),
      at: count(body, "at"),
      kind,
      sandboxId: typeof body["sandbox_id"] === "string" ? body["sandbox_id"] : null,
      body: isObject(body["body"]) ? body["body"] : {},
    };
  }
}
