// dist/ from src/, from nothing: what is gone from the sources must not stay in the package.
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const dist = `${root}dist/`;
const tsc = `${root}node_modules/typescript/bin/tsc`;
rmSync(dist, { recursive: true, force: true });
execFileSync(process.execPath, [tsc, "-p", "tsconfig.build.json"], { cwd: root, stdio: "inherit" });

// The compiler rewrites the names of imports in what is run, not in the types beside it.
for (const name of readdirSync(dist).filter((name) => name.endsWith(".d.ts"))) {
  const text = readFileSync(dist + name, "utf8");
  writeFileSync(dist + name, text.replace(/(from "\.\/[\w-]+)\.ts"/g, '$1.js"'));
}
