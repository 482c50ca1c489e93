// Programs that use the built package, compiled as a user's would be: strict, by its public types.
//
//     node scripts/compile.mjs [--check-types] NAME FILE.ts...    ->  .build/NAME/FILE.js
//
// They are put below the package, where its own name leads to `dist`. With --check-types the types in
// there are looked at, too, which takes a while.
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { basename } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const checked = process.argv.includes("--check-types");
const [name, ...files] = process.argv.slice(2).filter((word) => word !== "--check-types");
const place = `${root}.build/${name}/`;
rmSync(place, { recursive: true, force: true });
mkdirSync(place, { recursive: true });
for (const file of files) copyFileSync(file, place + basename(file));
const settings = {
  compilerOptions: {
    target: "ES2022",
    lib: ["ES2023", "ESNext.Disposable"],
    module: "NodeNext",
    types: ["node"],
    strict: true,
    erasableSyntaxOnly: true,
    skipLibCheck: !checked,
  },
  files: files.map((file) => basename(file)),
};
writeFileSync(`${place}tsconfig.json`, JSON.stringify(settings));
const tsc = `${root}node_modules/typescript/bin/tsc`;
execFileSync(process.execPath, [tsc, "-p", place], { cwd: root, stdio: "inherit" });
