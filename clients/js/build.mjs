// Builds dist/ with tsc alone: JavaScript without comments, declarations with them. `--copies` copies the main entry to
// where the demo page and the extension load it from.

import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const dist = join(here, "dist");
const copies = ["../../examples/demo/client", "../../examples/extension-mv3/client"];

const tsc = (...args) =>
  execFileSync(process.execPath, [join(here, "node_modules/typescript/bin/tsc"), "-p", here, ...args], { stdio: "inherit" });

rmSync(dist, { recursive: true, force: true });
tsc("--removeComments");
tsc("--declaration", "--emitDeclarationOnly");

if (process.argv.includes("--copies")) {
  for (const copy of copies.map((name) => join(here, name))) {
    rmSync(copy, { recursive: true, force: true });
    mkdirSync(copy, { recursive: true });
    for (const name of readdirSync(dist)) {
      if (name.endsWith(".js") && name !== "react.js") copyFileSync(join(dist, name), join(copy, name));
    }
  }
}
