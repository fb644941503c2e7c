// `node server/image.mjs FOLDER`: copies the contents of the container image into an empty folder: the compiled server
// and tools, the web app, tables and functions, and only those packages that are not bundled. Run it after `npm ci`,
// `node server/build.mjs` and the web app's build. Plain JavaScript without dependencies.
import { cpSync, existsSync, mkdirSync, readFileSync } from "node:fs";
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
];
/** Packages that build.mjs does not bundle, without those of local mode. */
const PACKAGES = ["secp256k1", "pino"];
/** Not needed at run time: types, maps, sources of native code. */
const LEFT_OUT =
  /\.(?:d\.[cm]?ts|map|md|markdown|o|mk|cc|gyp)$|^\/(?:\.github|tests?|benchmarks?|docs|examples)(?:\/|$)|^\/src\/secp256k1/;

/** The folder of a package, found like Node does. @param {string} name @param {string} from @returns {string} */
function folderOf(name, from) {
  for (let folder = from; ; folder = dirname(folder)) {
    const found = join(folder, "node_modules", name);
    if (existsSync(join(found, "package.json"))) return found;
    if (folder === dirname(folder)) throw new Error(`${name} is not installed`);
  }
}

/** Collects a package and its dependencies. @param {string} name @param {string} from @param {Set<string>} found */
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

console.log(`${packages.size} packages beside what is compiled: ${out}`);
