/** `text/event-stream`, as far as the daemon uses it. */

import type { CallOptions, Client } from "./client.ts";
import { broken, errorOf, type JsonObject, parseObject } from "./problems.ts";
import type { Query } from "./target.ts";

const MAX_LINE = 4 << 20;
// The daemon says every 15 s that it is still there.
const SILENCE_SECONDS = 60;

export interface ServerEvent {
  kind: string;
  body: JsonObject;
}

/** The events of a stream as they come; an `error` is thrown, a `ping` is not told. */
export async function* serverEvents(
  client: Client,
  path: string,
  request: CallOptions & {
    query?: Query;
    method?: string;
    json?: unknown;
    upload?: AsyncIterable<Uint8Array> | Iterable<Uint8Array>;
    headers?: Record<string, string>;
  } = {},
): AsyncGenerator<ServerEvent, void, undefined> {
  const headers = { ...request.headers, Accept: "text/event-stream" };
  const pieces = client.pieces(path, { ...request, headers, patience: SILENCE_SECONDS });
  let kind = "";
  for await (const line of lines(pieces)) {
    if (line.startsWith("event: ")) kind = line.slice(7);
    else if (line.startsWith("data: ") && kind !== "ping") {
      const body = parseObject(line.slice(6));
      if (kind === "error") throw errorOf(body);
      yield { kind, body };
    }
  }
}

async function* lines(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<string, void, undefined> {
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  let rest = "";
  for await (const piece of pieces) {
    const found = (rest + decoder.decode(piece, { stream: true })).split("\n");
    rest = found.pop() ?? "";
    if (rest.length > MAX_LINE) throw broken("a line that does not end");
    yield* found;
  }
}
