/** How turns of an acp session end, as its events tell. */

import { errorOf } from "./problems.ts";
import type { Schemas } from "./wire.ts";

/** What an event says of a turn's end; null: nothing. Throws if the turn failed. */
export function turnResult(event: Schemas["AgentEvent"]): { stopReason: string | null } | null {
  const body = event.body as Record<string, unknown>;
  if (event.kind === "ended") {
    throw errorOf({ code: "conflict", detail: "the agent ended before its turn did" });
  }
  if (event.kind !== "prompt" || "text" in body) return null;
  if ("error" in body) throw errorOf({ code: body["code"] ?? "conflict", detail: body["error"] });
  const reason = body["stop_reason"];
  return { stopReason: typeof reason === "string" ? reason : null };
}
