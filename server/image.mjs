// `node server/image.mjs FOLDER`: puts what the container runs into an empty folder, and nothing else: the compiled server
// and tools, the web app, tables and functions, and of the packages only those that are not compiled in. After
// `npm ci`, `node server/build.mjs` and the web app's build. Plain JavaScript without dependencies.
import { cpSync, existsSync, mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
const [, , out] = process.argv;
if (out === undefined) throw new Error("node server/image.mjs FOLDER");

const FILES = [
  "package.json",
  "LICENSE",
  "server/start.mjs",
  "server/dist",
  "server/local/bootstrap.mjs",
  "server/local/data-dir-lock.mjs",
  "server/local/processes.mjs",
  "prisma/migrations",
  "prisma/functions",
  "web/dist",
  "docs/.vitepress/dist",
  "packages/paywall/src/assets",
];
/** What build.mjs leaves out because it has files of its own, as far as it is no part of the embedded world. */
const PACKAGES = ["secp256k1", "pino"];
const FONTS = ["geist", "geist-mono"];
/** Of no use where it runs: types, maps, what native code was compiled from. */
const LEFT_OUT =
  /\.(?:d\.[cm]?ts|map|md|markdown|o|mk|cc|gyp)$|^\/(?:\.github|tests?|benchmarks?|docs|examples)(?:\/|$)|^\/src\/secp256k1/;

/** Where Node finds a package from a folder. @param {string} name @param {string} from @returns {string} */
function folderOf(name, from) {
  for (let folder = from; ; folder = dirname(folder)) {
    const found = join(folder, "node_modules", name);
    if (existsSync(join(found, "package.json"))) return found;
    if (folder === dirname(folder)) throw new Error(`${name} is not installed`);
  }
}

/** With all that they stand on. @param {string} name @param {string} from @param {Set<string>} found */
function collect(name, from, found) {
  const folder = folderOf(name, from);
  if (found.has(folder)) return;
  found.add(folder);
  const { dependencies = {} } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  for (const each of Object.keys(dependencies)) collect(each, folder, found);
}

mkdirSync(out, { recursive: true });
for (const file of FILES) cpSync(join(ROOT, file), join(out, file), { recursive: true });

/** @type {Set<string>} */
const packages = new Set();
for (const name of PACKAGES) collect(name, ROOT, packages);
for (const folder of packages)
  cpSync(folder, join(out, relative(ROOT, folder)), {
    recursive: true,
    dereference: true,
    filter: (path) => {
      const inside = path.slice(folder.length);
      return !inside.startsWith("/node_modules/") && !LEFT_OUT.test(inside);
    },
  });

// The paywall's page has its own letters; beside its other files they are found first.
const { resolve } = createRequire(join(ROOT, "package.json"));
for (const font of FONTS)
  cpSync(
    resolve(`@fontsource-variable/${font}/files/${font}-latin-wght-normal.woff2`),
    join(out, "packages/paywall/src/assets", `${font}.woff2`),
  );
console.log(`${packages.size} packages beside what is compiled: ${out}`);
