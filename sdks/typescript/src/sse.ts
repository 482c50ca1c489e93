/** `text/event-stream`, as far as the daemon uses it. */

import { broken } from "./problems.ts";

export interface ServerEvent {
  kind: string;
  data: string;
}

const MAX_LINE = 4 << 20;

/** The events of a body as they come; comments (heartbeats) are left out. */
export async function* serverEvents(
  pieces: AsyncIterable<Uint8Array>,
): AsyncGenerator<ServerEvent> {
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  let rest = "";
  let kind = "";
  for await (const piece of pieces) {
    const lines = (rest + decoder.decode(piece, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    if (rest.length > MAX_LINE) throw broken("a line that does not end");
    for (const line of lines) {
      if (line.startsWith("event: ")) kind = line.slice(7);
      else if (line.startsWith("data: ")) yield { kind, data: line.slice(6) };
    }
  }
}
