/** Paths and queries of requests. */

import { NotFoundError } from "./error-types.ts";

export type QueryValue = string | Uint8Array | number | boolean | string[] | undefined;
export type Query = Record<string, QueryValue>;

/** An id or a name as part of a path. What can't be one is not found, here as there. */
export function segment(id: string): string {
  if (!/^[a-z0-9-]+$/.test(id)) {
    throw new NotFoundError(`there is nothing called ${JSON.stringify(id)}`);
  }
  return id;
}

export function target(path: string, query: Query = {}): string {
  const pairs: string[] = [];
  for (const [key, value] of Object.entries(query)) {
    if (value === undefined) continue;
    for (const one of Array.isArray(value) ? value : [value]) pairs.push(`${key}=${quoted(one)}`);
  }
  return pairs.length === 0 ? path : `${path}?${pairs.join("&")}`;
}

/** Any file name survives it. */
function quoted(value: string | Uint8Array | number | boolean): string {
  if (typeof value === "boolean") return value ? "1" : "0";
  if (typeof value === "number") return String(value);
  let text = "";
  for (const byte of typeof value === "string" ? Buffer.from(value) : value) {
    const letter = String.fromCharCode(byte);
    text += /[A-Za-z0-9\-._~/]/.test(letter)
      ? letter
      : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  }
  return text;
}
