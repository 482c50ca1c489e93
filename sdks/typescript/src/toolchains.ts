/**
 * What of this process's environment says which toolchains the `host` image should show: the daemon
 * has an environment of its own, that of whoever started it.
 */

import { TOOLCHAIN_NAMES } from "./toolchain-names.ts";

// What JSON or a path can't carry: control characters, and bytes that were not UTF-8.
const ODD = /[\p{Cc}\p{Cs}\ufffd]/u;

export function hostEnvironment(environment = process.env): Record<string, string> {
  const found: Record<string, string> = {};
  for (const name of TOOLCHAIN_NAMES) {
    const value = environment[name];
    if (value === undefined) continue;
    found[name] = value
      .split(":")
      .filter((entry) => !ODD.test(entry))
      .join(":");
  }
  return found;
}
