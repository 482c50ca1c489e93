// src/schema.ts, the types of every body, from the OpenAPI file of the daemon.
//
//     node scripts/generate.mjs [--check] [FILE]
//
// With --check nothing is written, and the exit status is 1 if something would be.
import { readFileSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import openapiTS, { astToString } from "openapi-typescript";

const NOTE = `// Generated from docs/reference/openapi.json by \`npm run generate\`. Change that, not this.\n\n`;
const target = fileURLToPath(new URL("../src/schema.ts", import.meta.url));
const words = process.argv.slice(2);
const check = words.includes("--check");
const chosen = words.find((word) => !word.startsWith("--"));
const source = chosen
  ? pathToFileURL(resolve(chosen))
  : new URL("../../../docs/reference/openapi.json", import.meta.url);

const wanted = NOTE + astToString(await openapiTS(source, { defaultNonNullable: false }));
let present = "";
try {
  present = readFileSync(target, "utf8");
} catch {
  // not made yet
}
if (wanted !== present) {
  process.stdout.write(`${check ? "differs" : "written"}: src/schema.ts\n`);
  if (check) process.exitCode = 1;
  else writeFileSync(target, wanted);
}
