/** Every test talks to the daemon of `global-setup.ts`, whatever whoever runs them has set. */

import { inject } from "vitest";

for (const name of [
  "AGENTKERNEL_URL",
  "AGENTKERNEL_TOKEN",
  "AGENTKERNEL_CA",
  "AGENTKERNEL_OWNER",
]) {
  delete process.env[name];
}
process.env["AGENTKERNEL_STATE_DIR"] = inject("stateDir");
process.env["AGENTKERNEL_BIN"] = inject("program");
